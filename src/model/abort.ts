import { MeshnetError } from '../errors.ts';

/** The error for a signal that has fired: its own reason when that is typed, else CANCELLED. */
export function abortError(signal: AbortSignal): MeshnetError {
  const reason: unknown = signal.reason;
  return reason instanceof MeshnetError ? reason : new MeshnetError('CANCELLED', undefined, { cause: reason });
}

/** @throws {MeshnetError} CANCELLED, or the signal's typed reason */
export function throwIfAborted(signal: AbortSignal): void {
  if (signal.aborted) {
    throw abortError(signal);
  }
}
