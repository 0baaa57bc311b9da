import type { MessageInitShape } from '@bufbuild/protobuf';
import { fromWireError } from '../domain/wire-error.ts';
import { LIMITS } from '../domain/limits.ts';
import { MeshnetError, toMeshnetError, wireCode, type ErrorCode } from '../errors.ts';
import {
  AdmitReplySchema, AdmitRequestSchema, type AdmitSchema, type Admitted, type AdmitReply, type LinkSchema, type Linked,
  type Resumed, type ResumeSchema, type SeamEnd,
} from '../proto/peer_pb.js';
import { checkAdmitted } from './admission-checks.ts';
import {
  ADMIT, ADMIT_MESSAGE_BYTES, ADMIT_WRITE_MS, KEEP_ALIVES_PER_TTL, type AdmissionClient, type AdmissionStream,
} from './admission-protocol.ts';
import { systemClock, type Clock } from './clock.ts';
import type { StreamOpener } from './host.ts';
import type { PeerTarget } from './protocols.ts';
import { within, type WaitOptions } from './wait.ts';
import type { MessageStream } from './wire.ts';

/** A stage may ask for more words than that, but does not get them. */
const SHORTEST_KEEP_ALIVE_MS = 500;

export interface AdmissionClientComponents {
  host: StreamOpener;
  /** Of the keep-alives. */
  clock?: Clock;
}

export class LeaseClient implements AdmissionClient {
  readonly #components: Required<AdmissionClientComponents>;

  constructor({ host, clock = systemClock }: AdmissionClientComponents) {
    this.#components = { host, clock };
  }

  async open(peer: PeerTarget, options: WaitOptions): Promise<AdmissionStream> {
    return new HeldLease(await this.#components.host.open(peer, ADMIT, options), this.#components.clock);
  }
}

interface Answer<T> {
  resolve(value: T): void;
  reject(err: MeshnetError): void;
}

/** The seeker's end of one stream. */
class HeldLease implements AdmissionStream {
  readonly ended: Promise<MeshnetError | undefined>;
  readonly #stream: MessageStream;
  readonly #clock: Clock;
  readonly #links = new Map<SeamEnd, Answer<Linked>>();
  #admitting: Answer<Admitted> | undefined;
  #resuming: Answer<Resumed> | undefined;
  #settle: (error: MeshnetError | undefined) => void;
  #end: { error: MeshnetError | undefined } | undefined;
  #stopTimer = (): void => undefined;

  constructor(stream: MessageStream, clock: Clock) {
    this.#stream = stream;
    this.#clock = clock;
    const { promise, resolve } = Promise.withResolvers<MeshnetError | undefined>();
    this.ended = promise;
    this.#settle = resolve;
    void this.#listen();
  }

  get remotePeer(): string {
    return this.#stream.remotePeer;
  }

  async admit(request: MessageInitShape<typeof AdmitSchema>, options: WaitOptions): Promise<Admitted> {
    const { promise, ...answer } = Promise.withResolvers<Admitted>();
    this.#admitting = answer;
    const admitted = await this.#ask(promise, { kind: { case: 'admit', value: request } }, options);
    this.#keepAlive(admitted.leaseTtlMs === 0 ? LIMITS.leaseTtlMs : admitted.leaseTtlMs);
    return admitted;
  }

  async link(request: MessageInitShape<typeof LinkSchema>, options: WaitOptions): Promise<Linked> {
    const end = request.end as SeamEnd;
    if (this.#links.has(end)) {
      throw new MeshnetError('INTERNAL', 'two Links of one end at once', { details: { end } });
    }
    const { promise, ...answer } = Promise.withResolvers<Linked>();
    this.#links.set(end, answer);
    return this.#ask(promise, { kind: { case: 'link', value: request } }, options);
  }

  async rest(options: WaitOptions): Promise<void> {
    if (this.#end === undefined) {
      // As in `#ask`: the reading notices a write that failed.
      await this.#write({ kind: { case: 'rest', value: {} } }, options).catch(() => undefined);
    }
  }

  async resume(request: MessageInitShape<typeof ResumeSchema>, options: WaitOptions): Promise<Resumed> {
    if (this.#resuming !== undefined) {
      throw new MeshnetError('INTERNAL', 'two Resumes at once');
    }
    const { promise, ...answer } = Promise.withResolvers<Resumed>();
    this.#resuming = answer;
    return this.#ask(promise, { kind: { case: 'resume', value: request } }, options);
  }

  async release(reason: ErrorCode, options: WaitOptions): Promise<void> {
    if (this.#end === undefined) {
      this.#finish(undefined);
      await this.#write({ kind: { case: 'release', value: { reason: wireCode(reason) } } }, options).catch(() => undefined);
    }
    await this.#stream.close(options);
  }

  async #ask<T>(answer: Promise<T>, request: MessageInitShape<typeof AdmitRequestSchema>, options: WaitOptions): Promise<T> {
    answer.catch(() => undefined);
    if (this.#end !== undefined) {
      throw this.#end.error ?? new MeshnetError('ALREADY_STOPPED', 'the lease has ended');
    }
    // A failed write resets the stream, which `#listen` notices and says to who waits for the answer.
    this.#write(request, options).catch(() => undefined);
    try {
      return await within(answer, 'the answer of a stage', options);
    } catch (err) {
      const error = toMeshnetError(err);
      this.#giveUp(error);
      throw error;
    }
  }

  /** Unless the stage ended it: then the stream goes to its orderly end. */
  #giveUp(error: MeshnetError): void {
    if (this.#end === undefined) {
      this.#finish(error);
      this.#stream.abort(error);
    }
  }

  async #write(request: MessageInitShape<typeof AdmitRequestSchema>, options: WaitOptions): Promise<void> {
    await this.#stream.write(AdmitRequestSchema, request, options);
  }

  async #listen(): Promise<void> {
    const untilStreamEnds = { signal: new AbortController().signal };
    try {
      while (this.#end === undefined) {
        this.#take(await this.#stream.read(AdmitReplySchema, ADMIT_MESSAGE_BYTES, untilStreamEnds));
      }
      await this.#stream.close({ timeoutMs: ADMIT_WRITE_MS });
    } catch (err) {
      this.#giveUp(toMeshnetError(err));
    }
  }

  #take({ kind }: AdmitReply): void {
    switch (kind.case) {
      case 'admitted': {
        checkAdmitted(kind.value);
        const admitting = this.#admitting;
        this.#admitting = undefined;
        if (admitting === undefined) {
          throw outOfPlace(kind.case);
        }
        admitting.resolve(kind.value);
        return;
      }
      case 'linked': {
        const linking = this.#links.get(kind.value.end);
        this.#links.delete(kind.value.end);
        if (linking === undefined) {
          throw outOfPlace(kind.case);
        }
        linking.resolve(kind.value);
        return;
      }
      case 'resumed': {
        const resuming = this.#resuming;
        this.#resuming = undefined;
        if (resuming === undefined) {
          throw outOfPlace(kind.case);
        }
        resuming.resolve(kind.value);
        return;
      }
      case 'error':
        this.#finish(fromWireError(kind.value));
        return;
      case 'released':
        this.#finish(undefined);
        return;
      default:
        throw outOfPlace('none');
    }
  }

  #keepAlive(ttlMs: number): void {
    if (this.#end !== undefined) {
      return;
    }
    this.#stopTimer = this.#clock.after(Math.max(ttlMs / KEEP_ALIVES_PER_TTL, SHORTEST_KEEP_ALIVE_MS), () => {
      this.#write({ kind: { case: 'keepAlive', value: {} } }, { timeoutMs: ADMIT_WRITE_MS })
        .catch((err: unknown) => this.#giveUp(toMeshnetError(err)));
      this.#keepAlive(ttlMs);
    });
  }

  #finish(error: MeshnetError | undefined): void {
    if (this.#end !== undefined) {
      return;
    }
    this.#end = { error };
    this.#stopTimer();
    const pending = error ?? new MeshnetError('STREAM_ENDED', 'the lease ended while an answer was due', {
      details: { reason: 'end' },
    });
    this.#admitting?.reject(pending);
    this.#resuming?.reject(pending);
    for (const link of this.#links.values()) {
      link.reject(pending);
    }
    this.#settle(error);
  }
}

function outOfPlace(kind: string): MeshnetError {
  return new MeshnetError('PROTOCOL_VIOLATION', 'a stage answered what nobody asked', { details: { kind } });
}
