/** A file behind an HTTP server, fetched with resume. */
import { open, readFile, rm, stat, writeFile, type FileHandle } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { MeshnetError, isMeshnetError } from '../errors.ts';
import { abortError, throwIfAborted } from './abort.ts';
import { assertSpace, fileError } from './atomic-file.ts';
import { ForbiddenAddressError, get } from './http-get.ts';
import { sourceLabel, unavailable, type FetchJob, type FetchOptions, type Source } from './source.ts';

type HttpSource = Extract<Source, { kind: 'http' }>;

export interface HttpInit {
  /** A URL may name this machine itself, and use plain HTTP then. @default false */
  allowLoopback?: boolean;
  /** Without a byte for this long a try is given up, milliseconds. @default 5000 */
  stallMs?: number;
  /** Until the server answers, milliseconds. @default 15000 */
  headersTimeoutMs?: number;
  /** Tries in a row that bring nothing. @default 5 */
  attempts?: number;
  /** Before the second try, milliseconds; doubles up to 16 times that. @default 500 */
  backoffMs?: number;
}

/** However much each try brings. */
const MAX_TRIES = 100;
const MAX_FILE_BYTES = 2 ** 42;
const MAX_RETRY_AFTER_MS = 30_000;

/** What is kept beside a part, so that it is only continued with bytes of the same file. */
interface PartState {
  url: string;
  validator: string | undefined;
  total: number | undefined;
}

/** Try again, after this much time when the server said so. */
class RetryError extends Error {
  override readonly name = 'RetryError';
  readonly stalled: boolean;
  readonly afterMs: number;
  constructor(message: string, { cause, stalled = false, afterMs = 0 }: { cause?: unknown; stalled?: boolean; afterMs?: number } = {}) {
    super(message, { cause });
    this.stalled = stalled;
    this.afterMs = afterMs;
  }
}

/**
 * Leaves the whole file at `job.target`, which may hold its beginning from an earlier run.
 *
 * @throws {MeshnetError} SOURCE_UNAVAILABLE when nothing could be had, DOWNLOAD_INCOMPLETE when a part is here and a
 * later run can go on, DIGEST_MISMATCH when the server has a file of another size, DISK_FULL, CANCELLED
 */
export async function fetchByHttp(
  source: HttpSource,
  job: FetchJob,
  options: FetchOptions,
  init: HttpInit = {},
): Promise<void> {
  const { attempts = 5, backoffMs = 500 } = init;
  const download = new Download(source, job, options, init);
  let failures = 0;
  for (let tries = 1; ; tries++) {
    const before = await sizeOf(job.target);
    try {
      await download.once();
      await rm(statePath(job.target), { force: true });
      return;
    } catch (err) {
      throwIfAborted(options.signal);
      if (!(err instanceof RetryError)) {
        throw err instanceof ForbiddenAddressError ? unavailable(source, err.message, { cause: err }) : fileError(err, job.target);
      }
      const size = await sizeOf(job.target);
      failures = size > before ? 1 : failures + 1;
      if (failures >= attempts || tries >= MAX_TRIES) {
        throw giveUp(source, err, { done: size, total: job.bytes ?? download.total, part: job.target, tries });
      }
      options.onNotice({ kind: err.stalled ? 'stalled' : 'failed', attempt: failures + 1, attempts });
      await pause(Math.max(err.afterMs, backoffMs * 2 ** Math.min(failures - 1, 4)), options.signal);
    }
  }
}

class Download {
  readonly #source: HttpSource;
  readonly #job: FetchJob;
  readonly #options: FetchOptions;
  readonly #init: HttpInit;
  /** Length of the whole file, once the server has said it. */
  total: number | undefined;

  constructor(source: HttpSource, job: FetchJob, options: FetchOptions, init: HttpInit) {
    this.#source = source;
    this.#job = job;
    this.#options = options;
    this.#init = init;
  }

  /** One request, and the bytes that it brings. */
  async once(): Promise<void> {
    const { target, bytes } = this.#job;
    const { offset, validator } = await this.#resumePoint();
    if (offset > 0 && offset === (bytes ?? this.total)) {
      this.#options.onProgress(offset, offset);
      return;
    }
    const answer = await this.#request(offset, validator);
    try {
      const from = await this.#startOf(answer, offset);
      this.#checkTotal(target);
      await assertSpace(dirname(target), (this.total ?? bytes ?? 0) - from);
      await this.#writeState(answer);
      await this.#receive(answer, from);
    } finally {
      answer.destroy();
    }
  }

  /** Where to go on: at the end of a part that is known to be of the same file, else at 0. */
  async #resumePoint(): Promise<{ offset: number; validator: string | undefined }> {
    const { target, sha256, bytes } = this.#job;
    const offset = await sizeOf(target);
    const state = await readState(target);
    const isSame = state?.url === this.#source.url && (state.validator !== undefined || sha256 !== undefined);
    if (offset === 0 || !isSame || offset > (bytes ?? MAX_FILE_BYTES)) {
      return { offset: 0, validator: undefined };
    }
    this.total = state.total;
    return { offset, validator: state.validator };
  }

  async #request(offset: number, validator: string | undefined): Promise<IncomingMessage> {
    const { allowLoopback = false, headersTimeoutMs = 15_000 } = this.#init;
    const headers: Record<string, string> = {};
    if (offset > 0) {
      headers['range'] = `bytes=${offset}-`;
      if (validator !== undefined) {
        headers['if-range'] = validator;
      }
    }
    try {
      return await get(this.#source.url, { signal: this.#options.signal, headers, allowLoopback, headersTimeoutMs });
    } catch (err) {
      if (err instanceof ForbiddenAddressError) {
        throw err;
      }
      throw new RetryError('the server cannot be reached', { cause: err, stalled: isMeshnetError(err, 'DEADLINE_EXCEEDED') });
    }
  }

  /** The file position of the first byte of this answer's body. */
  async #startOf(answer: IncomingMessage, offset: number): Promise<number> {
    const { statusCode = 0, headers } = answer;
    if (headers['content-encoding'] !== undefined && headers['content-encoding'] !== 'identity') {
      throw unavailable(this.#source, 'the server sends the file in an encoding that was not asked for');
    }
    if (statusCode === 200) {
      this.total = lengthOf(headers['content-length']);
      return 0;
    }
    if (statusCode === 206 && offset > 0) {
      const range = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(headers['content-range'] ?? '');
      if (Number(range?.[1]) !== offset) {
        await rm(this.#job.target, { force: true });
        throw new RetryError('the server answers with another range');
      }
      this.total = lengthOf(range?.[2]) ?? this.total;
      return offset;
    }
    if (statusCode === 416) {
      // The part is as long as the file or longer, so it is none of it: begin again.
      await rm(this.#job.target, { force: true });
      throw new RetryError('the server has no such range');
    }
    if (statusCode === 408 || statusCode === 429 || statusCode >= 500) {
      const seconds = Number(headers['retry-after'] ?? 0);
      const afterMs = Number.isFinite(seconds) ? Math.min(Math.max(seconds, 0) * 1000, MAX_RETRY_AFTER_MS) : 0;
      throw new RetryError(`the server answers ${statusCode}`, { afterMs });
    }
    throw unavailable(this.#source, `the server answers ${statusCode}`, { details: { status: statusCode } });
  }

  #checkTotal(target: string): void {
    const { bytes } = this.#job;
    if (this.total !== undefined && (this.total > MAX_FILE_BYTES || (bytes !== undefined && this.total !== bytes))) {
      throw new MeshnetError('DIGEST_MISMATCH', 'the server has a file of another size', {
        details: { source: sourceLabel(this.#source), bytes: this.total, expected: bytes, part: target },
      });
    }
  }

  async #writeState(answer: IncomingMessage): Promise<void> {
    const { etag } = answer.headers;
    // A weak tag says nothing about bytes.
    const validator = etag !== undefined && !etag.startsWith('W/') ? etag : answer.headers['last-modified'];
    const state: PartState = { url: this.#source.url, validator, total: this.total };
    await writeFile(statePath(this.#job.target), JSON.stringify(state), { mode: 0o600 });
  }

  async #receive(answer: IncomingMessage, from: number): Promise<void> {
    const { onProgress, signal } = this.#options;
    const { stallMs = 5000 } = this.#init;
    const limit = this.#job.bytes ?? this.total ?? MAX_FILE_BYTES;
    const handle = await open(this.#job.target, from === 0 ? 'w' : 'r+', 0o644);
    const timer = setTimeout(() => answer.destroy(new RetryError('no bytes for a while', { stalled: true })), stallMs);
    let at = from;
    try {
      onProgress(at, this.total);
      for await (const chunk of answer as AsyncIterable<Buffer>) {
        throwIfAborted(signal);
        if (at + chunk.length > limit) {
          throw new MeshnetError('DIGEST_MISMATCH', 'the server sends more than the file has', {
            details: { source: sourceLabel(this.#source), expected: limit },
          });
        }
        await writeAll(handle, chunk, at);
        at += chunk.length;
        timer.refresh();
        onProgress(at, this.total);
      }
    } catch (err) {
      const isOurs = err instanceof RetryError || isMeshnetError(err) || isFileError(err);
      throw isOurs ? err : new RetryError('the connection broke', { cause: err });
    } finally {
      clearTimeout(timer);
      await handle.close();
    }
    if (!answer.complete || (this.total !== undefined && at < this.total)) {
      throw new RetryError('the answer ended before the file');
    }
  }
}

function giveUp(
  source: HttpSource,
  err: RetryError,
  { done, total, part, tries }: { done: number; total: number | undefined; part: string; tries: number },
): MeshnetError {
  const reason = err.cause instanceof Error ? `${err.message}: ${err.cause.message}` : err.message;
  if (done === 0) {
    return unavailable(source, 'the file could not be downloaded', { cause: err, details: { reason, tries } });
  }
  return new MeshnetError('DOWNLOAD_INCOMPLETE', undefined, {
    cause: err, details: { source: sourceLabel(source), done, total, part, reason, tries },
  });
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  // Between half and all of it, so that many clients do not come back at once.
  const jittered = ms * (0.5 + Math.random() / 2);
  try {
    await delay(jittered, undefined, { signal });
  } catch {
    throw abortError(signal);
  }
}

async function writeAll(handle: FileHandle, chunk: Buffer, position: number): Promise<void> {
  for (let done = 0; done < chunk.length;) {
    const { bytesWritten } = await handle.write(chunk, done, chunk.length - done, position + done);
    done += bytesWritten;
  }
}

function isFileError(err: unknown): boolean {
  const { code, syscall } = err as NodeJS.ErrnoException;
  return syscall === 'write' && (code === 'ENOSPC' || code === 'EDQUOT' || code === 'EIO' || code === 'EFBIG');
}

function lengthOf(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

function statePath(target: string): string {
  return `${target}.json`;
}

async function readState(target: string): Promise<PartState | undefined> {
  try {
    const state = JSON.parse(await readFile(statePath(target), 'utf8')) as Partial<PartState>;
    if (typeof state.url !== 'string') {
      return undefined;
    }
    return {
      url: state.url,
      validator: typeof state.validator === 'string' ? state.validator : undefined,
      total: typeof state.total === 'number' ? state.total : undefined,
    };
  } catch {
    return undefined;
  }
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch {
    return 0;
  }
}
