import type { MessageInitShape } from '@bufbuild/protobuf';
import { LIMITS } from '../domain/limits.ts';
import type { ErrorCode, MeshnetError } from '../errors.ts';
import type {
  Admit, AdmitSchema, Admitted, AdmittedSchema, Link, LinkSchema, Linked, LinkedSchema, Resume, Resumed, ResumedSchema, ResumeSchema,
} from '../proto/peer_pb.js';
import type { PeerTarget, ProtocolSpec } from './protocols.ts';
import type { WaitOptions } from './wait.ts';

/** One stream per leased session; how many sessions a peer may hold is for admission to say. */
export const ADMIT: ProtocolSpec = Object.freeze({
  id: '/meshnet/admit/1',
  maxInboundStreams: 256,
  maxOutboundStreams: 256,
  maxStreamsPerPeer: 256,
  maxStreams: 1024,
});

/** Until the first message of a stream that somebody opened. */
export const ADMIT_FIRST_MESSAGE_MS = 10_000;
/** Links of one lease that are worked on at once: one for every end that a lane can have. */
export const LINKS_AT_ONCE = 4;
/** A message on its way out; the other end reads at once, so more means that it is gone. */
export const ADMIT_WRITE_MS = 10_000;
/** A seeker speaks this many times within the lease's time to live. */
export const KEEP_ALIVES_PER_TTL = 3;
export const ADMIT_MESSAGE_BYTES = LIMITS.admitMessageBytes;

/** Why a lease ended, at the stage. */
export type LeaseEnd =
  /** The seeker sent Release; `Lease.releaseCode` says why. */
  | 'released'
  /** The stream ended or was reset without a Release. */
  | 'stream-ended'
  /** Silence for longer than the time to live. */
  | 'expired'
  /** The seeker broke the protocol, or a Link failed. */
  | 'failed'
  /** This side called `Lease.end`. */
  | 'ended-here'
  /** The node stops. */
  | 'stopped';

/** One admission stream, as the stage sees it. */
export interface Lease {
  /** Unique in this process, for maps and log lines. */
  readonly id: number;
  /** As Noise authenticated it. */
  readonly remotePeer: string;
  /** Aborted when the lease has ended, whatever the reason. */
  readonly signal: AbortSignal;
  /**
   * Ends the lane from this side: the error, or Released without one, is the last message. `ended` is called with
   * 'ended-here'. Does nothing after the end.
   */
  end(error?: MeshnetError): void;
}

/** What a provider makes of admission streams. */
export interface AdmissionHandler {
  /**
   * Reserves. The lease's TTL is `leaseTtlMs` of the answer (0 becomes `LIMITS.leaseTtlMs`). What it throws is sent as
   * the refusal and ends the stream; the handler keeps nothing then, and `ended` is not called.
   *
   * When `lease.signal` aborts meanwhile, `ended` follows after it has answered.
   */
  admit(request: Admit, lease: Lease): Promise<MessageInitShape<typeof AdmittedSchema>>;
  /**
   * Runs beside other Links and keep-alives of the lease, at most one per end at a time. What it throws is sent as the
   * last message and ends the lease with 'failed'.
   */
  link(request: Link, lease: Lease): Promise<MessageInitShape<typeof LinkedSchema>>;
  /** No turn runs: the session may be ended from now on, when others need its room. */
  rest(lease: Lease): void;
  /**
   * A turn is to come: the session is not to be ended for others any more, and wants so many positions in all. One at a time.
   * What it throws is sent as the last message and ends the lease with 'failed'.
   */
  resume(request: Resume, lease: Lease): Promise<MessageInitShape<typeof ResumedSchema>>;
  /** Exactly once for each lease that `admit` answered. Frees everything. Must not throw. */
  ended(lease: Lease, reason: LeaseEnd, releaseCode?: ErrorCode): void;
}

/** The stage's side. */
export interface AdmissionServer {
  handle(handler: AdmissionHandler): Promise<void>;
}

/** One admission stream, as the seeker sees it. Keep-alives start by themselves with Admitted. */
export interface AdmissionStream {
  readonly remotePeer: string;
  /**
   * Once, first.
   *
   * @throws {MeshnetError} the stage's refusal, STREAM_ENDED, DEADLINE_EXCEEDED, CANCELLED
   */
  admit(request: MessageInitShape<typeof AdmitSchema>, options: WaitOptions): Promise<Admitted>;
  /**
   * Links of different ends may run at once.
   *
   * @throws {MeshnetError} what ended the lease, DEADLINE_EXCEEDED, CANCELLED; the stream is over then
   */
  link(request: MessageInitShape<typeof LinkSchema>, options: WaitOptions): Promise<Linked>;
  /** Says that no turn runs, so that the stage may end the session when it needs its room. Never throws. */
  rest(options: WaitOptions): Promise<void>;
  /**
   * Says that a turn is to come, of so many positions in all. One at a time.
   *
   * @throws {MeshnetError} what ended the lease, NO_CAPACITY among it, DEADLINE_EXCEEDED, CANCELLED; the stream is over then
   */
  resume(request: MessageInitShape<typeof ResumeSchema>, options: WaitOptions): Promise<Resumed>;
  /** Sends Release and closes. Never throws: a stage that does not hear it frees the lane by the stream's end. */
  release(reason: ErrorCode, options: WaitOptions): Promise<void>;
  /**
   * Settles when the lease has ended, and never rejects: with nothing after `release` or the stage's Released, otherwise
   * with the stage's error or STREAM_ENDED.
   */
  readonly ended: Promise<MeshnetError | undefined>;
}

/** The seeker's side. */
export interface AdmissionClient {
  /** @throws {MeshnetError} PEER_UNREACHABLE, DEADLINE_EXCEEDED, CANCELLED */
  open(peer: PeerTarget, options: WaitOptions): Promise<AdmissionStream>;
}
