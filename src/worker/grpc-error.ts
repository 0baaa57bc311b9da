import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { Metadata, status, type ServiceError, type StatusObject } from '@grpc/grpc-js';
import { fromWireError, toWireError } from '../domain/wire-error.ts';
import { type ErrorCode, MeshnetError, toMeshnetError } from '../errors.ts';
import { ErrorSchema } from '../proto/seam_pb.js';

/** Trailing metadata that holds a serialised `meshnet.seam.v1.Error`. */
const ERROR_KEY = 'meshnet-error-bin';

const CODES = new Map<status, ErrorCode>([
  [status.CANCELLED, 'CANCELLED'],
  [status.DEADLINE_EXCEEDED, 'DEADLINE_EXCEEDED'],
  [status.RESOURCE_EXHAUSTED, 'RESOURCE_EXHAUSTED'],
  [status.UNAVAILABLE, 'WORKER_LOST'],
]);

/** What a call to a process beside the node ended with, in our words. */
export function fromCallError(err: unknown, method: string): MeshnetError {
  if (!isServiceError(err)) {
    return toMeshnetError(err);
  }
  const refusal = err.metadata?.get(ERROR_KEY)[0];
  if (refusal instanceof Buffer) {
    try {
      return fromWireError(fromBinary(ErrorSchema, refusal));
    } catch (cause) {
      return new MeshnetError('MALFORMED', `the process answered ${method} with an unreadable error`, { cause });
    }
  }
  const details = { method, status: status[err.code] ?? err.code };
  return new MeshnetError(CODES.get(err.code) ?? 'INTERNAL', err.details || err.message, { cause: err, details });
}

/** `err` as the end of a call that this process serves. */
export function toCallStatus(err: MeshnetError): Pick<StatusObject, 'code' | 'details' | 'metadata'> {
  const metadata = new Metadata();
  metadata.set(ERROR_KEY, Buffer.from(toBinary(ErrorSchema, toWireError(err))));
  return { code: status.FAILED_PRECONDITION, details: err.code, metadata };
}

/** An aborted wait: CANCELLED, or DEADLINE_EXCEEDED when a timeout did it. A typed reason is passed on as it is. */
export function fromAbort(signal: AbortSignal, what: string): MeshnetError {
  const reason: unknown = signal.reason;
  if (reason instanceof MeshnetError) {
    return reason;
  }
  const timedOut = reason instanceof DOMException && reason.name === 'TimeoutError';
  return timedOut
    ? outOfTime(what, reason)
    : new MeshnetError('CANCELLED', `${what} was withdrawn`, { cause: reason, details: { what } });
}

/** A wait that has passed its deadline. */
export function outOfTime(what: string, cause?: unknown): MeshnetError {
  return new MeshnetError('DEADLINE_EXCEEDED', `${what} did not end in time`, { cause, details: { what } });
}

export function isServiceError(err: unknown): err is ServiceError {
  return err instanceof Error && 'code' in err && typeof err.code === 'number' && 'details' in err;
}
