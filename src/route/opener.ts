import { randomBytes } from 'node:crypto';
import type { AbortOptions, PacketDialer } from '../worker/packet-duplex.ts';
import type { LaneKey } from '../domain/lane.ts';
import type { PathKind, RouteSummary, Stage } from '../domain/route.ts';
import { MeshnetError, toMeshnetError } from '../errors.ts';
import type { AdmissionClient, AdmissionStream } from '../net/admission-protocol.ts';
import { PathKind as WirePath, SeamEnd, type Admitted } from '../proto/peer_pb.js';
import { DType } from '../proto/seam_pb.js';
import { EntrySeam } from './entry-seam.ts';
import type { Offer } from './offer.ts';

export interface RouteOpenerComponents {
  admissions: AdmissionClient;
  bridge: PacketDialer;
  /** This node's peer id. */
  peerId: string;
}

export interface RouteOpenerInit {
  /** One admission answer or link. @default 10_000 ms */
  answerMs?: number;
  /** Close on the entry seam and Release. @default 5000 ms */
  closeMs?: number;
  /** Silence on the entry seam while a turn runs. @default 60_000 ms */
  idleMs?: number;
}

/** A route with every stage admitted, every seam open. Whoever has it closes it. */
export interface OpenRoute {
  readonly summary: RouteSummary;
  readonly entry: EntrySeam;
  /** Positions that every stage granted. */
  readonly positions: number;
  /** Aborted when a lease has ended by itself, with its error as the reason. */
  readonly lost: AbortSignal;
  /** The orderly end, or with a reason the quick one: every lease released in parallel. Never throws. */
  close(reason?: MeshnetError): Promise<void>;
}

/** A stage refused or could not be reached: which one, so that the next plan leaves it out. */
export class StageError extends Error {
  override readonly name = 'StageError';
  readonly offer: Offer;
  declare readonly cause: MeshnetError;

  constructor(offer: Offer, cause: MeshnetError) {
    super(cause.message, { cause });
    this.offer = offer;
  }
}

interface AdmittedStage {
  readonly offer: Offer;
  readonly lane: LaneKey;
  readonly stream: AdmissionStream;
  readonly admitted: Admitted;
}

/** Admits all stages in parallel, links every seam and opens the entry seam (SPEC.md §4, §5). */
export class RouteOpener {
  readonly #components: RouteOpenerComponents;
  readonly #init: Required<RouteOpenerInit>;

  constructor(components: RouteOpenerComponents, init: RouteOpenerInit = {}) {
    this.#components = components;
    this.#init = { answerMs: 10_000, closeMs: 5000, idleMs: 60_000, ...init };
  }

  /**
   * @throws {StageError} of the stage that refused, failed or was not reached; nothing stays reserved
   * @throws {MeshnetError} CANCELLED, DEADLINE_EXCEEDED
   */
  async open(plan: readonly Stage<Offer>[], positions: number, options: AbortOptions): Promise<OpenRoute> {
    const session = new Uint8Array(randomBytes(16));
    const stages: AdmittedStage[] = [];
    try {
      const results = await Promise.allSettled(plan.map((_, stage) => this.#admit(plan, stage, { session, positions }, options)));
      for (const result of results) {
        if (result.status === 'fulfilled') {
          stages.push(result.value);
        }
      }
      throwFirst(results);
      const paths = await this.#linkAll(stages, options);
      const granted = Math.min(...stages.map(({ admitted }) => admitted.positions));
      const entry = await this.#openEntry(stages, granted, options);
      return this.#openRoute(stages, { entry, paths, positions: granted });
    } catch (err) {
      await this.#release(stages, err instanceof StageError ? err.cause : toMeshnetError(err));
      throw err;
    }
  }

  async #admit(
    plan: readonly Stage<Offer>[], stage: number, { session, positions }: { session: Uint8Array; positions: number }, options: AbortOptions,
  ): Promise<AdmittedStage> {
    const offer = plan[stage]?.candidate as Offer;
    const lane = { session, epoch: 1, stage };
    const answer = { signal: options.signal, timeoutMs: this.#init.answerMs };
    return blame(offer, async () => {
      const stream = await this.#components.admissions.open({ peerId: offer.peerId, addresses: offer.addresses }, answer);
      const admitted = await stream.admit({
        version: 1, lane, nStages: plan.length, modelDigest: offer.modelDigest, layerFirst: offer.range.first,
        layerLast: offer.range.last, positions, deadlineMs: this.#init.answerMs, seams: wishes(plan, stage, this.#components.peerId),
        prefillDtype: DType.DTYPE_F32, decodeDtype: DType.DTYPE_F32,
      }, answer);
      return { offer, lane, stream, admitted };
    });
  }

  /** Path kinds, one per stage: how frames reach it. The entry is told by `#openEntry`. */
  async #linkAll(stages: readonly AdmittedStage[], options: AbortOptions): Promise<WirePath[]> {
    const pairs = stages.slice(1).map((later, i) => ({
      dialler: stages[i] as AdmittedStage, end: SeamEnd.TO_NEXT, listener: later, listenerEnd: SeamEnd.TO_PREVIOUS,
    }));
    const head = stages[0];
    const tail = stages.at(-1);
    if (stages.length >= 3 && head !== undefined && tail !== undefined) {
      pairs.push({ dialler: tail, end: SeamEnd.LOOP, listener: head, listenerEnd: SeamEnd.LOOP });
    }
    const results = await Promise.allSettled(pairs.map(async ({ dialler, end, listener, listenerEnd }) => {
      await this.#link(listener, { end: listenerEnd, other: dialler, otherEnd: end, dial: false }, options);
      return this.#link(dialler, { end, other: listener, otherEnd: listenerEnd, dial: true }, options);
    }));
    throwFirst(results);
    return results.slice(0, stages.length - 1).map((result) => (result as PromiseFulfilledResult<WirePath>).value);
  }

  async #link(
    stage: AdmittedStage, to: { end: SeamEnd; other: AdmittedStage; otherEnd: SeamEnd; dial: boolean }, options: AbortOptions,
  ): Promise<WirePath> {
    return blame(to.dial ? to.other.offer : stage.offer, async () => {
      const { path } = await stage.stream.link({
        end: to.end, advertisement: to.other.offer.signed, seamCertificate: to.other.admitted.seamCertificate,
        ticket: ticketOf(to.other, to.otherEnd), dial: to.dial, attempt: 1, deadlineMs: this.#init.answerMs, peerLane: to.other.lane,
      }, { signal: options.signal, timeoutMs: this.#init.answerMs * 2 });
      return path;
    });
  }

  async #openEntry(stages: readonly AdmittedStage[], positions: number, options: AbortOptions): Promise<EntrySeam & { path: WirePath }> {
    const head = stages[0] as AdmittedStage;
    return blame(head.offer, async () => {
      const signal = AbortSignal.any([options.signal, AbortSignal.timeout(this.#init.answerMs)]);
      const duplex = await this.#components.bridge.dial({
        peerId: head.offer.peerId, addresses: head.offer.addresses, lane: head.lane, end: SeamEnd.ENTRY,
        ticket: ticketOf(head, SeamEnd.ENTRY),
      }, { signal });
      const entry = new EntrySeam(duplex, { lane: head.lane, modelDigest: head.offer.modelDigest, positions, idleMs: this.#init.idleMs });
      try {
        await entry.open({ signal });
      } catch (err) {
        entry.abort(toMeshnetError(err));
        throw err;
      }
      return Object.assign(entry, { path: duplex.path });
    });
  }

  #openRoute(
    stages: readonly AdmittedStage[], { entry, paths, positions }: { entry: EntrySeam & { path: WirePath }; paths: WirePath[]; positions: number },
  ): OpenRoute {
    const summary = {
      epoch: 1,
      stages: stages.map(({ offer }, i) => ({
        peer: offer.peerId, layers: [offer.range.first, offer.range.last] as const, path: pathName(i === 0 ? entry.path : paths[i - 1]),
      })),
    };
    const lost = new AbortController();
    for (const { stream } of stages) {
      void abortOnEnd(stream, lost);
    }
    let closing: Promise<void> | undefined;
    const close = async (reason?: MeshnetError): Promise<void> => {
      closing ??= (async () => {
        if (reason === undefined) {
          await entry.close({ signal: AbortSignal.timeout(this.#init.closeMs) });
        } else {
          entry.abort(reason);
        }
        await this.#release(stages, reason);
      })();
      await closing;
    };
    return { summary, entry, positions, lost: lost.signal, close };
  }

  async #release(stages: readonly AdmittedStage[], reason?: MeshnetError): Promise<void> {
    const code = reason?.code ?? 'CANCELLED';
    await Promise.all(stages.map(({ stream }) => stream.release(code, { timeoutMs: this.#init.closeMs })));
  }
}

async function abortOnEnd(stream: AdmissionStream, lost: AbortController): Promise<void> {
  lost.abort(await stream.ended ?? new MeshnetError('STREAM_ENDED', 'a stage ended the session'));
}

function wishes(plan: readonly Stage<Offer>[], stage: number, gateway: string): { end: SeamEnd; peerId: string }[] {
  const peerAt = (index: number): string => plan[index]?.candidate.peerId as string;
  const last = plan.length - 1;
  const ends = [
    stage === 0 ? { end: SeamEnd.ENTRY, peerId: gateway } : { end: SeamEnd.TO_PREVIOUS, peerId: peerAt(stage - 1) },
  ];
  if (stage < last) {
    ends.push({ end: SeamEnd.TO_NEXT, peerId: peerAt(stage + 1) });
  }
  if (plan.length >= 3 && (stage === 0 || stage === last)) {
    ends.push({ end: SeamEnd.LOOP, peerId: peerAt(stage === 0 ? last : 0) });
  }
  return ends;
}

function ticketOf({ admitted, offer }: AdmittedStage, end: SeamEnd): Uint8Array {
  const found = admitted.tickets.find((ticket) => ticket.end === end);
  if (found === undefined) {
    throw new StageError(offer, new MeshnetError('PROTOCOL_VIOLATION', 'a stage gave no ticket for a seam that it was asked for', { details: { end } }));
  }
  return found.ticket;
}

async function blame<T>(offer: Offer, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (err) {
    throw err instanceof StageError ? err : new StageError(offer, toMeshnetError(err));
  }
}

function throwFirst(results: readonly PromiseSettledResult<unknown>[]): void {
  const failed = results.find((result) => result.status === 'rejected');
  if (failed !== undefined) {
    throw failed.reason;
  }
}

const PATH_NAMES: Readonly<Record<number, PathKind>> = {
  [WirePath.DIRECT_GRPC]: 'direct-grpc', [WirePath.LIBP2P]: 'libp2p', [WirePath.WEBRTC]: 'webrtc', [WirePath.RELAY]: 'relay',
  [WirePath.LOCAL]: 'local',
};

function pathName(path: WirePath | undefined): PathKind {
  return PATH_NAMES[path ?? 0] ?? 'unknown';
}
