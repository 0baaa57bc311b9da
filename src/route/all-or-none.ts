import type { AbortOptions } from '../worker/packet-duplex.ts';
import { MeshnetError } from '../errors.ts';

/**
 * What all of `works` give, begun at once. The first failure withdraws the others; when all have ended it is thrown.
 * `onDone` gets each result as it comes, for who has to clean up after a failure.
 */
export async function allOrNone<T>(
  works: readonly ((options: AbortOptions) => Promise<T>)[], options: AbortOptions, onDone: (result: T) => void = () => undefined,
): Promise<T[]> {
  const failed = new AbortController();
  const signal = AbortSignal.any([options.signal, failed.signal]);
  let first: { err: unknown } | undefined;
  const results = await Promise.all(works.map(async (work) => {
    try {
      const result = await work({ signal });
      onDone(result);
      return result;
    } catch (err) {
      first ??= { err };
      failed.abort(new MeshnetError('CANCELLED', 'another stage failed'));
      return undefined;
    }
  }));
  if (first !== undefined) {
    throw first.err;
  }
  return results as T[];
}
