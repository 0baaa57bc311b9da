import { R6_BYTES } from '../contract.ts';
import type { Network } from '../mesh/network.ts';
import { prompts } from '../runner/prompts.ts';
import type { Measures } from '../runner/rounds.ts';
import { round } from '../runner/statistics.ts';
import type { MeshSystem } from '../systems/mesh-system.ts';
import type { ShardNow } from '../systems/mesh.ts';
import type { System } from '../systems/system.ts';
import type { Question } from './lanes.ts';

/** Tokens of the shorter of two answers; the other is as much longer as the lane says. */
export const SHORT = 4;

export interface WireOptions {
  readonly network: Network;
  readonly nEmbd: number;
  /** Of the prompts. */
  readonly seed: string;
  readonly signal: AbortSignal;
}

/**
 * What a decoded token costs the line: two jobs that differ in the length of their answers alone, so that prompts, the
 * opening of routes and their end fall out of the difference.
 */
export async function wireOf(
  system: System, lane: Question, { network, nEmbd, seed, signal }: WireOptions,
): Promise<Measures> {
  const { sessions, prompt, output } = lane;
  const job = async (name: string, length: number): Promise<{ bytes: number; packets: number }> => {
    const before = await network.count();
    await system.run({ prompts: prompts(`${seed} ${name}`, { sessions, tokens: prompt }), output: length }, signal);
    const after = await network.count();
    return { bytes: after.bytes - before.bytes, packets: after.packets - before.packets };
  };
  const tokens = sessions * output;
  const mesh = isMesh(system) ? system : undefined;
  const first = await mesh?.shardsAtRest(0, signal);
  const short = await job('short', SHORT);
  const second = await atRest(mesh, { since: first, tokens: sessions * (SHORT - 1), signal });
  const long = await job('long', SHORT + output);
  const third = await atRest(mesh, { since: second, tokens: sessions * (SHORT + output - 1), signal });
  return {
    line_bytes: round((long.bytes - short.bytes) / tokens),
    line_packets: round((long.packets - short.packets) / tokens),
    ...seamOf([first, second, third], { tokens, nEmbd }),
  };
}

function isMesh(system: System): system is MeshSystem {
  return 'shardsAtRest' in system;
}

interface Rest {
  readonly since: readonly ShardNow[] | undefined;
  /** Decoded since then. */
  readonly tokens: number;
  readonly signal: AbortSignal;
}

async function atRest(
  mesh: MeshSystem | undefined, { since = [], tokens, signal }: Rest,
): Promise<ShardNow[] | undefined> {
  return await mesh?.shardsAtRest(Math.min(...since.map(({ decoded }) => decoded)) + tokens, signal);
}

/** The tail's seam, by its worker's own counters: what came in is the boundary, what went out the loop. */
function seamOf(
  states: readonly (readonly ShardNow[] | undefined)[], { tokens, nEmbd }: { tokens: number; nEmbd: number },
): Measures {
  const [first, second, third] = states.map((shards) => shards?.at(-1));
  if (first === undefined || second === undefined || third === undefined) {
    return {};
  }
  const grown = (of: (shard: ShardNow) => number): number => of(third) - of(second) - (of(second) - of(first));
  const bytesOut = grown(({ traffic }) => traffic.bytesOut) / tokens;
  const messages = grown(({ traffic }) => traffic.packetsIn);
  return {
    n_embd: nEmbd,
    seam_bytes: round(grown(({ traffic }) => traffic.bytesIn) / tokens),
    seam_messages: round(messages / tokens),
    seam_messages_per_microbatch: round(messages / grown(({ ticks }) => ticks)),
    loop_bytes: round(bytesOut),
    loop_messages: round(grown(({ traffic }) => traffic.packetsOut) / tokens),
    // A sampled token needs no more than the overhead that a bundle is granted; what is above it would be logits.
    logits_bytes: Math.max(0, round(bytesOut - R6_BYTES.besides)),
  };
}
