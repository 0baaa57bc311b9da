import { MeshnetError } from '../errors.ts';
import type { AnswerPart } from './answer.ts';

/**
 * The parts of an answer on their way to a reader. Whoever makes them never waits; whoever reads them may, and gets those
 * that have come meanwhile in one.
 */
export class AnswerBuffer {
  readonly #limit: number;
  readonly #waiting: AnswerPart[] = [];
  #end: { failure?: unknown } | undefined;
  #wake = (): void => undefined;

  /** `limit`: parts that may wait, so that no maker can fill the memory. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** @throws {MeshnetError} READER_TOO_SLOW */
  push(part: AnswerPart): void {
    if (this.#waiting.length >= this.#limit) {
      throw new MeshnetError('READER_TOO_SLOW', 'the client is a whole answer behind', { details: { limit: this.#limit } });
    }
    this.#waiting.push(part);
    this.#wake();
  }

  /** No more parts. */
  end(): void {
    this.#end ??= {};
    this.#wake();
  }

  /** No more parts; the reader gets those that wait, then this. */
  fail(failure: unknown): void {
    this.#end ??= { failure };
    this.#wake();
  }

  /** The next part, made of up to `most` of those that wait; nothing after the last one. One reader at a time. */
  async take(most: number): Promise<AnswerPart | undefined> {
    while (this.#waiting.length === 0 && this.#end === undefined) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      await promise;
    }
    if (this.#waiting.length > 0) {
      return united(this.#waiting.splice(0, most));
    }
    if (this.#end !== undefined && 'failure' in this.#end) {
      throw this.#end.failure;
    }
    return undefined;
  }
}

function united(parts: readonly AnswerPart[]): AnswerPart {
  return { text: parts.map(({ text }) => text).join(''), tokens: parts.flatMap(({ tokens }) => tokens) };
}
