import type { MessageInitShape } from '@bufbuild/protobuf';
import { toWireError } from '../domain/wire-error.ts';
import { LIMITS } from '../domain/limits.ts';
import { MeshnetError, errorFromWire, isMeshnetError, toMeshnetError, type ErrorCode } from '../errors.ts';
import { AdmitReplySchema, AdmitRequestSchema, type AdmitRequest, type Link, type Resume, type SeamEnd } from '../proto/peer_pb.js';
import { checkAdmit, checkLink } from './admission-checks.ts';
import {
  ADMIT, ADMIT_FIRST_MESSAGE_MS, ADMIT_MESSAGE_BYTES, ADMIT_WRITE_MS, LINKS_AT_ONCE,
  type AdmissionHandler, type AdmissionServer, type Lease, type LeaseEnd,
} from './admission-protocol.ts';
import { systemClock, type Clock } from './clock.ts';
import type { StreamAcceptor } from './host.ts';
import { RateLimit } from './rate-limit.ts';
import type { MessageStream } from './wire.ts';

/** Messages of one stream: four Links and a few keep-alives at once, then what keep-alives and many short turns need. */
const MESSAGE_BURST = 32;
const MESSAGES_PER_SECOND = 16;

export interface AdmissionServerComponents {
  host: StreamAcceptor;
  /** Of the leases' times to live. */
  clock?: Clock;
}

export class LeaseServer implements AdmissionServer {
  readonly #components: Required<AdmissionServerComponents>;
  #leases = 0;

  constructor({ host, clock = systemClock }: AdmissionServerComponents) {
    this.#components = { host, clock };
  }

  async handle(handler: AdmissionHandler): Promise<void> {
    const { host, clock } = this.#components;
    await host.handle(ADMIT, (stream) => new ServedLease(stream, handler, { id: ++this.#leases, clock }).run());
  }
}

type Reply = MessageInitShape<typeof AdmitReplySchema>;

/** One stream, from its first message to its end. */
class ServedLease implements Lease {
  readonly id: number;
  readonly #stream: MessageStream;
  readonly #handler: AdmissionHandler;
  readonly #clock: Clock;
  readonly #rate: RateLimit;
  readonly #over = new AbortController();
  readonly #links = new Set<SeamEnd>();
  #admitted = false;
  #resuming = false;
  #end: { reason: LeaseEnd; last?: Reply; releaseCode?: ErrorCode } | undefined;
  #closing: Promise<void> = Promise.resolve();
  #ttlMs: number = LIMITS.leaseTtlMs;
  #stopTimer = (): void => undefined;

  constructor(stream: MessageStream, handler: AdmissionHandler, { id, clock }: { id: number; clock: Clock }) {
    this.id = id;
    this.#stream = stream;
    this.#handler = handler;
    this.#clock = clock;
    this.#rate = new RateLimit({ burst: MESSAGE_BURST, perSecond: MESSAGES_PER_SECOND, clock });
  }

  get remotePeer(): string {
    return this.#stream.remotePeer;
  }

  get signal(): AbortSignal {
    return this.#over.signal;
  }

  end(error?: MeshnetError): void {
    this.#finish('ended-here', lastWords(error));
  }

  async run(): Promise<void> {
    // Afterwards the reading says it, in order with what came before.
    this.#stream.onClose(() => {
      if (!this.#admitted) {
        this.#finish('stream-ended');
      }
    });
    // The end of the stream is the end of this wait: a signal would reset the stream before the last message is out.
    const untilStreamEnds = { signal: new AbortController().signal };
    try {
      await this.#admit(await this.#next({ timeoutMs: ADMIT_FIRST_MESSAGE_MS }));
      for (;;) {
        const request = await this.#next(untilStreamEnds);
        if (this.#end === undefined) {
          this.#take(request);
        }
      }
    } catch (err) {
      this.#fail(err);
    }
    await this.#closing;
  }

  async #next(options: { timeoutMs: number } | { signal: AbortSignal }): Promise<AdmitRequest> {
    return this.#stream.read(AdmitRequestSchema, ADMIT_MESSAGE_BYTES, options);
  }

  async #admit({ kind }: AdmitRequest): Promise<void> {
    if (kind.case !== 'admit') {
      throw outOfPlace(kind.case);
    }
    checkAdmit(kind.value);
    const admitted = await this.#handler.admit(kind.value, this);
    this.#admitted = true;
    if (this.#end !== undefined) {
      this.#tellHandler();
      return;
    }
    this.#ttlMs = admitted.leaseTtlMs === undefined || admitted.leaseTtlMs === 0 ? LIMITS.leaseTtlMs : admitted.leaseTtlMs;
    this.#heard();
    await this.#reply({ kind: { case: 'admitted', value: { ...admitted, leaseTtlMs: this.#ttlMs } } });
  }

  #take({ kind }: AdmitRequest): void {
    this.#rate.take(this.remotePeer);
    this.#heard();
    switch (kind.case) {
      case 'keepAlive':
        return;
      case 'link':
        void this.#link(kind.value);
        return;
      case 'rest':
        this.#handler.rest(this);
        return;
      case 'resume':
        void this.#resume(kind.value);
        return;
      case 'release': {
        const { code } = errorFromWire(kind.value.reason, '');
        this.#finish('released', { kind: { case: 'released', value: {} } }, code);
        return;
      }
      default:
        throw outOfPlace(kind.case);
    }
  }

  async #link(link: Link): Promise<void> {
    try {
      checkLink(link);
      if (this.#links.has(link.end) || this.#links.size >= LINKS_AT_ONCE) {
        throw new MeshnetError('LIMIT_EXCEEDED', 'a Link of this end is still worked on', {
          details: { field: 'link', end: link.end, limit: 1 },
        });
      }
      this.#links.add(link.end);
      const linked = await this.#handler.link(link, this);
      this.#links.delete(link.end);
      if (this.#end === undefined) {
        await this.#reply({ kind: { case: 'linked', value: { ...linked, end: link.end } } });
      }
    } catch (err) {
      this.#fail(err);
    }
  }

  async #resume(resume: Resume): Promise<void> {
    try {
      if (this.#resuming) {
        throw new MeshnetError('LIMIT_EXCEEDED', 'a Resume is still worked on', { details: { field: 'resume', limit: 1 } });
      }
      this.#resuming = true;
      const resumed = await this.#handler.resume(resume, this);
      this.#resuming = false;
      if (this.#end === undefined) {
        await this.#reply({ kind: { case: 'resumed', value: resumed } });
      }
    } catch (err) {
      this.#fail(err);
    }
  }

  /** Any word of the seeker starts the time to live again. */
  #heard(): void {
    this.#stopTimer();
    this.#stopTimer = this.#clock.after(this.#ttlMs, () => {
      this.#finish('expired', lastWords(new MeshnetError('LEASE_EXPIRED', 'the seeker was silent for too long', {
        details: { leaseTtlMs: this.#ttlMs },
      })));
    });
  }

  async #reply(reply: Reply): Promise<void> {
    await this.#stream.write(AdmitReplySchema, reply, { timeoutMs: ADMIT_WRITE_MS });
  }

  #fail(err: unknown): void {
    const error = toMeshnetError(err);
    if (isMeshnetError(err, 'STREAM_ENDED')) {
      this.#finish('stream-ended');
    } else if (!this.#stream.open && error.code === 'CANCELLED') {
      this.#finish('stopped');
    } else {
      this.#finish('failed', lastWords(error));
    }
  }

  #finish(reason: LeaseEnd, last?: Reply, releaseCode?: ErrorCode): void {
    if (this.#end !== undefined) {
      return;
    }
    this.#end = { reason, ...(releaseCode === undefined ? {} : { releaseCode }) };
    this.#stopTimer();
    this.#closing = this.#close(last);
    this.#tellHandler();
  }

  /** The last message first: the pending read must not reset the stream under it. */
  async #close(last: Reply | undefined): Promise<void> {
    if (last !== undefined && this.#stream.open) {
      await this.#reply(last).catch(() => undefined);
    }
    await this.#stream.close({ timeoutMs: ADMIT_WRITE_MS });
  }

  #tellHandler(): void {
    const { reason, releaseCode } = this.#end ?? { reason: 'failed' };
    this.#over.abort(new MeshnetError('LEASE_EXPIRED', 'the lease has ended', { details: { reason } }));
    if (this.#admitted) {
      this.#handler.ended(this, reason, releaseCode);
    }
  }
}

function lastWords(error: MeshnetError | undefined): Reply {
  return error === undefined
    ? { kind: { case: 'released', value: {} } }
    : { kind: { case: 'error', value: toWireError(error) } };
}

function outOfPlace(kind: string | undefined): MeshnetError {
  return new MeshnetError('MALFORMED', 'a message of the admission stream is out of place', {
    details: { field: 'kind', kind: kind ?? 'none' },
  });
}
