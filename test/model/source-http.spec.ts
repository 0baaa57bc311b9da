import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isMeshnetError, type ErrorCode } from '../../src/errors.ts';
import { get } from '../../src/model/http-get.ts';
import { fetchByHttp, type HttpInit } from '../../src/model/source-http.ts';
import type { FetchJob, FetchNotice } from '../../src/model/source.ts';
import { FileServer } from './file-server.ts';

const FILE = Buffer.from(Uint8Array.from({ length: 400_000 }, (_, i) => (i * 7 + (i >> 9)) & 0xff));
const SHA256 = createHash('sha256').update(FILE).digest('hex');
const FAST: HttpInit = { allowLoopback: true, backoffMs: 1, stallMs: 100, headersTimeoutMs: 150 };

describe('model/source-http', () => {
  let dir = '';
  let target = '';
  let server: FileServer;
  let notices: FetchNotice[] = [];
  let progress: [number, number | undefined][] = [];

  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'meshnet-http-'));
    target = join(dir, 'model.gguf.part');
    server = new FileServer(FILE);
    await server.start();
    notices = [];
    progress = [];
  });

  afterEach(async () => {
    await server.stop();
    await rm(dir, { recursive: true, force: true });
  });

  async function fetchIt(job: Partial<FetchJob> = {}, init: HttpInit = {}, signal = new AbortController().signal): Promise<void> {
    await fetchByHttp({ kind: 'http', url: server.url() }, { target, ...job }, {
      signal,
      onProgress: (done, total) => {
        progress.push([done, total]);
        server.received(done);
      },
      onNotice: (notice) => { notices.push(notice); },
    }, { ...FAST, ...init });
  }

  async function isWhole(): Promise<void> {
    assert.ok((await readFile(target)).equals(FILE));
    assert.ok(!existsSync(`${target}.json`));
  }

  const fails = (work: Promise<unknown>, code: ErrorCode): Promise<void> =>
    assert.rejects(work, (err) => { assert.ok(isMeshnetError(err, code), String(err)); return true; });

  it('fetches a file and says how far it is', async () => {
    await fetchIt({ bytes: FILE.length, sha256: SHA256 });
    await isWhole();
    assert.deepEqual(progress.at(-1), [FILE.length, FILE.length]);
    assert.deepEqual(server.requests, [{ range: undefined, ifRange: undefined }]);
  });

  it('goes on where the connection broke, if it is still the same file', async () => {
    server.faults = [{ cutAfter: 100_000 }, { cutAfter: 50_000 }];
    await fetchIt();
    await isWhole();
    assert.equal(server.requests.length, 3);
    assert.deepEqual(server.requests.slice(1), [
      { range: 'bytes=100000-', ifRange: '"v1"' }, { range: 'bytes=150000-', ifRange: '"v1"' },
    ]);
    assert.deepEqual(notices.map(({ kind }) => kind), ['failed', 'failed']);
  });

  it('goes on in a later run', async () => {
    server.faults = [{ cutAfter: 150_000 }];
    await fails(fetchIt({}, { attempts: 1 }), 'DOWNLOAD_INCOMPLETE');
    const { size } = await stat(target);
    assert.ok(size > 0 && size < FILE.length);
    await fetchIt();
    await isWhole();
    assert.equal(server.requests[1]?.range, `bytes=${size}-`);
  });

  it('goes on by the time of change when there is no strong tag', async () => {
    server.etag = 'W/"weak"';
    server.lastModified = 'Mon, 01 Jan 2024 00:00:00 GMT';
    server.faults = [{ cutAfter: 100_000 }];
    await fetchIt();
    await isWhole();
    assert.equal(server.requests[1]?.ifRange, server.lastModified);
  });

  it('begins again when the file has changed', async () => {
    server.file = Buffer.alloc(FILE.length, 1);
    server.faults = [{ cutAfter: 100_000 }];
    await fails(fetchIt({}, { attempts: 1 }), 'DOWNLOAD_INCOMPLETE');
    server.file = FILE;
    server.etag = '"v2"';
    await fetchIt();
    await isWhole();
  });

  it('begins again when nothing proves that it is the same file', async () => {
    server.etag = undefined;
    server.faults = [{ cutAfter: 100_000 }];
    await fetchIt();
    await isWhole();
    assert.equal(server.requests[1]?.range, undefined);
  });

  it('goes on without a tag when the digest will tell', async () => {
    server.etag = undefined;
    server.faults = [{ cutAfter: 100_000 }];
    await fetchIt({ sha256: SHA256 });
    await isWhole();
    assert.match(server.requests[1]?.range ?? '', /^bytes=/);
  });

  it('does not go on with the part of another URL', async () => {
    await writeFile(target, Buffer.alloc(1000, 9));
    await writeFile(`${target}.json`, JSON.stringify({ url: 'https://elsewhere.invalid/x', validator: '"v1"' }));
    await fetchIt();
    await isWhole();
    assert.equal(server.requests[0]?.range, undefined);
  });

  it('begins again when the server knows no ranges', async () => {
    server.ranges = false;
    server.faults = [{ cutAfter: 100_000 }];
    await fetchIt();
    await isWhole();
  });

  it('begins again when the server answers with another range, or has no such one', async () => {
    for (const fault of [{ shift: 5 }, { status: 416 }]) {
      await rm(target, { force: true });
      server.faults = [{ cutAfter: 100_000 }, fault];
      await fetchIt();
      await isWhole();
    }
  });

  it('takes a part that was whole already without another request for its bytes', async () => {
    await fetchIt();
    await writeFile(`${target}.json`, JSON.stringify({ url: server.url(), validator: '"v1"', total: FILE.length }));
    await fetchIt();
    await isWhole();
    assert.equal(server.requests.length, 1);
  });

  it('throws a part away that is longer than the file', async () => {
    await writeFile(target, Buffer.alloc(FILE.length + 1));
    await writeFile(`${target}.json`, JSON.stringify({ url: server.url(), validator: '"v1"', total: FILE.length + 1 }));
    await fetchIt({ bytes: FILE.length });
    await isWhole();
  });

  it('gives a stalled connection up, says so, and tries again', async () => {
    server.faults = [{ stallAfter: 100_000 }];
    await fetchIt();
    await isWhole();
    assert.deepEqual(notices, [{ kind: 'stalled', attempt: 2, attempts: 5 }]);
  });

  it('gives a server up that never answers', async () => {
    server.faults = Array.from({ length: 3 }, () => ({ silent: true }));
    await fails(fetchIt({}, { attempts: 3 }), 'SOURCE_UNAVAILABLE');
    assert.equal(server.requests.length, 3);
    assert.deepEqual(notices.map(({ kind, attempt }) => [kind, attempt]), [['stalled', 2], ['stalled', 3]]);
  });

  it('counts only tries that bring nothing', async () => {
    server.faults = Array.from({ length: 6 }, () => ({ cutAfter: 20_000 }));
    await fetchIt({}, { attempts: 3 });
    await isWhole();
    assert.equal(server.requests.length, 7);
  });

  it('tries again after what may pass, and not after what does not', async () => {
    server.faults = [{ status: 503 }, { status: 429, headers: { 'retry-after': '0' } }, { status: 408 }];
    await fetchIt();
    await isWhole();
    for (const status of [400, 401, 403, 404, 410]) {
      server.requests.length = 0;
      server.faults = [{ status }];
      await rm(target, { force: true });
      await fails(fetchIt(), 'SOURCE_UNAVAILABLE');
      assert.equal(server.requests.length, 1);
    }
  });

  it('says what else can be used when the server is gone', async () => {
    const gone = new FileServer(FILE);
    await gone.start();
    const url = gone.url();
    await gone.stop();
    const fetching = fetchByHttp({ kind: 'http', url }, { target }, {
      signal: new AbortController().signal, onProgress: () => {}, onNotice: () => {},
    }, { ...FAST, attempts: 2 });
    await assert.rejects(fetching, (err) => isMeshnetError(err, 'SOURCE_UNAVAILABLE') && /--model test/.test(err.message));
  });

  it('refuses a file of another size before it takes a byte', async () => {
    await fails(fetchIt({ bytes: FILE.length - 1 }), 'DIGEST_MISMATCH');
    assert.equal(existsSync(target), false);
  });

  it('stops at the size that was promised when the server does not end', async () => {
    server.faults = [{ chunked: true, body: Buffer.alloc(FILE.length * 4) }];
    await fails(fetchIt({ bytes: FILE.length }), 'DIGEST_MISMATCH');
    assert.ok((await stat(target)).size <= FILE.length);
  });

  it('takes an answer without a length', async () => {
    server.faults = [{ chunked: true }];
    await fetchIt();
    await isWhole();
  });

  it('refuses an encoding that it did not ask for', async () => {
    server.faults = [{ headers: { 'content-encoding': 'gzip' } }];
    await fails(fetchIt(), 'SOURCE_UNAVAILABLE');
  });

  it('refuses to begin what the disk cannot hold', async () => {
    server.faults = [{ headers: { 'content-length': String(2 ** 41) } }];
    await assert.rejects(fetchIt(), (err) => isMeshnetError(err, 'DISK_FULL') && Number(err.details['missing']) > 0);
  });

  it('stops at once when asked, and keeps what it has', async () => {
    server.faults = [{ stallAfter: 100_000 }];
    const stop = new AbortController();
    const fetching = fetchByHttp({ kind: 'http', url: server.url() }, { target }, {
      signal: stop.signal,
      onProgress: (done) => { if (done > 0) { stop.abort(); } },
      onNotice: () => {},
    }, { ...FAST, stallMs: 60_000 });
    await fails(fetching, 'CANCELLED');
    assert.ok((await stat(target)).size > 0);
    await fetchIt();
    await isWhole();
  });

  it('follows a few redirects and not more', async () => {
    server.faults = Array.from({ length: 5 }, () => ({ status: 302, headers: { location: '/model.gguf' } }));
    await fetchIt();
    await isWhole();
    server.faults = Array.from({ length: 6 }, () => ({ status: 302, headers: { location: '/model.gguf' } }));
    await truncate(target, 0);
    await fails(fetchIt(), 'SOURCE_UNAVAILABLE');
  });

  it('is not led to another scheme or away from the loopback', async () => {
    const places = ['file:///etc/passwd', 'ftp://127.0.0.1/x', 'http://10.0.0.1/x', 'http://user:pw@127.0.0.1/x', 'http://['];
    for (const location of places) {
      server.faults = [{ status: 302, headers: { location } }];
      await fails(fetchIt(), 'SOURCE_UNAVAILABLE');
    }
  });

  it('dials no private address, whatever its spelling, unless the loopback is allowed', async () => {
    const { port } = server;
    const hosts = [
      `http://127.0.0.1:${port}`, `https://127.0.0.1:${port}`, `https://localhost:${port}`, `https://2130706433:${port}`,
      `https://0x7f.1:${port}`, `https://[::1]:${port}`, `https://[::ffff:127.0.0.1]:${port}`, 'https://10.1.2.3',
      'https://169.254.169.254', 'https://192.168.1.1', 'https://172.31.0.1', 'https://100.64.0.1', 'https://0.0.0.0',
      'https://[fe80::1]', 'https://[fd00::1]', 'https://[::]', 'http://example.org',
    ];
    for (const host of hosts) {
      const getting = get(`${host}/x`, {
        signal: new AbortController().signal, headers: {}, allowLoopback: false, headersTimeoutMs: 1000,
      });
      await assert.rejects(getting, { name: 'ForbiddenAddressError' }, host);
    }
    assert.equal(server.requests.length, 0);
  });
});
