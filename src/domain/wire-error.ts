import { create } from '@bufbuild/protobuf';
import { errorFromWire, toMeshnetError, wireCode, type ErrorDetails, type MeshnetError } from '../errors.ts';
import { ErrorSchema, type Error as WireError } from '../proto/seam_pb.js';
import { LIMITS } from './limits.ts';

/** A detail's key and value on the wire; longer ones are cut. */
const DETAIL_CHARS = 128;

/**
 * Any error as the message that ends a stream. Only plain facts travel; `details.retryAfterMs` has a field of its own.
 * A code that stays inside a process is sent as INTERNAL with the code as a detail.
 */
export function toWireError(err: unknown, faultStage = 0): WireError {
  const { code, message, details } = toMeshnetError(err);
  const wire = wireCode(code);
  const facts = Object.entries(details).filter(([key]) => key !== 'retryAfterMs' && key !== 'faultStage');
  if (wire !== wireCode('INTERNAL') || code === 'INTERNAL') {
    return build(wire, message, faultStage, facts, details);
  }
  return build(wire, message, faultStage, [['code', code], ...facts], details);
}

/** What a peer sent, as the error to throw. Its details are untrusted text. */
export function fromWireError(error: WireError): MeshnetError {
  const details: ErrorDetails = {};
  for (const { key, value } of error.details.slice(0, LIMITS.errorDetails)) {
    details[key.slice(0, DETAIL_CHARS)] = value.slice(0, DETAIL_CHARS);
  }
  if (error.retryAfterMs > 0) {
    details['retryAfterMs'] = error.retryAfterMs;
  }
  if (error.faultStage > 0) {
    details['faultStage'] = error.faultStage;
  }
  return errorFromWire(error.code, cut(error.message, LIMITS.errorMessageBytes), { details });
}

function build(
  code: number, message: string, faultStage: number, facts: [string, unknown][], details: ErrorDetails,
): WireError {
  const retryAfterMs = details['retryAfterMs'];
  const stage = details['faultStage'];
  return create(ErrorSchema, {
    code,
    message: cut(message, LIMITS.errorMessageBytes),
    faultStage: typeof stage === 'number' ? stage : faultStage,
    details: facts
      .filter(([, value]) => ['string', 'number', 'bigint', 'boolean'].includes(typeof value))
      .slice(0, LIMITS.errorDetails)
      .map(([key, value]) => ({ key: key.slice(0, DETAIL_CHARS), value: String(value).slice(0, DETAIL_CHARS) })),
    retryAfterMs: typeof retryAfterMs === 'number' && retryAfterMs > 0 ? Math.ceil(retryAfterMs) : 0,
  });
}

/** At most `bytes` of UTF-8, cut between characters. */
function cut(text: string, bytes: number): string {
  const encoded = new TextEncoder().encodeInto(text, new Uint8Array(bytes));
  return text.slice(0, encoded.read);
}
