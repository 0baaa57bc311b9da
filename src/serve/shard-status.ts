import type { AtRest } from '../domain/capability.ts';
import { errorFromWire, type ErrorCode } from '../errors.ts';
import type { Report } from '../proto/worker_pb.js';
import type { ShardService } from './shard-service.ts';

export interface Traffic {
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly packetsIn: number;
  readonly packetsOut: number;
}

/** What `status`, `/health` and `/metrics` show of a shard. Sizes in bytes, layers half open. */
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
  /** Of these lanes those between two turns: who needs their room, or their cells and sequence ids, gets it. */
  readonly resting: number;
  readonly cellsFree: number;
  readonly cellsUsed: number;
  readonly cellsTotal: number;
  readonly sequencesUsed: number;
  readonly sequencesTotal: number;
  readonly weightBytes: number;
  readonly kvBytes: number;
  readonly seamPort: number;
  readonly decodeUs: number;
  readonly workerPid: number;
  /** What waits for the engine. */
  readonly queueDepth: number;
  /** Sessions that a tick decodes: mean of recent ticks. */
  readonly batchSize: number;
  /** Medians of recent ticks. */
  readonly tickUs: { readonly decode: number; readonly prefill: number };
  /** Of all seams since the worker started, as it reported last. */
  readonly traffic: Traffic;
  /** Compute units since then, and the positions that were decoded and prefilled in them. */
  readonly ticks: number;
  readonly decoded: number;
  readonly prefilled: number;
  /** What the worker refused since then. */
  readonly refusals: Readonly<Partial<Record<ErrorCode, number>>>;
  readonly error?: { readonly code: string; readonly message: string };
}

export function shardStatus(shard: ShardService, { sessions: resting }: Pick<AtRest, 'sessions'>): ShardStatus {
  const description = shard.worker.description;
  const capability = shard.capability;
  const report = shard.report;
  const loaded = description?.budget;
  const now = report?.budget ?? loaded;
  return {
    state: shard.state,
    verified: false,
    progress: shard.progress,
    architecture: description?.architecture ?? '',
    engineClass: description?.engineClass ?? '',
    layers: [shard.layers.first, shard.layers.last],
    nLayer: shard.nLayer,
    lanes: report?.lanes ?? 0,
    resting,
    cellsFree: capability?.cellsFree ?? 0,
    cellsUsed: (now?.cellsTotal ?? 0) - (now?.cellsFree ?? 0),
    cellsTotal: loaded?.cellsTotal ?? 0,
    sequencesUsed: (now?.sequencesTotal ?? 0) - (now?.sequencesFree ?? 0),
    sequencesTotal: loaded?.sequencesTotal ?? 0,
    weightBytes: Number(loaded?.weightBytes ?? 0n),
    kvBytes: Number(loaded?.kvBytes ?? 0n),
    seamPort: description?.seamPort ?? 0,
    decodeUs: capability?.decodeUs ?? 0,
    workerPid: description?.pid ?? 0,
    queueDepth: report?.queueDepth ?? 0,
    batchSize: report?.batchSize ?? 0,
    tickUs: { decode: report?.decodeTickUs ?? 0, prefill: report?.prefillTickUs ?? 0 },
    traffic: {
      bytesIn: Number(report?.bytesIn ?? 0n), bytesOut: Number(report?.bytesOut ?? 0n),
      packetsIn: Number(report?.packetsIn ?? 0n), packetsOut: Number(report?.packetsOut ?? 0n),
    },
    ticks: Number(report?.ticks ?? 0n),
    decoded: Number(report?.tokensDecoded ?? 0n),
    prefilled: Number(report?.tokensPrefilled ?? 0n),
    refusals: refusalsOf(report),
    ...(shard.error === undefined ? {} : { error: { code: shard.error.code, message: shard.error.message } }),
  };
}

/** Codes that this version does not know are counted as one. */
function refusalsOf(report: Report | undefined): Partial<Record<ErrorCode, number>> {
  const counts: Partial<Record<ErrorCode, number>> = {};
  for (const { code: wire, count } of report?.refusals ?? []) {
    const { code } = errorFromWire(wire, '');
    counts[code] = (counts[code] ?? 0) + Number(count);
  }
  return counts;
}
