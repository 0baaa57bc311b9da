import { createHash } from 'node:crypto';
import { create } from '@bufbuild/protobuf';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { SeamEnd, type FrameInit } from '../../src/domain/seam-end.ts';
import { toWireError } from '../../src/domain/wire-error.ts';
import { isMeshnetError, MeshnetError, type ErrorCode } from '../../src/errors.ts';
import type { AdmissionClient, AdmissionStream } from '../../src/net/admission-protocol.ts';
import { within, type WaitOptions } from '../../src/net/wait.ts';
import {
  AdmittedSchema, LinkedSchema, PathKind, ResumedSchema, SeamEnd as End, SignedAdvertisementSchema, type AdmitSchema, type Admitted, type Linked,
  type LinkSchema, type Resumed, type ResumeSchema,
} from '../../src/proto/peer_pb.js';
import { Finish, OpenedSchema, Phase, type Frame } from '../../src/proto/seam_pb.js';
import type { Offer } from '../../src/route/offer.ts';
import type { BridgeDestination, PacketDialer, PacketDuplex } from '../../src/worker/packet-duplex.ts';
import { packetPair } from '../../src/worker/packet-pair.ts';

export const MODEL = new Uint8Array(32).fill(1);
/** Of every boot of every stage. */
export const CERTIFICATE = Uint8Array.of(1, 2, 3);
export const LANE = { session: new Uint8Array(16).fill(2), epoch: 1, stage: 0 };

/** Long enough that only a hang reaches it. */
export const soon = (): { signal: AbortSignal } => ({ signal: AbortSignal.timeout(10_000) });

export const code = (wanted: ErrorCode) => (err: unknown): boolean => isMeshnetError(err, wanted);

export function offer(first: number, last: number, over: Partial<Offer> = {}): Offer {
  return {
    peerId: `peer-${first}-${last}`, range: { first, last }, nLayer: 12, modelDigest: MODEL, engineClass: 'a',
    bootId: '00', decodeUs: 1000, lanes: 0, sequencesFree: 4, cellsFree: 4096, lanesResting: 0, cellsResting: 0, unverified: false, addresses: [],
    seamCertificateSha256: new Uint8Array(createHash('sha256').update(CERTIFICATE).digest()),
    signed: create(SignedAdvertisementSchema),
    ...over,
  };
}

/** `pos`: that the first token will take. */
export function loopFrame(tokens: number[], finish: Finish = Finish.UNSPECIFIED, pos = 0): FrameInit {
  return { phase: Phase.LOOP, nTokens: tokens.length, tokens, finish, pos };
}

/** The other end of an entry seam, frame by frame. */
export class Head {
  readonly near: PacketDuplex;
  readonly #far: PacketDuplex;
  readonly #end: SeamEnd;
  readonly #packets: AsyncIterator<Uint8Array>;

  constructor(lane = LANE) {
    [this.near, this.#far] = packetPair();
    this.#end = new SeamEnd(lane);
    this.#packets = this.#far.read()[Symbol.asyncIterator]();
  }

  /** The next frame that is no ack; nothing when the gateway has closed. */
  async next(): Promise<Frame | undefined> {
    for (;;) {
      const { value, done } = await this.#packets.next();
      if (done === true) {
        return undefined;
      }
      const frame = this.#end.accept(value);
      if (frame !== undefined && (frame.seq !== 0n || frame.open !== undefined)) {
        return frame;
      }
    }
  }

  async send(init: FrameInit): Promise<void> {
    await this.#far.write(this.#end.encode(init), soon());
  }

  async fail(err: MeshnetError): Promise<void> {
    await this.#far.write(this.#end.encodeUnsequenced({ error: toWireError(err) }), soon());
  }

  async opened(): Promise<void> {
    await this.next();
    await this.#far.write(this.#end.encodeUnsequenced({ opened: create(OpenedSchema, { version: 1 }) }), soon());
  }

  /** Turn and all of its ids. */
  async turn(): Promise<{ turn: Frame; ids: number[]; pieces: number }> {
    const turn = await this.next() as Frame;
    const ids: number[] = [];
    for (let pieces = 1; ; pieces++) {
      const { turnTokens } = await this.next() as Frame;
      ids.push(...turnTokens?.ids ?? []);
      if (turnTokens?.last !== false) {
        return { turn, ids, pieces };
      }
    }
  }

  async close(): Promise<void> {
    await this.#far.write(this.#end.encodeClose(), soon());
    await this.#far.close(soon());
  }

  /** Ends without a word. */
  async vanish(): Promise<void> {
    await this.#far.close(soon());
  }
}

/** What happened at the stages of a route, in order: `admit 0`, `link 1 TO_PREVIOUS listen`, `release 0 CANCELLED`. */
export class Stages implements AdmissionClient, PacketDialer {
  readonly log: string[] = [];
  readonly admits: MessageInitShape<typeof AdmitSchema>[] = [];
  readonly leases: StageLease[] = [];
  /** By a line of the log: what happens instead of a yes. `hang` never answers. */
  readonly faults = new Map<string, ErrorCode | 'hang'>();
  readonly positions = new Map<number, number>();
  /** Tickets that are left out, as `stage end`. */
  readonly withheld = new Set<string>();
  head = new Head();
  dialled: BridgeDestination | undefined;
  readonly #waiting = new Map<string, () => void>();

  /** Resolves when that line is reached. */
  reached(line: string): Promise<void> {
    return this.log.includes(line) ? Promise.resolve() : new Promise((resolve) => { this.#waiting.set(line, resolve); });
  }

  async step(line: string, options: WaitOptions): Promise<void> {
    this.log.push(line);
    this.#waiting.get(line)?.();
    const fault = this.faults.get(line);
    if (fault === 'hang') {
      await within(new Promise<never>(() => undefined), line, options);
    } else if (fault !== undefined) {
      throw new MeshnetError(fault);
    }
  }

  async open({ peerId }: { peerId: string }, options: WaitOptions): Promise<AdmissionStream> {
    await this.step(`reach ${peerId}`, options);
    const lease = new StageLease(this, peerId);
    this.leases.push(lease);
    return lease;
  }

  async dial(destination: BridgeDestination, options: { signal: AbortSignal }): Promise<PacketDuplex> {
    await this.step('dial entry', options);
    this.dialled = destination;
    this.head = new Head(destination.lane as typeof LANE);
    return this.head.near;
  }

  released(): string[] {
    return this.log.filter((line) => line.startsWith('release')).toSorted((a, b) => a.localeCompare(b));
  }
}

class StageLease implements AdmissionStream {
  readonly remotePeer: string;
  readonly ended: Promise<MeshnetError | undefined>;
  /** Ends the lease from the stage's side. */
  readonly end: (err?: MeshnetError) => void;
  readonly #stages: Stages;
  #stage = -1;

  constructor(stages: Stages, remotePeer: string) {
    this.#stages = stages;
    this.remotePeer = remotePeer;
    const { promise, resolve } = Promise.withResolvers<MeshnetError | undefined>();
    this.ended = promise;
    this.end = resolve;
  }

  async admit(request: MessageInitShape<typeof AdmitSchema>, options: WaitOptions): Promise<Admitted> {
    this.#stage = request.lane?.stage ?? -1;
    this.#stages.admits[this.#stage] = request;
    await this.#stages.step(`admit ${this.#stage}`, options);
    return create(AdmittedSchema, {
      tickets: (request.seams ?? []).map(({ end }) => end as End)
        .filter((end) => !this.#stages.withheld.has(`${this.#stage} ${End[end]}`))
        .map((end) => ({ end, ticket: new Uint8Array(32).fill(16 * this.#stage + end) })),
      seamCertificate: CERTIFICATE,
      positions: this.#stages.positions.get(this.#stage) ?? request.positions ?? 0,
      leaseTtlMs: 30_000,
    });
  }

  async link(request: MessageInitShape<typeof LinkSchema>, options: WaitOptions): Promise<Linked> {
    const end = request.end as End;
    await this.#stages.step(`link ${this.#stage} ${End[end]} ${request.dial === true ? 'dial' : 'listen'}`, options);
    const path = request.dial === true ? PathKind.DIRECT_GRPC : PathKind.UNSPECIFIED;
    return create(LinkedSchema, { end, path, rttUs: request.ticket?.[0] ?? 0 });
  }

  async rest(): Promise<void> {
    this.#stages.log.push(`rest ${this.#stage}`);
  }

  async resume({ positions = 0 }: MessageInitShape<typeof ResumeSchema>, options: WaitOptions): Promise<Resumed> {
    await this.#stages.step(`resume ${this.#stage}`, options);
    return create(ResumedSchema, { positions: this.#stages.positions.get(this.#stage) ?? positions });
  }

  async release(reason: ErrorCode): Promise<void> {
    this.#stages.log.push(`release ${this.#stage} ${reason}`);
    this.end();
  }
}
