/** How an error looks to an HTTP client. */
import { formatError, toMeshnetError, type ErrorCode, type MeshnetError } from '../errors.ts';

export interface ErrorBody {
  error: {
    message: string;
    type: string;
    param: string | null;
    code: string | null;
  };
}

export interface HttpError {
  status: number;
  /** Seconds; a client that retries waits this long. */
  retryAfter?: number;
  body: ErrorBody;
}

interface Mapping {
  status: number;
  type: string;
  /** What clients know this error by. Left out: the code in lower case. */
  code?: string | null;
  param?: string;
  /** Seconds, where the error itself says nothing. */
  retryAfter?: number;
}

const invalid = (code: string | null, param?: string): Mapping => ({
  status: 400, type: 'invalid_request_error', code, ...(param === undefined ? {} : { param }),
});
const unavailable = (retryAfter: number): Mapping => ({ status: 503, type: 'server_error', retryAfter });

/** Codes that are not here are faults of ours: 500. */
const MAPPINGS: Partial<Record<ErrorCode, Mapping>> = {
  REQUEST_INVALID: invalid(null),
  UNSUPPORTED: invalid('unsupported'),
  TURN_INVALID: invalid('turn_invalid', 'messages'),
  TEXT_FAILED: invalid('text_failed', 'messages'),
  TOKEN_INVALID: invalid('token_invalid', 'logit_bias'),
  GRAMMAR_INVALID: invalid('grammar_invalid', 'response_format'),
  LIMIT_EXCEEDED: invalid('limit_exceeded'),
  CONTEXT_LENGTH_EXCEEDED: invalid('context_length_exceeded', 'messages'),
  CONTEXT_FULL: invalid('context_length_exceeded', 'messages'),
  UNAUTHORIZED: { status: 401, type: 'authentication_error', code: 'invalid_api_key' },
  FORBIDDEN: { status: 403, type: 'permission_error' },
  MODEL_UNKNOWN: { status: 404, type: 'invalid_request_error', code: 'model_not_found', param: 'model' },
  PATH_UNKNOWN: { status: 404, type: 'invalid_request_error' },
  BODY_TOO_LARGE: { status: 413, type: 'invalid_request_error', param: 'body' },
  BUSY: { status: 429, type: 'rate_limit_error', code: 'rate_limit_exceeded', retryAfter: 1 },
  READER_TOO_SLOW: { status: 408, type: 'invalid_request_error' },
  RATE_EXCEEDED: { status: 429, type: 'rate_limit_error', code: 'rate_limit_exceeded', retryAfter: 1 },
  NO_ROUTE: unavailable(5),
  NO_CAPACITY: unavailable(2),
  RESOURCE_EXHAUSTED: unavailable(2),
  NOT_SERVING: unavailable(5),
  NOT_CERTIFIED: unavailable(30),
  DRAINING: unavailable(5),
  WORKER_LOST: unavailable(2),
  STREAM_ENDED: unavailable(2),
  SEAM_UNREACHABLE: unavailable(5),
  PEER_UNREACHABLE: unavailable(5),
  LEASE_EXPIRED: unavailable(2),
  ALREADY_STOPPED: unavailable(5),
  CANCELLED: unavailable(1),
  SEAM_TIMEOUT: { status: 504, type: 'server_error' },
  DEADLINE_EXCEEDED: { status: 504, type: 'server_error' },
};

const FAULT: Mapping = { status: 500, type: 'server_error' };

/** Anything may end in an answer, so its length has a bound. */
const MESSAGE_CHARACTERS = 2000;
/** A peer may have said how long, and clients believe us. */
const MAX_RETRY_AFTER_S = 60;

export function httpErrorOf(err: unknown): HttpError {
  const error = toMeshnetError(err);
  const mapping = MAPPINGS[error.code] ?? FAULT;
  const retryAfter = retryAfterOf(error) ?? mapping.retryAfter;
  return {
    status: mapping.status,
    ...(retryAfter === undefined ? {} : { retryAfter }),
    body: {
      error: {
        message: formatError(error).replace(/^E_[A-Z_]+: /, '').slice(0, MESSAGE_CHARACTERS),
        type: mapping.type,
        param: stringIn(error, 'param') ?? mapping.param ?? null,
        code: mapping.code === undefined ? error.code.toLowerCase() : mapping.code,
      },
    },
  };
}

function retryAfterOf(error: MeshnetError): number | undefined {
  const ms = error.details.retryAfterMs;
  return typeof ms === 'number' && ms > 0 ? Math.min(Math.ceil(ms / 1000), MAX_RETRY_AFTER_S) : undefined;
}

function stringIn(error: MeshnetError, key: string): string | undefined {
  const value = error.details[key];
  return typeof value === 'string' ? value : undefined;
}
