/**
 * The one error class of this program and the one catalogue of its codes.
 *
 * A catcher looks at `code` and `details`, never at the message. Codes below `FIRST_LOCAL_CODE` travel between peers
 * and workers under the number given here, which is also in `proto/seam.proto`, `native-worker/src/status.h` and
 * `proto/SPEC.md`; the others stay inside one process and its HTTP answers.
 */

interface CatalogueEntry {
  /** Number on the wire, or a number of at least `FIRST_LOCAL_CODE` that is never sent. */
  readonly wire: number;
  /** When it happens. */
  readonly summary: string;
  /** What the catcher should do. */
  readonly next: string;
}

/** Codes with this number or a higher one never travel. */
export const FIRST_LOCAL_CODE = 1000;

function entry(wire: number, summary: string, next: string): CatalogueEntry {
  return Object.freeze({ wire, summary, next });
}

export const ERROR_CODES = Object.freeze({
  INTERNAL: entry(1, 'a fault in the program itself, or a code this version does not know',
    'fail the session, keep the details and report them'),
  CANCELLED: entry(2, 'the one who asked has withdrawn the request',
    'nothing: this is no mark against anybody'),
  DEADLINE_EXCEEDED: entry(3, 'an operation did not end within its time limit',
    'try once more elsewhere, or with a longer limit'),
  RESOURCE_EXHAUSTED: entry(4, 'a bounded queue, pool or buffer is full',
    'back off and try again, or use another provider'),
  VERSION_UNSUPPORTED: entry(5, 'the other end speaks no version of the protocol that this end speaks',
    'use another peer, or update the older of the two'),
  MALFORMED: entry(6, 'bytes could not be decoded, or a field that must be set is missing',
    'end the stream and count it against the sender'),
  FRAME_TOO_LARGE: entry(7, 'a frame, packet or message is longer than its limit',
    'end the stream and count it against the sender'),
  LIMIT_EXCEEDED: entry(8, 'a count or length inside a message is above its named limit',
    'send less: the limit stands in the details and in SPEC.md'),
  LANE_NOT_OPEN: entry(9, 'a frame names a lane that has no open stream here',
    'open the lane first, or drop the frame when the lane has just been closed'),
  LANE_EXISTS: entry(10, 'a lane is already open with this session, epoch and stage',
    'use the open one, or open again with a higher attempt'),
  EPOCH_STALE: entry(11, 'a message comes from before the last repair of its route',
    'drop it and continue in the newer epoch'),
  TICKET_INVALID: entry(12, 'the ticket is unknown, expired, already in use or made for another seam',
    'ask for admission again'),
  PEER_MISMATCH: entry(13, 'the authenticated peer or certificate is not the one that admission named',
    'end the connection and fetch the advertisement again'),
  ATTEMPT_STALE: entry(14, 'a newer stream of this lane has already taken over',
    'close this stream and keep the newer one'),
  MODEL_MISMATCH: entry(15, 'the two ends hold different model digests',
    'plan a route of shards of one model'),
  RANGE_MISMATCH: entry(16, 'two stages do not meet at the same layer boundary',
    'plan the route again from fresh advertisements'),
  SCHEMA_MISMATCH: entry(17, 'the two ends disagree about the tensors of the boundary bundle',
    'plan a route whose stages share one boundary schema'),
  SEQ_GAP: entry(18, 'a frame skipped a sequence number',
    'open the stream again with a higher attempt and resend from the number in the details'),
  BRANCH_STALE: entry(19, 'a frame belongs to a branch that a rewind has left',
    'drop it: the newer branch goes on'),
  POSITION_INVALID: entry(20, 'a frame does not start at the next position of its lane',
    'fail the session, or rewind with a higher branch'),
  SHAPE_INVALID: entry(21, 'a tensor has a rank or a dimension that the boundary schema does not allow',
    'end the stream and count it against the sender'),
  DTYPE_INVALID: entry(22, 'a tensor has a type that was not agreed at Open',
    'end the stream and count it against the sender'),
  SIZE_MISMATCH: entry(23, 'the bytes of a tensor are not as many as its type and shape say',
    'end the stream and count it against the sender'),
  VALUE_INVALID: entry(24, 'a boundary value is not finite or lies outside the certified envelope',
    'fail the session and avoid the stage that sent it'),
  TOKEN_INVALID: entry(25, 'a token id is not in the vocabulary',
    'correct the request'),
  TURN_INVALID: entry(26, 'a turn has parameters that are out of range, or comes out of order',
    'correct the request'),
  GRAMMAR_INVALID: entry(27, 'a grammar cannot be parsed or is above its limits',
    'correct or simplify the grammar or schema'),
  REWIND_LOST: entry(28, 'the state for a rewind is not held any more',
    'start the turn again from position 0 on every stage'),
  RESUME_LOST: entry(29, 'what a reconnecting stream needs has left the resend window',
    'end the session, or replay it in a new epoch'),
  CONTEXT_FULL: entry(30, 'the session has used every position that was granted to it',
    'shorten the conversation or admit a session with more positions'),
  NO_CAPACITY: entry(31, 'no cells, sequence ids or scratch are free for this session',
    'wait for the retry hint in the details, or use another provider'),
  CREDIT_EXCEEDED: entry(32, 'the sender sent more payload than its credit',
    'end the stream and count it against the sender'),
  RATE_EXCEEDED: entry(33, 'messages come faster than the named rate',
    'slow down and try again'),
  STREAM_ENDED: entry(34, 'a stream stopped without an explicit Finish, Cancel, Error or Close',
    'open again with a higher attempt, or fail the session'),
  SEAM_TIMEOUT: entry(35, 'the neighbour sent nothing within the first-byte or idle deadline',
    'fail the session and avoid that stage for a while'),
  SEAM_UNREACHABLE: entry(36, 'no path to the neighbouring stage could be made',
    'plan another route, or allow the bridge'),
  DECODE_FAILED: entry(37, 'the engine could not compute a batch',
    'fail the session; a retry on another provider is safe'),
  LEASE_EXPIRED: entry(38, 'the admission stream ended or was silent past its time to live',
    'admit a new session'),
  DRAINING: entry(39, 'the provider takes no new sessions because it is about to stop',
    'use another provider'),
  NOT_SERVING: entry(40, 'the shard is not loaded and tested yet',
    'wait for the retry hint in the details, or use another provider'),
  NOT_CERTIFIED: entry(41, 'no evidence allows this architecture, boundary type and engine class',
    'use the certified boundary type, or another provider'),
  MODEL_CORRUPT: entry(42, 'a model file is damaged, cut short or not a GGUF file that can be served',
    'fetch it again and compare its digest'),
  MODEL_UNKNOWN: entry(43, 'nobody here knows a model of this name or digest',
    'name a model that is known, or a file'),
  RANGE_INVALID: entry(44, 'a layer range is empty or lies outside the model',
    'give a half-open range inside [0, n_layer)'),
  ADVERTISEMENT_INVALID: entry(45, 'an advertisement has expired, is not canonical or has a wrong signature',
    'ignore it and ask the peer for a fresh one'),
  DIGEST_MISMATCH: entry(46, 'bytes do not have the digest that was promised',
    'throw them away and fetch them from another source'),
  NO_ROUTE: entry(47, 'the known providers do not cover every layer',
    'wait for providers, or serve the missing layers named in the details'),
  WORKER_LOST: entry(48, 'a worker process died or stopped answering',
    'fail its sessions; the node starts it again'),
  ROLE_INVALID: entry(49, 'a stream was opened in a role that its lane does not have here',
    'end the stream and count it against the sender'),

  CONFIG_INVALID: entry(1000, 'a flag, environment variable or configuration file has a value that cannot be used',
    'correct the setting named in the details'),
  RUNTIME_UNSUPPORTED: entry(1001, 'this version of Node.js is too old',
    'run it by npm, which brings its own Node.js, or install a version named in the details'),
  REQUEST_INVALID: entry(1002, 'an HTTP request cannot be understood or has a field with a wrong value',
    'correct the field named in the details'),
  CONTEXT_LENGTH_EXCEEDED: entry(1003, 'prompt and answer together do not fit the context of the model',
    'shorten the messages or lower max_tokens'),
  SOURCE_UNAVAILABLE: entry(1004, 'a model file cannot be had from its source',
    'check the network, or name a file that is already here'),
  DOWNLOAD_INCOMPLETE: entry(1005, 'a download stopped before its end',
    'run it again: it resumes where it stopped'),
  DISK_FULL: entry(1006, 'there is not enough space on the disk',
    'free the number of bytes named in the details'),
  PEER_UNREACHABLE: entry(1007, 'a peer could not be dialled or closed the connection',
    'use another peer; it may be back later'),
  PROTOCOL_VIOLATION: entry(1008, 'a peer sent a message that its protocol does not allow here',
    'end the stream and count it against the peer'),
  WORKER_START_FAILED: entry(1009, 'a worker process ended or was silent before it was ready',
    'read its last lines in the details and correct the cause'),
  WORKER_BINARY_MISSING: entry(1010, 'the native worker has not been built',
    'run: npm run build'),
  FILE_INVALID: entry(1011, 'a file cannot be read or written, or has unexpected content',
    'correct or remove the file named in the details'),
  TEXT_FAILED: entry(1012, 'the text process could not tokenise, template or detokenise',
    'correct the request; if it is valid, report it'),
  BUSY: entry(1013, 'as many requests are running, or waiting for room, as the gateway allows',
    'wait for the retry hint in the details'),
  ADDRESS_IN_USE: entry(1014, 'a port or socket is taken by another program',
    'stop that program, or choose another address: --listen for peers, --api-port for the API'),
  NODE_NOT_RUNNING: entry(1016, 'no node of this user runs where the command looked for one',
    'start one with `meshnet up`, or name the folder of one that runs with --data-dir, or its API with --api'),
  REQUEST_FAILED: entry(1017, 'the node answered a request with an error',
    'see the code in the details'),
  ALREADY_STOPPED: entry(1015, 'a service was used before its start or after its stop',
    'start it first'),
  UNAUTHORIZED: entry(1020, 'an HTTP request does not carry the key that this gateway wants',
    'send the key as a bearer token'),
  FORBIDDEN: entry(1021, 'an HTTP request names a host, or comes from a page, that this gateway does not let in',
    'call it by a loopback name, or allow the host or origin in the configuration'),
  PATH_UNKNOWN: entry(1022, 'an HTTP request has a path or method that does not exist here',
    'call one of the paths that README.md lists'),
  BODY_TOO_LARGE: entry(1023, 'the body of an HTTP request is longer than its limit',
    'send less: the limit stands in the details'),
  UNSUPPORTED: entry(1024, 'an HTTP request wants something that this version cannot do',
    'leave out the field named in the details'),
  READER_TOO_SLOW: entry(1025, 'an HTTP client did not take its answer in time, and its connection was cut',
    'read the answer as it comes, or ask for fewer tokens'),
});

export type ErrorCode = keyof typeof ERROR_CODES;

/** Facts about one error: ids, counts, limits, paths. Never prose. */
export type ErrorDetails = Record<string, unknown>;

export interface MeshnetErrorOptions extends ErrorOptions {
  details?: ErrorDetails;
}

/** Everything that this program throws on purpose. What is thrown and is not one is a bug. */
export class MeshnetError extends Error {
  override readonly name = 'MeshnetError';
  readonly code: ErrorCode;
  readonly details: ErrorDetails;

  /** `message` says what happened and where; what to do next comes from the catalogue. */
  constructor(code: ErrorCode, message: string = ERROR_CODES[code].summary, options: MeshnetErrorOptions = {}) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined);
    this.code = code;
    this.details = options.details ?? {};
  }
}

const codeByWire = new Map<number, ErrorCode>();
for (const [code, { wire }] of Object.entries(ERROR_CODES)) {
  codeByWire.set(wire, code as ErrorCode);
}

/** The number under which `code` is sent. A code that never travels is sent as INTERNAL. */
export function wireCode(code: ErrorCode): number {
  const { wire } = ERROR_CODES[code];
  return wire < FIRST_LOCAL_CODE ? wire : ERROR_CODES.INTERNAL.wire;
}

/**
 * The error for a number that a peer or worker sent. A number that this version does not know, or that must not
 * travel, becomes INTERNAL with the number in `details.wire`.
 */
export function errorFromWire(wire: number, message: string, options: MeshnetErrorOptions = {}): MeshnetError {
  const code = wire < FIRST_LOCAL_CODE ? codeByWire.get(wire) : undefined;
  const text = message === '' ? undefined : message;
  if (code === undefined) {
    return new MeshnetError('INTERNAL', text, { ...options, details: { ...options.details, wire } });
  }
  return new MeshnetError(code, text, options);
}

/** Whether `err` is a `MeshnetError`, of this code when one is given. */
export function isMeshnetError(err: unknown, code?: ErrorCode): err is MeshnetError {
  return err instanceof MeshnetError && (code === undefined || err.code === code);
}

/** `err` itself, or an INTERNAL error around something foreign, so that a boundary always passes on a typed error. */
export function toMeshnetError(err: unknown): MeshnetError {
  if (err instanceof MeshnetError) {
    return err;
  }
  const message = err instanceof Error ? err.message : String(err);
  return new MeshnetError('INTERNAL', message, { cause: err });
}

/** One line for a person: `E_CODE: what happened, where. What to do next.` */
export function formatError(err: unknown): string {
  const { code, message, details } = toMeshnetError(err);
  const facts = Object.entries(details)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => `${key} ${formatFact(value)}`)
    .join(', ');
  const what = facts === '' ? message : `${message.replace(/\.$/, '')} (${facts})`;
  return `E_${code}: ${sentence(what)} ${sentence(capital(ERROR_CODES[code].next))}`;
}

function formatFact(value: unknown): string {
  if (typeof value === 'string') {
    return value;
  }
  if (typeof value === 'object' && value !== null) {
    return JSON.stringify(value, (_key, inner: unknown) => typeof inner === 'bigint' ? inner.toString() : inner);
  }
  return String(value);
}

function sentence(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
