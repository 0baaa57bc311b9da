import type { ShardService } from './shard-service.ts';

export interface Traffic {
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly packetsIn: number;
  readonly packetsOut: number;
}

/** What `status` and `/health` show of a shard. Sizes in bytes, layers half open. */
export interface ShardStatus {
  readonly state: string;
  /** Another peer has dialled back. */
  readonly verified: boolean;
  readonly progress: number;
  readonly architecture: string;
  readonly engineClass: string;
  readonly layers: readonly [number, number];
  readonly nLayer: number;
  readonly lanes: number;
  readonly cellsFree: number;
  readonly cellsTotal: number;
  readonly weightBytes: number;
  readonly kvBytes: number;
  readonly seamPort: number;
  readonly decodeUs: number;
  readonly workerPid: number;
  /** Of all seams since the worker started, as it reported last. */
  readonly traffic: Traffic;
  /** Compute units since then, and the positions that were decoded in them. */
  readonly ticks: number;
  readonly decoded: number;
  readonly error?: { readonly code: string; readonly message: string };
}

export function shardStatus(shard: ShardService): ShardStatus {
  const description = shard.worker.description;
  const capability = shard.capability;
  const budget = description?.budget;
  const report = shard.report;
  return {
    state: shard.state,
    verified: false,
    progress: shard.progress,
    architecture: description?.architecture ?? '',
    engineClass: description?.engineClass ?? '',
    layers: [shard.layers.first, shard.layers.last],
    nLayer: shard.nLayer,
    lanes: capability?.lanes ?? 0,
    cellsFree: capability?.cellsFree ?? 0,
    cellsTotal: budget?.cellsTotal ?? 0,
    weightBytes: Number(budget?.weightBytes ?? 0n),
    kvBytes: Number(budget?.kvBytes ?? 0n),
    seamPort: description?.seamPort ?? 0,
    decodeUs: capability?.decodeUs ?? 0,
    workerPid: description?.pid ?? 0,
    traffic: {
      bytesIn: Number(report?.bytesIn ?? 0n), bytesOut: Number(report?.bytesOut ?? 0n),
      packetsIn: Number(report?.packetsIn ?? 0n), packetsOut: Number(report?.packetsOut ?? 0n),
    },
    ticks: Number(report?.ticks ?? 0n),
    decoded: Number(report?.tokensDecoded ?? 0n),
    ...(shard.error === undefined ? {} : { error: { code: shard.error.code, message: shard.error.message } }),
  };
}
