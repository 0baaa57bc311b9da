import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { type ErrorCode, MeshnetError, toMeshnetError } from '../errors.ts';
import type { AdmissionClient, AdmissionHandler, AdmissionStream, Lease, LeaseEnd } from '../net/admission-protocol.ts';
import type { PeerTarget } from '../net/protocols.ts';
import { within, type WaitOptions } from '../net/wait.ts';
import {
  type Admit, type Admitted, AdmittedSchema, AdmitSchema, type Linked, LinkedSchema, LinkSchema, type Resumed, ResumedSchema, ResumeSchema,
} from '../proto/peer_pb.js';

export interface LocalAdmissionComponents {
  /** To other nodes. */
  readonly remote: AdmissionClient;
}

/** Leases on other nodes over libp2p, and on this node without it: a peer cannot dial itself. */
export class LocalAdmission implements AdmissionClient {
  readonly #remote: AdmissionClient;
  readonly #peerId: string;
  #handler: AdmissionHandler | undefined;
  readonly #open = new Set<LocalLease>();
  #nextId = -1;

  constructor(components: LocalAdmissionComponents, init: { readonly peerId: string }) {
    this.#remote = components.remote;
    this.#peerId = init.peerId;
  }

  /** This node serves from now on. */
  serve(handler: AdmissionHandler): void {
    this.#handler = handler;
  }

  async open(peer: PeerTarget, options: WaitOptions): Promise<AdmissionStream> {
    if (peer.peerId !== this.#peerId) {
      return await this.#remote.open(peer, options);
    }
    if (this.#handler === undefined) {
      throw new MeshnetError('NOT_SERVING', 'this node serves nothing');
    }
    // Negative, so that no lease of the server has the same number.
    const lease = new LocalLease(this.#handler, { id: this.#nextId--, peerId: this.#peerId });
    this.#open.add(lease);
    void this.#forget(lease);
    return lease;
  }

  async #forget(lease: LocalLease): Promise<void> {
    await lease.ended;
    this.#open.delete(lease);
  }

  /** Ends every lease; nothing is served any more. */
  stop(): void {
    this.#handler = undefined;
    for (const lease of this.#open) {
      lease.finish('stopped', new MeshnetError('DRAINING', 'the node stops'));
    }
  }
}

/** Both ends of one admission in one process. */
class LocalLease implements AdmissionStream, Lease {
  readonly id: number;
  readonly remotePeer: string;
  readonly ended: Promise<MeshnetError | undefined>;
  readonly #handler: AdmissionHandler;
  readonly #over = new AbortController();
  readonly #settle: (err: MeshnetError | undefined) => void;
  #admitted = false;
  #tellEnd = (): void => undefined;

  constructor(handler: AdmissionHandler, { id, peerId }: { id: number; peerId: string }) {
    this.#handler = handler;
    this.id = id;
    this.remotePeer = peerId;
    const { promise, resolve } = Promise.withResolvers<MeshnetError | undefined>();
    this.ended = promise;
    this.#settle = resolve;
  }

  get signal(): AbortSignal {
    return this.#over.signal;
  }

  async admit(request: MessageInitShape<typeof AdmitSchema>, options: WaitOptions): Promise<Admitted> {
    try {
      return create(AdmittedSchema, await within(this.#admit(create(AdmitSchema, request)), 'admission', options));
    } catch (err) {
      this.finish('failed', toMeshnetError(err));
      throw err;
    }
  }

  /** What is admitted after all, when nobody waits any more, is given back. */
  async #admit(request: Admit): ReturnType<AdmissionHandler['admit']> {
    const answer = await this.#handler.admit(request, this);
    this.#admitted = true;
    this.#tellEnd();
    return answer;
  }

  async link(request: MessageInitShape<typeof LinkSchema>, options: WaitOptions): Promise<Linked> {
    try {
      return create(LinkedSchema, await within(this.#handler.link(create(LinkSchema, request), this), 'a link', options));
    } catch (err) {
      this.finish('failed', toMeshnetError(err));
      throw err;
    }
  }

  async rest(): Promise<void> {
    this.#handler.rest(this);
  }

  async resume(request: MessageInitShape<typeof ResumeSchema>, options: WaitOptions): Promise<Resumed> {
    try {
      return create(ResumedSchema, await within(this.#handler.resume(create(ResumeSchema, request), this), 'resuming a session', options));
    } catch (err) {
      this.finish('failed', toMeshnetError(err));
      throw err;
    }
  }

  async release(reason: ErrorCode): Promise<void> {
    this.finish('released', undefined, reason);
  }

  end(error?: MeshnetError): void {
    this.finish('ended-here', error);
  }

  finish(reason: LeaseEnd, error: MeshnetError | undefined, releaseCode?: ErrorCode): void {
    if (this.#over.signal.aborted) {
      return;
    }
    this.#over.abort(error);
    this.#settle(error);
    this.#tellEnd = () => { this.#handler.ended(this, reason, releaseCode); };
    if (this.#admitted) {
      this.#tellEnd();
    }
  }
}
