import { createHash, randomBytes } from 'node:crypto';
import type { AbortOptions, PacketDialer } from '../worker/packet-duplex.ts';
import type { LaneKey } from '../domain/lane.ts';
import type { PathKind, RouteSummary, Stage } from '../domain/route.ts';
import { MeshnetError, toMeshnetError, type ErrorCode } from '../errors.ts';
import type { AdmissionClient, AdmissionStream } from '../net/admission-protocol.ts';
import { abortError } from '../net/wait.ts';
import { PathKind as WirePath, SeamEnd, type Admitted } from '../proto/peer_pb.js';
import { DType } from '../proto/seam_pb.js';
import { allOrNone } from './all-or-none.ts';
import { EntrySeam } from './entry-seam.ts';
import type { Offer } from './offer.ts';
import { seamsBetween, seamsOf } from './seams.ts';
import { blame, StageError } from './stage-error.ts';

export interface RouteOpenerComponents {
  admissions: AdmissionClient;
  bridge: PacketDialer;
  /** This node's peer id. */
  peerId: string;
}

export interface RouteOpenerInit {
  /** One admission answer or link. @default 10_000 ms */
  answerMs?: number;
  /** The answer of a stage that a session is to go on at; one that is slower is worth a new route. @default 3000 ms */
  resumeMs?: number;
  /** Close on the entry seam and Release. @default 5000 ms */
  closeMs?: number;
  /** Silence on the entry seam while a turn runs. @default 60_000 ms */
  idleMs?: number;
}

/** A route with every stage admitted, every seam open. Whoever has it closes it. */
export interface OpenRoute {
  readonly summary: RouteSummary;
  readonly entry: Pick<EntrySeam, 'turn'>;
  /** Positions that were asked for and that every stage granted, so far. */
  readonly positions: number;
  /** Aborted when a lease has ended by itself, with its error as the reason. */
  readonly lost: AbortSignal;
  /** Between two turns: a stage may end the session from now on, when it needs its room. Never throws. */
  rest(): Promise<void>;
  /**
   * Before a turn behind a rest: every stage still has the session, does not end it for others any more and grants so many
   * positions in all.
   *
   * @throws {MeshnetError} of a stage that has ended it, has no room or does not answer; the route is only to be closed then
   */
  resume(positions: number, options: AbortOptions): Promise<void>;
  /** The orderly end, or with a reason the quick one: every lease released in parallel. Never throws. */
  close(reason?: MeshnetError): Promise<void>;
}

interface AdmittedStage {
  readonly offer: Offer;
  readonly lane: LaneKey;
  readonly stream: AdmissionStream;
  readonly admitted: Admitted;
}

/** One end of a seam, to be linked with the other. */
interface LinkEnd {
  readonly stage: AdmittedStage;
  readonly end: SeamEnd;
}

/** The dialling stage's own: whatever else fails a dialling Link lies at the stage that it dials, or between them. */
const DIALLERS_FAULT: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'STREAM_ENDED', 'DEADLINE_EXCEEDED', 'WORKER_LOST', 'DRAINING', 'LEASE_EXPIRED', 'NOT_SERVING', 'RESOURCE_EXHAUSTED',
  'PROTOCOL_VIOLATION',
]);

/** A stage that does not believe what the other one signed. */
const OTHERS_FAULT: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['ADVERTISEMENT_INVALID', 'DIGEST_MISMATCH']);

/** Admits all stages in parallel, links every seam and opens the entry seam (SPEC.md §4, §5). */
export class RouteOpener {
  readonly #components: RouteOpenerComponents;
  readonly #init: Required<RouteOpenerInit>;

  constructor(components: RouteOpenerComponents, init: RouteOpenerInit = {}) {
    this.#components = components;
    this.#init = { answerMs: 10_000, resumeMs: 3000, closeMs: 5000, idleMs: 60_000, ...init };
  }

  /**
   * @throws {StageError} of the first stage that refused, failed or was not reached; nothing stays reserved
   * @throws {MeshnetError} CANCELLED, DEADLINE_EXCEEDED, the reason of the signal
   */
  async open(plan: readonly Stage<Offer>[], positions: number, options: AbortOptions): Promise<OpenRoute> {
    const session = new Uint8Array(randomBytes(16));
    const held: AdmittedStage[] = [];
    try {
      const stages = await allOrNone(plan.map((_, stage) => (inner: AbortOptions) =>
        this.#admit(plan, { session, epoch: 1, stage }, { ...inner, positions })), options, (stage) => { held.push(stage); });
      const paths = await this.#linkAll(stages, options);
      const granted = Math.min(positions, ...stages.map(({ admitted }) => admitted.positions));
      const entry = await this.#openEntry(stages, { ...options, positions: granted });
      return this.#routeOf(stages, { entry, paths, positions: granted });
    } catch (err) {
      const reason = err instanceof StageError ? err.cause : toMeshnetError(err);
      await this.#release(held, options.signal.aborted ? abortError(options.signal, 'a route') : reason);
      throw options.signal.aborted ? abortError(options.signal, 'opening a route') : err;
    }
  }

  async #admit(
    plan: readonly Stage<Offer>[], lane: LaneKey, { positions, signal }: AbortOptions & { positions: number },
  ): Promise<AdmittedStage> {
    const offers = plan.map(({ candidate }) => candidate);
    const offer = offers[lane.stage] as Offer;
    const { answerMs } = this.#init;
    const answer = { signal, timeoutMs: answerMs };
    return blame(() => offer, async () => {
      const stream = await this.#components.admissions.open({ peerId: offer.peerId, addresses: offer.addresses }, answer);
      const admitted = await stream.admit({
        version: 1, lane, nStages: plan.length, modelDigest: offer.modelDigest, layerFirst: offer.range.first,
        layerLast: offer.range.last, positions, deadlineMs: answerMs,
        seams: seamsOf(lane.stage, plan.length).map(({ end, other }) => ({
          end, peerId: other === undefined ? this.#components.peerId : (offers[other] as Offer).peerId,
        })),
        prefillDtype: DType.DTYPE_F32, decodeDtype: DType.DTYPE_F32,
      }, answer);
      if (!isOfBoot(admitted, offer)) {
        await stream.release('PEER_MISMATCH', { timeoutMs: this.#init.closeMs });
        throw new MeshnetError('PEER_MISMATCH', 'the shard was started again since it was found', { details: { stage: lane.stage } });
      }
      return { offer, lane, stream, admitted };
    });
  }

  /** How frames reach each stage but the head, whose path is the entry seam's. The listener is ready before anybody dials. */
  async #linkAll(stages: readonly AdmittedStage[], options: AbortOptions): Promise<WirePath[]> {
    const paths = await allOrNone(seamsBetween(stages.length).map((pair) => async (inner: AbortOptions) => {
      const dialler = { stage: stages[pair.dialler] as AdmittedStage, end: pair.diallerEnd };
      const listener = { stage: stages[pair.listener] as AdmittedStage, end: pair.listenerEnd };
      await this.#link(listener, dialler, { ...inner, dial: false });
      return this.#link(dialler, listener, { ...inner, dial: true });
    }), options);
    return paths.slice(0, stages.length - 1);
  }

  #link({ stage, end }: LinkEnd, other: LinkEnd, { dial, signal }: AbortOptions & { dial: boolean }): Promise<WirePath> {
    const { answerMs } = this.#init;
    const faulty = ({ code }: MeshnetError): Offer =>
      OTHERS_FAULT.has(code) || (dial && !DIALLERS_FAULT.has(code)) ? other.stage.offer : stage.offer;
    return blame(faulty, async () => {
      const { path } = await stage.stream.link({
        end, dial, attempt: 1, deadlineMs: answerMs, peerLane: other.stage.lane, ticket: ticketOf(other),
        advertisement: other.stage.offer.signed, seamCertificate: other.stage.admitted.seamCertificate,
      }, { signal, timeoutMs: answerMs * 2 });
      return path;
    });
  }

  async #openEntry(
    stages: readonly AdmittedStage[], { positions, signal }: AbortOptions & { positions: number },
  ): Promise<EntrySeam> {
    const head = stages[0] as AdmittedStage;
    const { offer: { peerId, addresses, modelDigest }, lane } = head;
    const { answerMs, idleMs } = this.#init;
    const limit = { signal: AbortSignal.any([signal, AbortSignal.timeout(answerMs)]) };
    return blame(() => head.offer, async () => {
      const ticket = ticketOf({ stage: head, end: SeamEnd.ENTRY });
      const duplex = await this.#components.bridge.dial({ peerId, addresses, lane, end: SeamEnd.ENTRY, ticket }, limit);
      const entry = new EntrySeam(duplex, { lane, modelDigest, positions, idleMs });
      try {
        await entry.open(limit);
      } catch (err) {
        entry.abort(toMeshnetError(err));
        throw err;
      }
      return entry;
    });
  }

  #routeOf(
    stages: readonly AdmittedStage[],
    { entry, paths, positions }: { entry: EntrySeam; paths: readonly WirePath[]; positions: number },
  ): OpenRoute {
    const summary = {
      epoch: 1,
      stages: stages.map(({ offer: { peerId, range } }, i) => ({
        peer: peerId, layers: [range.first, range.last] as const, path: pathName(i === 0 ? entry.path : paths[i - 1]),
      })),
    };
    const lost = new AbortController();
    for (const { stream } of stages) {
      void abortOnEnd(stream, lost);
    }
    let closing: Promise<void> | undefined;
    let granted = positions;
    return {
      summary, entry, lost: lost.signal,
      get positions() {
        return granted;
      },
      rest: async () => {
        await Promise.all(stages.map(({ stream }) => stream.rest({ timeoutMs: this.#init.closeMs })));
      },
      resume: async (wanted, options) => {
        const most = Math.max(granted, wanted);
        granted = Math.min(most, await this.#resume(stages, { ...options, positions: wanted }));
      },
      close: (reason) => closing ??= this.#close(stages, entry, reason),
    };
  }

  async #resume(stages: readonly AdmittedStage[], { positions, signal }: AbortOptions & { positions: number }): Promise<number> {
    const answers = await allOrNone(stages.map(({ stream }) => (inner: AbortOptions) =>
      stream.resume({ positions }, { ...inner, timeoutMs: this.#init.resumeMs })), { signal });
    return Math.min(...answers.map((answer) => answer.positions));
  }

  async #close(stages: readonly AdmittedStage[], entry: EntrySeam, reason: MeshnetError | undefined): Promise<void> {
    if (reason === undefined) {
      await entry.close({ signal: AbortSignal.timeout(this.#init.closeMs) });
      await this.#release(stages, reason);
    } else {
      // A head that takes nothing any more holds up no other stage.
      await Promise.all([entry.leave(reason), this.#release(stages, reason)]);
    }
  }

  async #release(stages: readonly AdmittedStage[], reason: MeshnetError | undefined): Promise<void> {
    const code = reason?.code ?? 'CANCELLED';
    await Promise.all(stages.map(({ stream }) => stream.release(code, { timeoutMs: this.#init.closeMs })));
  }
}

async function abortOnEnd(stream: AdmissionStream, lost: AbortController): Promise<void> {
  lost.abort(await stream.ended ?? new MeshnetError('STREAM_ENDED', 'a stage ended the session'));
}

/** Every boot has a certificate of its own: another one would make the neighbours refuse the Link. */
function isOfBoot({ seamCertificate }: Admitted, { seamCertificateSha256 }: Offer): boolean {
  return seamCertificate.byteLength === 0
    ? seamCertificateSha256.byteLength === 0
    : createHash('sha256').update(seamCertificate).digest().equals(seamCertificateSha256);
}

function ticketOf({ stage: { admitted, offer }, end }: LinkEnd): Uint8Array {
  const found = admitted.tickets.find((ticket) => ticket.end === end);
  if (found === undefined) {
    const what = 'a stage gave no ticket for a seam that it was asked for';
    throw new StageError(offer, new MeshnetError('PROTOCOL_VIOLATION', what, { details: { end } }));
  }
  return found.ticket;
}

const PATH_NAMES: Readonly<Record<number, PathKind>> = {
  [WirePath.DIRECT_GRPC]: 'direct-grpc', [WirePath.LIBP2P]: 'libp2p', [WirePath.WEBRTC]: 'webrtc', [WirePath.RELAY]: 'relay',
  [WirePath.LOCAL]: 'local',
};

function pathName(path: WirePath | undefined): PathKind {
  return PATH_NAMES[path ?? 0] ?? 'unknown';
}
