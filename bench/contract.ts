/**
 * The thresholds of `CONTRACT.md` for programs; a test keeps both equal. Nothing else decides.
 *
 * A bound names a figure (`<measure>/<system>_over_<opponent>`) of all lanes that have the fields of `lane`, each from the newest
 * record of `bench` in which it was undisturbed, on the machine and with the engine of its newest record.
 */
import type { LaneKey } from './runner/lane-record.ts';

export interface Bound {
  readonly lane?: LaneKey;
  readonly figure: string;
  readonly atLeast?: number;
  readonly atMost?: number;
}

export interface Threshold {
  readonly id: string;
  readonly what: string;
  /** Whose records have the figures. */
  readonly bench?: string;
  /** All of them have to hold. */
  readonly bounds?: readonly Bound[];
  /** What holds it where no record can: a test, an option. */
  readonly heldBy?: string;
  /** It is what that other threshold says. */
  readonly sameAs?: string;
}

/** Gate 1 is decided over its lanes and formats by `judging/gate1-decision.ts`. */
export const GATE1 = {
  speed: { decode: 1.5, prefill: 0.8 },
  fit: { memory: 0.5, decode: 0.8 },
  quality: { f16: 1e-5, q8_0: 5e-3 },
  reference: { kl: 1e-5, difference: 5e-3 },
} as const;

/** One way, where meshes are measured. */
export const DELAYS_MS = [0, 5, 20, 50] as const;

/** Sessions at once, where a mesh is measured with many. */
export const SESSIONS = [1, 2, 4, 8, 16, 32] as const;

/** What a token may take above the whole model's time and two delays: the larger of the two. */
export const R3_ALLOWANCE = { ms: 4, share: 0.05 } as const;

/** One way, where a long prompt meets decoders. */
export const LONG_PROMPT_DELAYS_MS = [0, 20] as const;

/** In each of these a client closes its connection. */
export const DISCONNECT_PHASES = ['queued', 'prefill', 'decode_stream', 'decode_whole'] as const;

/** By so much the memory of a process may grow beside a stage that stops, and be left above what it was before an overload. */
export const LOAD = { mib: 16 } as const;

/** One way, where a conversation goes on. */
export const SECOND_TURN_DELAYS_MS = [0, 20] as const;

/** Of one token and seam: a value of the boundary, and everything around it. */
export const R6_BYTES = { perValue: 4, besides: 128 } as const;

/** Of a worker: its tensors' bytes times `factor`, its KV cells, and so much more. */
export const MEMORY = { factor: 1.15, besidesMB: 96 } as const;

/** R10: a recorded ratio may be missed by so much. */
export const REGRESSION = 0.97;

const ONE_SESSION = { model: '1b', sessions: 1 } as const;
const EIGHT = { model: '1b', sessions: 8 } as const;
const MANY = { model: '1b', sessions: 32 } as const;
const STALL = { question: 'stall', model: '1b' } as const;
const OVERLOAD = { question: 'overload', model: '1b' } as const;

function atEachDelay(figure: string, least: readonly [number, number, number, number]): Bound[] {
  return DELAYS_MS.map((delay, i) => ({ lane: { ...ONE_SESSION, delay }, figure, atLeast: least[i] as number }));
}

const SPLIT = { model: '1.1B shape, q4_0' } as const;

export const THRESHOLDS: readonly Threshold[] = [
  { id: 'G1.speed', what: 'speed against the fastest Transformers system', bench: 'gate1' },
  { id: 'G1.fit', what: 'memory against the smallest Transformers system, at useful speed', bench: 'gate1' },
  { id: 'G1.quality.f16', what: 'what f16 costs against f32', bench: 'gate1' },
  { id: 'G1.quality.q8_0', what: 'what q8_0 costs against f32', bench: 'gate1' },
  { id: 'G1.reference', what: 'f32 against Transformers in float32', bench: 'gate1' },

  { id: 'S.decode', what: 'decode, two shards over one process', bench: 'split',
    bounds: [{ lane: SPLIT, figure: 'decode_mesh_over_one_process', atLeast: 0.9 }] },
  { id: 'S.prefill', what: 'prefill, two shards over one process', bench: 'split',
    bounds: [{ lane: SPLIT, figure: 'prefill_mesh_over_one_process', atLeast: 0.85 }] },
  { id: 'S.stock', what: 'decode, our patches over stock', bench: 'split',
    bounds: [{ lane: SPLIT, figure: 'decode_one_process_over_stock', atLeast: 0.97 }] },
  { id: 'S.seam', what: 'a round trip over seams above raw TCP, ms', bench: 'seam',
    bounds: ['2k', '8k', '16k'].map((size) => ({ figure: `seam_${size}_added_ms`, atMost: 0.25 })) },
  { id: 'S.exact', what: 'bitwise equality', heldBy: 'test/native/parity.spec.ts' },
  { id: 'S.memory', what: 'memory of a worker', heldBy: 'test/native/memory.spec.ts' },

  { id: 'R2.rpc1l', what: 'decode over half local, half RPC, at each delay', bench: 'gate5',
    bounds: atEachDelay('decode/ours_over_rpc1l', [1.1, 1.25, 1.3, 1.3]) },
  { id: 'R2.rpc2', what: 'decode over two RPC servers, at each delay', bench: 'gate5',
    bounds: atEachDelay('decode/ours_over_rpc2', [1.3, 1.75, 1.85, 2]) },
  { id: 'R3', what: 'token time over what the law allows, at each delay', bench: 'gate5',
    bounds: DELAYS_MS.map((delay) => ({ lane: { ...ONE_SESSION, delay }, figure: 'token/ours_over_law', atMost: 1 })) },
  { id: 'R5', what: 'prefill over one process, and over rpc1l', bench: 'gate5',
    bounds: [
      { lane: { ...ONE_SESSION, delay: 20 }, figure: 'prefill/ours_over_local', atLeast: 1.25 },
      { lane: { ...ONE_SESSION, delay: 20 }, figure: 'prefill/ours_over_rpc1l', atLeast: 1.7 },
    ] },
  { id: 'R6', what: 'bytes over their bound, messages a micro-batch, bytes of logits', bench: 'gate5',
    bounds: [
      { lane: { model: '1b' }, figure: 'bytes/ours_over_bound', atMost: 1 },
      { lane: { model: '1b' }, figure: 'messages/ours_per_microbatch', atMost: 1 },
      { lane: { model: '1b' }, figure: 'logits/ours_bytes', atMost: 0 },
    ] },
  { id: 'R7', what: 'memory of the worst worker over its bound', bench: 'gate5',
    bounds: DELAYS_MS.map((delay) => ({ lane: { model: '1b', delay }, figure: 'memory/ours_over_bound', atMost: 1 })) },
  { id: 'F.fit', what: 'under the limit: one process finished (no), two shards finished (yes)', bench: 'gate5',
    bounds: [
      { lane: { question: 'fit' }, figure: 'fit/one_process_finished', atMost: 0 },
      { lane: { question: 'fit' }, figure: 'fit/two_shards_finished', atLeast: 1 },
    ] },

  { id: 'R4.0', what: '8 sessions over one process', bench: 'gate5',
    bounds: [{ lane: { model: '1b', delay: 0, sessions: 8 }, figure: 'decode/ours_over_local', atLeast: 1.5 }] },
  { id: 'R4.20', what: '8 sessions over one process at 20 ms', bench: 'gate5',
    bounds: [{ lane: { model: '1b', delay: 20, sessions: 8 }, figure: 'decode/ours_over_local', atLeast: 1 }] },
  { id: 'R4.50', what: '32 sessions over one process at 50 ms', bench: 'gate5',
    bounds: [{ lane: { model: '1b', delay: 50, sessions: 32 }, figure: 'decode/ours_over_local', atLeast: 1.4 }] },

  { id: 'M.stock', what: 'one process over stock, 8 sessions each', bench: 'concurrency',
    bounds: [{ lane: { ...EIGHT, delay: 0 }, figure: 'one8_over_stock8', atLeast: 0.95 }] },
  { id: 'M.8.0', what: '8 sessions over one process with 8', bench: 'concurrency',
    bounds: [{ lane: { ...EIGHT, delay: 0 }, figure: 'mesh8_over_one8_0ms', atLeast: 1.5 }] },
  { id: 'M.8.20', what: '8 sessions over one process with 8 at 20 ms', bench: 'concurrency',
    bounds: [{ lane: { ...EIGHT, delay: 20 }, figure: 'mesh8_over_one8_20ms', atLeast: 1 }] },
  { id: 'M.32.50', what: '32 sessions over one process with 8 at 50 ms', bench: 'concurrency',
    bounds: [{ lane: { ...MANY, delay: 50 }, figure: 'mesh32_over_one8_50ms', atLeast: 1.4 }] },
  { id: 'M.law', what: 'token time over what computing and delays allow', bench: 'concurrency',
    bounds: [{ lane: { ...ONE_SESSION, delay: 20 }, figure: 'delay_law_20ms', atMost: 1 }] },
  { id: 'M.fair', what: 'fairness of equal sessions', bench: 'concurrency',
    bounds: [
      { lane: { ...EIGHT, delay: 0 }, figure: 'jain_mesh8_0ms', atLeast: 0.95 },
      { lane: { ...EIGHT, delay: 20 }, figure: 'jain_mesh8_20ms', atLeast: 0.95 },
      { lane: { ...MANY, delay: 50 }, figure: 'jain_mesh32_50ms', atLeast: 0.95 },
    ] },
  { id: 'M.others', what: 'p95 token time of decoders beside a long prompt', bench: 'concurrency',
    bounds: LONG_PROMPT_DELAYS_MS.map((delay) => ({
      lane: { question: 'long', model: '1b', delay }, figure: `decoders_p95_over_undisturbed_${delay}ms`, atMost: 2.5,
    })) },
  { id: 'M.prompt', what: 'time to its first token beside decoders', bench: 'concurrency',
    bounds: LONG_PROMPT_DELAYS_MS.map((delay) => ({
      lane: { question: 'long', model: '1b', delay }, figure: `long_first_token_over_alone_${delay}ms`, atMost: 2,
    })) },
  { id: 'M.warm', what: 'time to first token of a second turn over the same prompt on a new route', bench: 'concurrency',
    bounds: SECOND_TURN_DELAYS_MS.map((delay) => ({
      lane: { question: 'warm', model: '1b', delay }, figure: `second_turn_ttft_over_cold_${delay}ms`, atMost: 0.25,
    })) },

  { id: 'L.stall.memory', what: 'growth of any other process while a stage stops, MiB', bench: 'load',
    bounds: [{ lane: STALL, figure: 'stall_rss_growth_mib', atMost: LOAD.mib }] },
  { id: 'L.stall.speed', what: 'sessions that do not use that stage, over undisturbed', bench: 'load',
    bounds: [{ lane: STALL, figure: 'stall_others_speed', atLeast: 0.9 }] },
  { id: 'L.leave', what: 'from the close of a connection until every stage is free, in each phase, ms', bench: 'load',
    bounds: DISCONNECT_PHASES.map((phase) => ({
      lane: { question: 'disconnect', phase, model: '1b' }, figure: `disconnect_${phase}_ms`, atMost: 50,
    })) },
  { id: 'L.over.speed', what: 'admitted sessions in an overload, over capacity', bench: 'load',
    bounds: [{ lane: OVERLOAD, figure: 'overload_admitted_speed', atLeast: 0.7 }] },
  { id: 'L.over.typed', what: 'outcomes that are neither an answer nor a refusal that says when to come back', bench: 'load',
    bounds: [{ lane: OVERLOAD, figure: 'overload_untyped', atMost: 0 }] },
  { id: 'L.over.back', what: 'after an overload: MiB, open files and sessions above what was before', bench: 'load',
    bounds: [
      { lane: OVERLOAD, figure: 'overload_rss_back_mib', atMost: LOAD.mib },
      { lane: OVERLOAD, figure: 'overload_fds_back', atMost: 0 },
      { lane: OVERLOAD, figure: 'overload_left', atMost: 0 },
    ] },

  { id: 'P.direct', what: 'direct gRPC', sameAs: 'S.decode' },
  { id: 'P.bridge', what: 'frames over libp2p', bench: 'paths',
    bounds: [{ lane: { path: 'bridge' }, figure: 'decode/ours_over_local', atLeast: 0.87 }] },
  { id: 'P.hole', what: 'over a hole-punched connection', bench: 'paths',
    bounds: [{ lane: { path: 'hole' }, figure: 'decode/ours_over_local', atLeast: 0.87 }] },
  { id: 'P.relay', what: 'over a relay', bench: 'paths',
    bounds: [{ lane: { path: 'relay' }, figure: 'decode/ours_over_local', atLeast: 0.85 }] },

  { id: 'R10', what: 'a ratio against a recorded one', heldBy: '--compare' },
];
