import { PATHS_NOTE, requireDirect } from '../mesh/paths.ts';
import type { LaneRecord } from '../runner/lane-record.ts';
import { prompts, warmUp } from '../runner/prompts.ts';
import { roundsRecord, runRounds, type LaneOptions, type Measures } from '../runner/rounds.ts';
import { round } from '../runner/statistics.ts';
import type { MeshSystem } from '../systems/mesh-system.ts';
import { laneKey, nameOf, promptOf, type WarmLane } from './lanes.ts';
import { warmRatios, type WarmPart } from './ratios.ts';
import type { Rig } from './rig.ts';

const PARTS: readonly WarmPart[] = ['second', 'cold'];

/** The second turn of a conversation and a prompt as long that is all new, by turns. */
export async function runWarm(lane: WarmLane, { parts: { network, mesh } }: Rig, options: LaneOptions): Promise<LaneRecord> {
  const { say, signal } = options;
  await network.setDelay(lane.delay);
  await mesh.run(warmUp(`warm up ${nameOf(lane)}`, 1), signal);
  const rounds = await runRounds<WarmPart>({
    ...options,
    systems: PARTS,
    run: async (part, n) => {
      const measures = await measure(part, lane, { mesh, seed: `${nameOf(lane)} ${n}`, signal });
      say(`  ${part.padEnd(6)} first token ${String(measures['first_token_ms'])} ms, cached ${String(measures['cached'])}`);
      return measures;
    },
  });
  const { first, more } = lane;
  return {
    key: laneKey(lane), systems: [...PARTS], ...roundsRecord(rounds),
    ratios: warmRatios(lane, rounds),
    notes: [
      `a first turn of ${first.prompt} and ${first.output} tokens, ${more} more in the second; paths of the mesh: ${PATHS_NOTE}`,
    ],
  };
}

interface MeasureOptions {
  readonly mesh: MeshSystem;
  readonly seed: string;
  readonly signal: AbortSignal;
}

async function measure(part: WarmPart, lane: WarmLane, { mesh, seed, signal }: MeasureOptions): Promise<Measures> {
  const { first, more } = lane;
  if (part === 'cold') {
    const cold = prompts(`${seed} cold`, { sessions: 1, tokens: promptOf(lane) });
    const { prefillMs, paths } = await mesh.run({ prompts: cold, output: 1 }, signal);
    requireDirect(paths);
    return { first_token_ms: round(prefillMs), cached: 0 };
  }
  const [next = []] = prompts(`${seed} more`, { sessions: 1, tokens: more });
  const { firstTokenMs, cached, paths } = await mesh.runTwice({
    prompts: prompts(`${seed} first`, { sessions: 1, tokens: first.prompt }), output: first.output, more: next,
  }, signal);
  requireDirect(paths);
  return { first_token_ms: round(firstTokenMs), cached };
}
