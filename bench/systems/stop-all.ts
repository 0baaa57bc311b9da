import { MeshnetError, toMeshnetError } from '../../src/errors.ts';

/** Something that was started may still run: whatever is measured beside it says nothing. */
export class NotStoppedError extends MeshnetError {
  constructor(cause: unknown) {
    super('INTERNAL', `could not be stopped: ${toMeshnetError(cause).message}`, { cause });
  }
}

/**
 * Stops each of them, also when another one's stop fails.
 * @throws {NotStoppedError} of the first failure, once all have been tried
 */
export async function stopAll(parts: readonly { stop(): Promise<unknown> }[]): Promise<void> {
  const results = await Promise.allSettled(parts.map((part) => part.stop()));
  const failed = results.find(({ status }) => status === 'rejected');
  if (failed?.status === 'rejected') {
    throw failed.reason instanceof NotStoppedError ? failed.reason : new NotStoppedError(failed.reason);
  }
}
