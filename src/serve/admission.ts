import type { MessageInitShape } from '@bufbuild/protobuf';
import { type AtRest, grantedPositions } from '../domain/capability.ts';
import { type LaneKey, shortSession } from '../domain/lane.ts';
import { LIMITS } from '../domain/limits.ts';
import { fromWireError } from '../domain/wire-error.ts';
import { type ErrorCode, MeshnetError, toMeshnetError, wireCode } from '../errors.ts';
import type { AdmissionHandler, Lease, LeaseEnd } from '../net/admission-protocol.ts';
import type { Admit, AdmittedSchema, Link, LinkedSchema, Resume, ResumedSchema } from '../proto/peer_pb.js';
import type { LaneEnded } from '../proto/worker_pb.js';
import type { ControlClient } from '../worker/control-client.ts';
import { checkAdmit, type CheckedAdmit } from './admit-check.ts';
import type { LaneTable, LeasedLane, SeamGrant } from './lanes.ts';
import type { Linker } from './linker.ts';
import { type ServeLog, silentLog } from './log.ts';
import { withRoom } from './no-room.ts';
import { RestingSessions } from './resting.ts';
import type { ShardService } from './shard-service.ts';

/** Hears of every session that is not admitted. */
export interface AdmissionObserver {
  sessionRefused(reason: ErrorCode): void;
}

export interface AdmissionComponents {
  readonly shards: readonly ShardService[];
  readonly lanes: LaneTable;
  readonly linker: Linker;
  readonly log?: ServeLog;
  readonly observer?: AdmissionObserver;
}

export interface AdmissionInit {
  /** Leases that one peer may hold, those being asked for included. @default 64 */
  readonly sessionsPerPeer?: number;
  /** Benchmarks: boundary types without evidence are let through. @default false */
  readonly anyDtype?: boolean;
  /** From the end of a lease to the end of its bridged seams, whatever they do. @default 10000 ms */
  readonly lingerMs?: number;
}

/** When a peer with too many sessions may ask again. */
const RATE_RETRY_MS = 1_000;

interface Held {
  readonly lane: LeasedLane;
  readonly cut: AbortController;
  readonly peerId: string;
  positions: number;
}

/** What needs room of a shard. */
interface Need {
  readonly shard: ShardService;
  readonly client: ControlClient;
  readonly positions: number;
}

/** Says yes or no to sessions, keeps their leases and links their seams: the stage's side of `/meshnet/admit/1`. */
export class Admission implements AdmissionHandler {
  readonly #shards: readonly ShardService[];
  readonly #lanes: LaneTable;
  readonly #linker: Linker;
  readonly #log: ServeLog;
  readonly #observer: AdmissionObserver | undefined;
  readonly #init: Required<AdmissionInit>;
  readonly #held = new Map<number, Held>();
  /** Those of them that may be ended for others. */
  readonly #resting = new RestingSessions<Held>();
  /** Leases by peer, those being asked for included. */
  readonly #perPeer = new Map<string, number>();
  readonly #lingering = new Set<NodeJS.Timeout>();
  readonly #releasing = new Set<Promise<void>>();
  readonly #unsubscribe: (() => void)[] = [];

  constructor(components: AdmissionComponents, init: AdmissionInit = {}) {
    this.#shards = components.shards;
    this.#lanes = components.lanes;
    this.#linker = components.linker;
    this.#log = components.log ?? silentLog;
    this.#observer = components.observer;
    this.#init = {
      sessionsPerPeer: init.sessionsPerPeer ?? 64,
      anyDtype: init.anyDtype ?? false,
      lingerMs: init.lingerMs ?? 10_000,
    };
  }

  /** Leases held now. */
  get size(): number {
    return this.#held.size;
  }

  /** What rests on a shard: its room is there for others. */
  atRest(shard: ShardService): AtRest {
    return this.#resting.of(shard);
  }

  /** After the last lease has ended: waits until the workers know. */
  async stop(): Promise<void> {
    for (const unsubscribe of this.#unsubscribe.splice(0)) {
      unsubscribe();
    }
    await Promise.all(this.#releasing);
    for (const timer of this.#lingering) {
      clearTimeout(timer);
    }
    this.#lingering.clear();
    for (const { cut } of this.#held.values()) {
      cut.abort(new MeshnetError('CANCELLED', 'the node stops'));
    }
  }

  async admit(request: Admit, lease: Lease): Promise<Omit<MessageInitShape<typeof AdmittedSchema>, '$typeName'>> {
    this.#listen();
    try {
      return await this.#admit(request, lease);
    } catch (err) {
      const { code, details } = toMeshnetError(err);
      this.#observer?.sessionRefused(code);
      this.#log.info({ peer: lease.remotePeer, code, details }, 'session refused');
      throw err;
    }
  }

  async link(request: Link, lease: Lease): Promise<Omit<MessageInitShape<typeof LinkedSchema>, '$typeName'>> {
    const held = this.#held.get(lease.id);
    if (held === undefined) {
      throw new MeshnetError('LANE_NOT_OPEN', 'a Link came before its admission');
    }
    return this.#linker.link(held.lane, request, { signal: lease.signal });
  }

  rest(lease: Lease): void {
    const held = this.#held.get(lease.id);
    if (held !== undefined) {
      this.#resting.add(held);
    }
  }

  async resume(request: Resume, lease: Lease): Promise<Omit<MessageInitShape<typeof ResumedSchema>, '$typeName'>> {
    const held = this.#held.get(lease.id);
    const capability = held?.lane.shard.capability;
    if (held === undefined || capability === undefined) {
      throw new MeshnetError('LANE_NOT_OPEN', 'there is no session to go on with');
    }
    this.#resting.delete(held);
    const { lane: { key, client, shard } } = held;
    const positions = grantedPositions(capability, request.positions);
    if (positions > held.positions) {
      await this.#makingRoom({ shard, client, positions: positions - held.positions }, lease, () =>
        client.extend({ lane: key, positions }, { signal: lease.signal }));
      held.positions = positions;
    }
    return { positions: held.positions };
  }

  ended(lease: Lease, reason: LeaseEnd, releaseCode?: ErrorCode): void {
    const held = this.#held.get(lease.id);
    if (held === undefined) {
      return;
    }
    const { lane, cut } = held;
    this.#held.delete(lease.id);
    this.#resting.delete(held);
    this.#lanes.delete(lane.key);
    this.#countOut(lease.remotePeer);
    this.#log.info({ ...factsOf(lane.key), peer: lease.remotePeer, reason, code: releaseCode }, 'session closed');
    this.#release(lane.client, lane.key, releaseCode ?? END_CODES[reason]);
    // The worker's Close frames may still be on their way across a bridge.
    const timer = setTimeout(() => {
      this.#lingering.delete(timer);
      cut.abort(new MeshnetError('LEASE_EXPIRED', 'the lease of a bridged seam is over'));
    }, this.#init.lingerMs);
    timer.unref();
    this.#lingering.add(timer);
  }

  async #admit(request: Admit, lease: Lease): ReturnType<AdmissionHandler['admit']> {
    this.#countIn(lease.remotePeer);
    try {
      const checked = checkAdmit(request, this.#shards, { peerId: lease.remotePeer, anyDtype: this.#init.anyDtype });
      return await this.#reserve(request, checked, lease);
    } catch (err) {
      this.#countOut(lease.remotePeer);
      throw err;
    }
  }

  async #reserve(
    request: Admit,
    { lane: asked, shard, seams }: CheckedAdmit,
    lease: Lease,
  ): Promise<Omit<MessageInitShape<typeof AdmittedSchema>, '$typeName'>> {
    const { client, target, description } = shard.worker;
    const capability = shard.capability;
    if (target === undefined || description === undefined || capability === undefined) {
      throw new MeshnetError('NOT_SERVING');
    }
    const key: LaneKey = { session: asked.session, epoch: asked.epoch, stage: asked.stage };
    if (this.#lanes.get(key) !== undefined) {
      throw new MeshnetError('LANE_EXISTS', undefined, { details: { stage: key.stage, epoch: key.epoch } });
    }
    const positions = grantedPositions(capability, request.positions);
    try {
      const reply = await this.#makingRoom({ shard, client, positions }, lease, () => client.admit({
        lane: key,
        nStages: request.nStages,
        modelDigest: request.modelDigest,
        positions,
        holdMs: LIMITS.admitHoldMs,
        // The numbers of both enums are the same (peer.proto).
        seams: [...seams].map(([end, peerId]) => ({ role: end as number, peerId })),
        prefillDtype: request.prefillDtype,
        decodeDtype: request.decodeDtype,
      }, { signal: lease.signal }));
      const tickets = new Map(reply.tickets.map(({ role, ticket }) => [role as number, ticket]));
      const grants = new Map<number, SeamGrant>();
      for (const [end, peerId] of seams) {
        const ticket = tickets.get(end);
        if (ticket?.byteLength !== LIMITS.ticketBytes) {
          throw new MeshnetError('INTERNAL', 'the worker gave no ticket for a seam', { details: { end } });
        }
        grants.set(end, { peerId, ticket });
      }
      this.#hold({ key, nStages: request.nStages, shard, client, target, seams: grants }, { lease, positions: reply.positions });
      return {
        tickets: [...grants].map(([end, { ticket }]) => ({ end, ticket })),
        seamCertificate: shard.direct ? description.certificate : new Uint8Array(),
        positions: reply.positions,
        leaseTtlMs: LIMITS.leaseTtlMs,
        maxChunkTokens: description.maxChunkTokens,
      };
    } catch (err) {
      const failure = toMeshnetError(err);
      // Somebody else's lane of this name is not ours to free.
      if (failure.code !== 'LANE_EXISTS') {
        this.#release(client, key, failure.code);
      }
      throw failure;
    }
  }

  /** What `work` gives. When there is no room, sessions at rest are ended, if that makes enough of it. */
  async #makingRoom<T>({ shard, client, positions }: Need, { signal }: Lease, work: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await work();
      } catch (err) {
        const failure = toMeshnetError(err);
        if (failure.code !== 'NO_CAPACITY') {
          throw failure;
        }
        const refusal = await withRoom(failure, { client, positions }, { signal });
        const enough = this.#resting.thatHave(positions - Number(refusal.details['availablePositions'] ?? 0), shard);
        if (enough === undefined) {
          throw refusal;
        }
        this.#endForOthers(enough);
        await Promise.all(this.#releasing);
      }
    }
  }

  #endForOthers(sessions: readonly Held[]): void {
    for (const session of sessions) {
      this.#resting.delete(session);
      session.lane.end(new MeshnetError('LEASE_EXPIRED', 'the room of a session at rest was needed for another one'));
    }
  }

  #hold(lane: Omit<LeasedLane, 'life' | 'end'>, { lease, positions }: { lease: Lease; positions: number }): void {
    const cut = new AbortController();
    const leased: LeasedLane = { ...lane, life: cut.signal, end: (err) => lease.end(err) };
    this.#lanes.add(leased);
    this.#held.set(lease.id, { lane: leased, cut, peerId: lease.remotePeer, positions });
    this.#log.info({ ...factsOf(lane.key), peer: lease.remotePeer }, 'session opened');
  }

  /** Hears of lanes that end by themselves, from the first session until the stop. */
  #listen(): void {
    for (const shard of this.#unsubscribe.length > 0 ? [] : this.#shards) {
      const onLost = (err: MeshnetError): void => this.#shardLost(shard, err);
      shard.on('laneEnded', this.#onLaneEnded);
      shard.on('lost', onLost);
      this.#unsubscribe.push(() => shard.off('laneEnded', this.#onLaneEnded).off('lost', onLost));
    }
  }

  readonly #onLaneEnded = ({ lane, error }: LaneEnded): void => {
    if (lane !== undefined) {
      this.#lanes.get(lane)?.end(error === undefined || error.code === 0 ? undefined : fromWireError(error));
    }
  };

  #shardLost(shard: ShardService, cause: MeshnetError): void {
    for (const lane of this.#lanes.of(shard)) {
      lane.end(new MeshnetError('WORKER_LOST', 'the worker of this stage was lost', {
        cause,
        details: { faultStage: lane.key.stage },
      }));
    }
  }

  #release(client: ControlClient, lane: LaneKey, code: ErrorCode | undefined): void {
    const reason = code === undefined ? 0 : wireCode(code);
    const released = client.release({ lane, reason }, { signal: new AbortController().signal })
      // A worker that cannot be told any more holds nothing any more.
      .catch((err: unknown) => this.#log.debug({ ...factsOf(lane), code: toMeshnetError(err).code }, 'lane not released'))
      .finally(() => this.#releasing.delete(released));
    this.#releasing.add(released);
  }

  #countIn(peerId: string): void {
    const isFull = (): boolean => (this.#perPeer.get(peerId) ?? 0) >= this.#init.sessionsPerPeer;
    const oldest = isFull() ? this.#resting.oldestOf(peerId) : undefined;
    this.#endForOthers(oldest === undefined ? [] : [oldest]);
    const count = this.#perPeer.get(peerId) ?? 0;
    if (isFull()) {
      throw new MeshnetError('RATE_EXCEEDED', 'this peer holds as many sessions as one may', {
        details: { sessions: count, limit: this.#init.sessionsPerPeer, retryAfterMs: RATE_RETRY_MS },
      });
    }
    this.#perPeer.set(peerId, count + 1);
  }

  #countOut(peerId: string): void {
    const count = (this.#perPeer.get(peerId) ?? 1) - 1;
    if (count > 0) {
      this.#perPeer.set(peerId, count);
    } else {
      this.#perPeer.delete(peerId);
    }
  }
}

function factsOf(lane: LaneKey): { session: string; epoch: number; stage: number } {
  return { session: shortSession(lane.session), epoch: lane.epoch, stage: lane.stage };
}

/** What the worker is told of ends that have no code of their own; nothing for an orderly one. */
const END_CODES: Readonly<Partial<Record<LeaseEnd, ErrorCode>>> = {
  expired: 'LEASE_EXPIRED',
  'stream-ended': 'LEASE_EXPIRED',
  failed: 'CANCELLED',
  stopped: 'CANCELLED',
};
