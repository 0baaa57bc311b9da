import type { LaneKey } from '../domain/lane.ts';
import { laneId } from '../domain/lane.ts';
import { MeshnetError } from '../errors.ts';
import type { SeamEnd } from '../proto/peer_pb.js';
import type { ControlClient } from '../worker/control-client.ts';
import type { GrpcTarget } from '../worker/grpc.ts';
import type { ShardService } from './shard-service.ts';

/** One end of a seam of a lane, as admission fixed it. */
export interface SeamGrant {
  readonly peerId: string;
  /** Whoever dials this end presents it. */
  readonly ticket: Uint8Array;
}

/** A lane that this node holds for somebody. */
export interface LeasedLane {
  readonly key: LaneKey;
  readonly nStages: number;
  readonly shard: ShardService;
  /** The boot that holds it; a later one knows nothing of it. */
  readonly client: ControlClient;
  readonly target: GrpcTarget;
  readonly seams: ReadonlyMap<SeamEnd, SeamGrant>;
  /** Aborted when the lane's bridged seams have to be gone. */
  readonly life: AbortSignal;
  /** Ends the lease from here, with the error or in order. */
  end(err?: MeshnetError): void;
}

/** The lanes of all shards of this node. */
export class LaneTable {
  readonly #lanes = new Map<string, LeasedLane>();

  get size(): number {
    return this.#lanes.size;
  }

  get(key: LaneKey): LeasedLane | undefined {
    return this.#lanes.get(laneId(key));
  }

  /** @throws {MeshnetError} LANE_EXISTS */
  add(lane: LeasedLane): void {
    const id = laneId(lane.key);
    if (this.#lanes.has(id)) {
      throw new MeshnetError('LANE_EXISTS', undefined, { details: { stage: lane.key.stage, epoch: lane.key.epoch } });
    }
    this.#lanes.set(id, lane);
  }

  delete(key: LaneKey): void {
    this.#lanes.delete(laneId(key));
  }

  /** Those of one shard. */
  of(shard: ShardService): LeasedLane[] {
    return [...this.#lanes.values()].filter((lane) => lane.shard === shard);
  }
}
