import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect as connectTcp, type Socket } from 'node:net';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import type { NodeProcess } from '../../src/cli/node-process.ts';
import { DType, SeamEnd } from './spec-client/messages.ts';
import { post, readAnswer } from './support/answer-stream.ts';
import { apiOf, healthOf, idle, Mesh, READY_MS, resolveModel } from './support/mesh.ts';
import { entryOpen, newLane, Stranger, type AdmitInit, type RawSeam } from './support/stranger.ts';

const PROTOCOLS = ['/meshnet/admit/1', '/meshnet/seam/1', '/meshnet/directory/1', '/meshnet/header/1'];
const MESSAGE_BYTES_MAX = 1024 * 1024;

describe('mesh/bad-input', function () {
  this.timeout(60_000);
  let mesh: Mesh;
  let gateway: NodeProcess;
  let head: NodeProcess;
  let tail: NodeProcess;
  let digest: Uint8Array;
  let stranger: Stranger;
  let expected = '';
  let workers: (number | undefined)[] = [];

  const workerPids = async (): Promise<(number | undefined)[]> => await Promise.all([head, tail].map(async (shard) => (await healthOf(shard))?.shard?.workerPid));

  before(async function () {
    this.timeout(2 * READY_MS);
    mesh = new Mesh('bad-input');
    const model = await resolveModel();
    ({ digest } = model);
    gateway = await mesh.gateway(model);
    [head, tail] = await mesh.halves(gateway);
    expected = (await readAnswer(await post(apiOf(gateway)))).text;
    workers = await workerPids();
    stranger = await Stranger.of(head.listening.addresses[0] ?? '');
  });

  after(async function () {
    this.timeout(60_000);
    await stranger?.stop();
    await mesh?.stop();
  });

  /** Whatever has come in: the same workers give the same answer, and nothing stays reserved. */
  afterEach(async () => {
    await idle(head, tail);
    assert.equal((await readAnswer(await post(apiOf(gateway)))).text, expected);
    assert.deepEqual(await workerPids(), workers);
  });

  /** What the head would admit. */
  const headAdmit = (over: Partial<AdmitInit> = {}): AdmitInit => ({
    version: 1, lane: newLane(0), nStages: 2, modelDigest: digest, layerFirst: 0, layerLast: 4, positions: 64, deadlineMs: 5000,
    seams: [{ end: SeamEnd.ENTRY, peerId: stranger.peerId }, { end: SeamEnd.TO_NEXT, peerId: tail.listening.peer_id }],
    prefillDtype: DType.F32, decodeDtype: DType.F32, ...over,
  });

  describe('on the protocols between nodes', () => {
    const lengths = { 'an oversize length': [0xff, 0xff, 0xff, 0x7f], 'a length that never ends': Array<number>(16).fill(0xff) };
    for (const [name, bytes] of Object.entries(lengths)) {
      it(`ends a stream that begins with ${name}`, async () => {
        for (const protocol of PROTOCOLS) {
          await stranger.throwAt(protocol, Uint8Array.from(bytes));
        }
      });
    }

    it('ends a stream of garbage', async () => {
      for (const protocol of PROTOCOLS) {
        await stranger.throwAt(protocol, Buffer.concat([Uint8Array.of(64), randomBytes(64)]));
      }
    });
  });

  describe('at admission', () => {
    const refusals: [string, string, () => Partial<AdmitInit>][] = [
      ['another version', 'VERSION_UNSUPPORTED', () => ({ version: 9 })],
      ['another model', 'MODEL_UNKNOWN', () => ({ modelDigest: randomBytes(32) })],
      ['a digest that is none', 'MALFORMED', () => ({ modelDigest: randomBytes(5) })],
      ['layers that are not served', 'RANGE_INVALID', () => ({ layerLast: 5 })],
      ['layers behind the last', 'RANGE_INVALID', () => ({ layerLast: 4000 })],
      ['a session id that is none', 'MALFORMED', () => ({ lane: { session: randomBytes(3), epoch: 1, stage: 0 } })],
      ['no epoch', 'MALFORMED', () => ({ lane: { session: randomBytes(16), epoch: 0, stage: 0 } })],
      ['a stage outside the route', 'LIMIT_EXCEEDED', () => ({ lane: newLane(7) })],
      ['too many stages', 'LIMIT_EXCEEDED', () => ({ nStages: 1000 })],
      ['f16 in prefill', 'NOT_CERTIFIED', () => ({ prefillDtype: DType.F16 })],
      ['q8_0 in decode', 'NOT_CERTIFIED', () => ({ decodeDtype: DType.Q8_0 })],
      ['no seams', 'MALFORMED', () => ({ seams: [] })],
      ['an entry for somebody else', 'PEER_MISMATCH', () => ({
        seams: [{ end: SeamEnd.ENTRY, peerId: gateway.listening.peer_id }, { end: SeamEnd.TO_NEXT, peerId: tail.listening.peer_id }],
      })],
      ['no positions', 'LIMIT_EXCEEDED', () => ({ positions: 0 })],
      ['positions beyond any context', 'LIMIT_EXCEEDED', () => ({ positions: 4_000_000_000 })],
    ];
    for (const [name, code, over] of refusals) {
      it(`refuses ${name} with ${code}`, async () => {
        const outcome = await stranger.admit(headAdmit(over()));
        outcome.leave();
        assert.equal(outcome.code, code);
      });
    }

    it('refuses a lane twice and more positions than there are cells', async () => {
      const lane = newLane(0);
      const first = await stranger.admit(headAdmit({ lane }));
      assert.equal(first.code, undefined);
      const again = await stranger.admit(headAdmit({ lane }));
      assert.equal(again.code, 'LANE_EXISTS');
      const big = await stranger.admit(headAdmit({ positions: 4096 }));
      assert.equal(big.code, 'NO_CAPACITY');
      for (const outcome of [first, again, big]) {
        outcome.leave();
      }
    });
  });

  describe('on a bridged seam', () => {
    it('refuses a lane, an end, a ticket and a peer that admission did not name', async () => {
      const lane = newLane(0);
      const { admitted, leave } = await stranger.admit(headAdmit({ lane }));
      assert.ok(admitted !== undefined);
      const ticket = admitted.tickets.find(({ end }) => end === SeamEnd.ENTRY)?.ticket ?? new Uint8Array();
      const open = { version: 1, lane, end: SeamEnd.ENTRY, ticket };
      const codeOf = async (over: object, who = stranger): Promise<string | undefined> => (await who.bridge({ ...open, ...over })).code;
      assert.equal(await codeOf({ version: 2 }), 'VERSION_UNSUPPORTED');
      assert.equal(await codeOf({ lane: newLane(0) }), 'LANE_NOT_OPEN');
      assert.equal(await codeOf({ lane: { ...lane, epoch: 2 } }), 'LANE_NOT_OPEN');
      assert.equal(await codeOf({ end: SeamEnd.LOOP }), 'ROLE_INVALID');
      assert.equal(await codeOf({ ticket: randomBytes(32) }), 'TICKET_INVALID');
      const other = await Stranger.of(head.listening.addresses[0] ?? '');
      assert.equal(await codeOf({}, other), 'PEER_MISMATCH');
      await other.stop();
      assert.equal(await codeOf({}), undefined, 'the right one is let in after all of these');
      leave();
    });

    const turn = { turn: 1, nTokens: 2, maxTokens: 4, sampling: {}, logprobs: -1 };
    const faults: [string, string[], (seam: RawSeam, lane: ReturnType<typeof newLane>) => Promise<void>][] = [
      ['bytes that are no packet', ['MALFORMED'], (seam) => seam.send(randomBytes(200))],
      ['a frame of another lane', ['LANE_NOT_OPEN'], (seam) => seam.send(seam.frame({ lane: newLane(0), seq: 1n, turn }))],
      ['a frame of another epoch', ['LANE_NOT_OPEN', 'EPOCH_STALE'], (seam, lane) => seam.send(seam.frame({ lane: { ...lane, epoch: 7 }, seq: 1n, turn }))],
      ['a skipped frame', ['SEQ_GAP'], (seam) => seam.send(seam.frame({ seq: 5n, turn }))],
      ['a turn that starts behind the end', ['TURN_INVALID', 'POSITION_INVALID'], (seam) => seam.send(seam.frame({ seq: 1n, turn: { ...turn, start: 40 } }))],
      ['a turn without tokens', ['TURN_INVALID'], (seam) => seam.send(seam.frame({ seq: 1n, turn: { ...turn, nTokens: 0 } }))],
      ['a turn longer than the session', ['TURN_INVALID', 'CONTEXT_FULL'], (seam) => seam.send(seam.frame({ seq: 1n, turn: { ...turn, nTokens: 5000 } }))],
    ];
    for (const [name, codes, fault] of faults) {
      it(`answers ${name} with ${codes[0]}`, async () => {
        const lane = newLane(0);
        const { admitted, leave } = await stranger.admit(headAdmit({ lane }));
        assert.ok(admitted !== undefined);
        const seam = await stranger.entry(lane, admitted);
        await seam.send(seam.frame(entryOpen(digest, 64)));
        await fault(seam, lane);
        const code = await seam.refusal();
        leave();
        assert.ok(codes.includes(code), code);
      });
    }

    it('answers an Open for another model with MODEL_MISMATCH', async () => {
      const lane = newLane(0);
      const { admitted, leave } = await stranger.admit(headAdmit({ lane }));
      assert.ok(admitted !== undefined);
      const seam = await stranger.entry(lane, admitted);
      await seam.send(seam.frame(entryOpen(randomBytes(32), 64)));
      assert.equal(await seam.refusal(), 'MODEL_MISMATCH');
      leave();
    });

    it('ends a packet above its limit', async () => {
      const lane = newLane(0);
      const { admitted, leave } = await stranger.admit(headAdmit({ lane }));
      assert.ok(admitted !== undefined);
      const seam = await stranger.entry(lane, admitted);
      await seam.send(Buffer.alloc(MESSAGE_BYTES_MAX + 1));
      assert.ok(['FRAME_TOO_LARGE', 'STREAM_ENDED', 'MALFORMED'].includes(await seam.refusal()));
      leave();
    });
  });

  describe('on the seam port', () => {
    /** All that the other end sends until it ends the connection. */
    const heard = async (socket: Socket): Promise<string> => {
      let bytes = Buffer.alloc(0);
      socket.on('data', (chunk) => { bytes = Buffer.concat([bytes, chunk]); });
      const gone = Promise.race(['end', 'close', 'error'].map((event) => once(socket, event, { signal: AbortSignal.timeout(20_000) }).catch((err: Error) => {
        if (err.name === 'AbortError') {
          throw new Error('the seam listener keeps a stranger');
        }
      })));
      await gone;
      socket.destroy();
      return bytes.toString('latin1');
    };

    /** The listener is open as long as somebody holds a ticket. */
    const withListener = async (knock: (port: number) => Promise<void>): Promise<void> => {
      const { leave, code } = await stranger.admit(headAdmit());
      assert.equal(code, undefined);
      const port = (await healthOf(head))?.shard?.seamPort ?? 0;
      await knock(port);
      leave();
    };

    it('takes no plaintext and no garbage', () => withListener(async (port) => {
      for (const bytes of [randomBytes(512), Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), Buffer.from('GET / HTTP/1.1\r\nHost: x\r\n\r\n')]) {
        const socket = connectTcp(port, '127.0.0.1');
        socket.on('error', () => undefined);
        await once(socket, 'connect');
        socket.write(bytes);
        // A TLS alert at most.
        assert.ok((await heard(socket)).length <= 16);
      }
    }));

    it('lets no stranger in, with a certificate or without one', () => withListener(async (port) => {
      const files = ['key.pem', 'cert.pem'].map((name) => join(mesh.root, name)) as [string, string];
      execFileSync('openssl', [
        'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1', '-subj', '/CN=seam.meshnet',
        '-keyout', files[0], '-out', files[1],
      ], { stdio: 'ignore' });
      const [key, cert] = files.map((file) => readFileSync(file));
      for (const credentials of [{}, { key, cert }]) {
        const socket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false, ALPNProtocols: ['h2'], servername: 'seam.meshnet', ...credentials });
        socket.on('error', () => undefined);
        socket.once('secureConnect', () => socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'));
        assert.equal(await heard(socket), '', 'nothing of HTTP/2 is said to a stranger');
      }
    }));
  });
});
