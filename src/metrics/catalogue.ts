/** Every metric that a node shows, once. METRICS.md has the same table, and a test holds the two together. */
import { LIMITS } from '../domain/limits.ts';
import { ERROR_CODES, type ErrorCode } from '../errors.ts';
import { OUTCOMES } from '../gateway/observer.ts';

export type MetricType = 'counter' | 'gauge' | 'histogram';

/** The values that a label may have: never a peer, a session or a model. */
export interface LabelSpec {
  readonly values: readonly string[];
  /** In documents, where they are many. */
  readonly said?: string;
}

export interface MetricSpec {
  readonly type: MetricType;
  /** For people, in one line. */
  readonly help: string;
  readonly labels?: Readonly<Record<string, LabelSpec>>;
  /** Upper bounds, in the unit of the name. */
  readonly buckets?: readonly number[];
}

export const PARTS = ['queue', 'compute', 'handover', 'network'] as const;
export type Part = (typeof PARTS)[number];

/** The way round the ring belongs to no stage. */
export const RING = 'ring';
const STAGES = [...Array.from({ length: LIMITS.stagesPerRoute }, (_, stage) => String(stage)), RING];

const reason: LabelSpec = {
  values: Object.keys(ERROR_CODES).map((code) => reasonOf(code as ErrorCode)), said: 'an error code in lower case',
};
const phase: LabelSpec = { values: ['decode', 'prefill'] };
const direction: LabelSpec = { values: ['in', 'out'] };

/** As a label value. */
export function reasonOf(code: ErrorCode): string {
  return code.toLowerCase();
}

export const CATALOGUE = {
  meshnet_requests_total: {
    type: 'counter', labels: { outcome: { values: OUTCOMES } },
    help: 'Requests for an answer that have ended: refused before a route was open, failed after that, or cancelled.',
  },
  meshnet_refusals_total: {
    type: 'counter', labels: { by: { values: ['gateway', 'admission'] }, reason },
    help: 'Requests that the gateway refused, and sessions that this node did not admit to its shard.',
  },
  meshnet_failures_total: {
    type: 'counter', labels: { reason },
    help: 'Answers that broke off after their route was open.',
  },
  meshnet_sessions_active: {
    type: 'gauge', labels: { role: { values: ['gateway', 'shard'] } },
    help: 'Answers with an open route, and sessions that hold a place on this shard.',
  },
  meshnet_warm_sessions: {
    type: 'gauge', help: 'Sessions of this gateway that rest on their routes until their conversations go on.',
  },
  meshnet_cached_tokens_total: {
    type: 'counter', help: 'Tokens of prompts that a warm session held already, so that they were not computed again.',
  },
  meshnet_queue_depth: {
    type: 'gauge', labels: { queue: { values: ['requests', 'engine'] } },
    help: 'Requests that wait for a route, and what waits for the engine: sessions that could run, and messages.',
  },
  meshnet_time_to_first_token_seconds: {
    type: 'histogram', buckets: [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120],
    help: 'From a request to the first token of its answer, as the gateway sees it.',
  },
  meshnet_time_per_output_token_seconds: {
    type: 'histogram', buckets: [0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 10],
    help: 'From a token to the next one, as the gateway sees it.',
  },
  meshnet_seam_seconds: {
    type: 'histogram', buckets: [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5],
    labels: { stage: { values: STAGES, said: `0 to ${LIMITS.stagesPerRoute - 1}, ${RING}` }, part: { values: PARTS } },
    help: 'Where the time per output token went: what each stage says of itself, and round the ring what none claims.',
  },
  meshnet_kv_cells_used: { type: 'gauge', help: 'KV cells of this shard that sessions have reserved.' },
  meshnet_kv_cells_capacity: { type: 'gauge', help: 'KV cells of this shard.' },
  meshnet_sequence_ids_used: { type: 'gauge', help: 'Sequence ids of this shard that sessions hold.' },
  meshnet_sequence_ids_capacity: { type: 'gauge', help: 'Sequence ids of this shard: sessions that fit at once.' },
  meshnet_batch_size: { type: 'gauge', help: 'Sessions that a tick decodes, mean of the last 64 that decoded any.' },
  meshnet_tick_seconds: {
    type: 'gauge', labels: { phase },
    help: 'Computing of a tick, median of the last 64; one that has any prefill counts as prefill.',
  },
  meshnet_ticks_total: { type: 'counter', help: 'Ticks that the worker has computed.' },
  meshnet_positions_total: { type: 'counter', labels: { phase }, help: 'Positions that the worker has computed.' },
  meshnet_seam_bytes_total: { type: 'counter', labels: { direction }, help: 'Bytes on the seams of the worker.' },
  meshnet_seam_packets_total: { type: 'counter', labels: { direction }, help: 'Packets on the seams of the worker.' },
  meshnet_worker_refusals_total: {
    type: 'counter', labels: { reason },
    help: 'What the worker refused: sessions, links, streams and frames.',
  },
} as const satisfies Record<string, MetricSpec>;

export type MetricName<T extends MetricType = MetricType> = {
  [N in keyof typeof CATALOGUE]: (typeof CATALOGUE)[N]['type'] extends T ? N : never
}[keyof typeof CATALOGUE];
