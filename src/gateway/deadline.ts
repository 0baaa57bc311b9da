import { MeshnetError } from '../errors.ts';
import type { AbortOptions } from './backend.ts';

/**
 * What `work` gives, unless the signal or the limit comes first: then the reason of the signal, or DEADLINE_EXCEEDED.
 * `work` is told by its own signal and is not waited for any longer.
 */
export async function within<T>(
  ms: number,
  what: string,
  work: (options: AbortOptions) => Promise<T>,
  options: AbortOptions,
): Promise<T> {
  options.signal.throwIfAborted();
  const controller = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  let onAbort: (() => void) | undefined;
  const ended = new Promise<never>((_resolve, reject) => {
    const stop = (reason: unknown): void => {
      controller.abort(reason);
      reject(reason);
    };
    onAbort = () => stop(options.signal.reason);
    options.signal.addEventListener('abort', onAbort, { once: true });
    timer = setTimeout(() => {
      stop(new MeshnetError('DEADLINE_EXCEEDED', `${what} did not end in time`, { details: { limitMs: ms } }));
    }, ms);
  });
  try {
    return await Promise.race([work({ signal: controller.signal }), ended]);
  } finally {
    clearTimeout(timer);
    if (onAbort !== undefined) {
      options.signal.removeEventListener('abort', onAbort);
    }
  }
}

/**
 * The same for every item of an iteration. Whoever leaves this leaves the iteration too, and does not wait for it when
 * it is the iteration that hangs.
 */
export async function* eachWithin<T>(
  ms: number,
  what: string,
  items: AsyncIterable<T>,
  options: AbortOptions,
): AsyncGenerator<T> {
  const iterator = items[Symbol.asyncIterator]();
  let finished = false;
  try {
    while (true) {
      const next = await within(ms, what, () => iterator.next(), options);
      if (next.done === true) {
        finished = true;
        return;
      }
      yield next.value;
    }
  } finally {
    if (!finished) {
      // Its own failure, if any, is what has been thrown already.
      iterator.return?.().catch(() => undefined);
    }
  }
}
