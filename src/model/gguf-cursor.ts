import type { FileHandle } from 'node:fs/promises';
import { MeshnetError, type ErrorDetails } from '../errors.ts';

const WINDOW_BYTES = 1024 * 1024;

/** Little-endian reading of a file from its start, through one window. Never reads behind `end`. */
export class GgufCursor {
  readonly #handle: FileHandle;
  readonly #end: number;
  readonly #buffer = Buffer.alloc(WINDOW_BYTES);
  #window = this.#buffer.subarray(0, 0);
  /** File position of the window's first byte. */
  #base = 0;
  #at = 0;

  /** `end` is the length of the file, or the most of it that a header may fill. */
  constructor(handle: FileHandle, end: number) {
    this.#handle = handle;
    this.#end = end;
  }

  get offset(): number {
    return this.#base + this.#at;
  }

  get remaining(): number {
    return this.#end - this.offset;
  }

  /** Error for what stands at the cursor. */
  corrupt(field: string, reason: string, details: ErrorDetails = {}): MeshnetError {
    return corruptModel(field, reason, { offset: this.offset, ...details });
  }

  async u32(field: string): Promise<number> {
    const at = await this.#take(4, field);
    return this.#window.readUInt32LE(at);
  }

  async u64(field: string): Promise<bigint> {
    const at = await this.#take(8, field);
    return this.#window.readBigUInt64LE(at);
  }

  /** An unsigned 64-bit count or size up to `limit`. */
  async count(field: string, limit: number): Promise<number> {
    const from = this.offset;
    const value = await this.u64(field);
    if (value > BigInt(limit)) {
      throw corruptModel(field, 'is above its limit', { offset: from, value, limit });
    }
    return Number(value);
  }

  /** A length-prefixed string of at most `limit` bytes, as raw bytes. */
  async string(field: string, limit: number): Promise<Buffer> {
    const length = await this.count(field, limit);
    if (length <= WINDOW_BYTES) {
      const at = await this.#take(length, field);
      return Buffer.from(this.#window.subarray(at, at + length));
    }
    if (length > this.remaining) {
      throw this.corrupt(field, 'is cut short', { needed: length, remaining: this.remaining });
    }
    const bytes = Buffer.alloc(length);
    await this.#readInto(bytes, this.offset, field);
    this.#seek(this.offset + length);
    return bytes;
  }

  /** Bytes of one fixed-size value. */
  async bytes(length: number, field: string): Promise<Buffer> {
    const at = await this.#take(length, field);
    return this.#window.subarray(at, at + length);
  }

  skip(length: number, field: string): void {
    if (length > this.remaining) {
      throw this.corrupt(field, 'is cut short', { needed: length, remaining: this.remaining });
    }
    this.#seek(this.offset + length);
  }

  /** Steps over `count` length-prefixed strings. */
  async skipStrings(count: number, field: string, limit: number): Promise<void> {
    for (let i = 0; i < count; i++) {
      // Most lengths are in the window: hundreds of thousands of awaits would cost more than the reading.
      if (this.#window.length - this.#at >= 8) {
        const length = this.#window.readBigUInt64LE(this.#at);
        if (length <= BigInt(limit) && this.#at + 8 + Number(length) <= this.#window.length) {
          this.#at += 8 + Number(length);
          continue;
        }
      }
      this.skip(await this.count(field, limit), field);
    }
  }

  /** Makes `length` bytes lie in the window and steps over them; returns where they begin in it. */
  async #take(length: number, field: string): Promise<number> {
    if (length > this.remaining) {
      throw this.corrupt(field, 'is cut short', { needed: length, remaining: this.remaining });
    }
    if (this.#window.length - this.#at < length) {
      const from = this.offset;
      const window = this.#buffer.subarray(0, Math.min(WINDOW_BYTES, this.#end - from));
      await this.#readInto(window, from, field);
      this.#window = window;
      this.#base = from;
      this.#at = 0;
    }
    const at = this.#at;
    this.#at += length;
    return at;
  }

  async #readInto(target: Buffer, from: number, field: string): Promise<void> {
    let done = 0;
    while (done < target.length) {
      const { bytesRead } = await this.#handle.read(target, done, target.length - done, from + done);
      if (bytesRead === 0) {
        throw corruptModel(field, 'is cut short: the file ends before its size', { offset: from + done });
      }
      done += bytesRead;
    }
  }

  #seek(offset: number): void {
    const inWindow = offset - this.#base;
    if (inWindow <= this.#window.length) {
      this.#at = inWindow;
    } else {
      this.#window = this.#buffer.subarray(0, 0);
      this.#base = offset;
      this.#at = 0;
    }
  }
}

/** MODEL_CORRUPT that names the field. */
export function corruptModel(field: string, reason: string, details: ErrorDetails = {}): MeshnetError {
  return new MeshnetError('MODEL_CORRUPT', `${field} ${reason}`, { details: { field, ...details } });
}
