import { MeshnetError } from '../errors.ts';

/** Who waits sets the clock: one of the two, or both, is always given. */
export type WaitOptions =
  | { readonly signal: AbortSignal; readonly timeoutMs?: number }
  | { readonly timeoutMs: number; readonly signal?: AbortSignal };

/**
 * The error that an aborted signal stands for.
 *
 * DEADLINE_EXCEEDED when a timeout aborted it, the reason itself when that is one of ours, otherwise CANCELLED.
 */
export function abortError(signal: AbortSignal, what: string): MeshnetError {
  const reason: unknown = signal.reason;
  if (reason instanceof MeshnetError) {
    return reason;
  }
  if (reason instanceof DOMException && reason.name === 'TimeoutError') {
    return new MeshnetError('DEADLINE_EXCEEDED', `${what} took too long`, { cause: reason, details: { what } });
  }
  return new MeshnetError('CANCELLED', `${what} was withdrawn`, { cause: reason, details: { what } });
}

/**
 * `work`, or its deadline or abort when that comes first; `work` itself goes on, so the caller stops it.
 *
 * @throws {MeshnetError} DEADLINE_EXCEEDED, CANCELLED or the reason of the signal
 */
export function within<T>(work: Promise<T>, what: string, options: WaitOptions): Promise<T> {
  const { signal, timeoutMs } = options;
  return new Promise<T>((resolve, reject) => {
    const onAbort = (): void => {
      finish();
      reject(abortError(signal as AbortSignal, what));
    };
    const timer = timeoutMs === undefined ? undefined : setTimeout(() => {
      finish();
      reject(new MeshnetError('DEADLINE_EXCEEDED', `${what} took longer than ${timeoutMs} ms`, {
        details: { what, timeoutMs },
      }));
    }, timeoutMs);
    const finish = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
    };
    work.finally(finish).then(resolve, reject);
    if (signal?.aborted === true) {
      onAbort();
    } else {
      signal?.addEventListener('abort', onAbort);
    }
  });
}

/** One signal for a library that takes only a signal. */
export function signalOf({ signal, timeoutMs }: WaitOptions): AbortSignal {
  if (timeoutMs === undefined) {
    return signal as AbortSignal;
  }
  const timeout = AbortSignal.timeout(timeoutMs);
  return signal === undefined ? timeout : AbortSignal.any([signal, timeout]);
}
