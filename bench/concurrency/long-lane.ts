import { PATHS_NOTE, requireDirect } from '../mesh/paths.ts';
import type { LaneRecord } from '../runner/lane-record.ts';
import { prompts, warmUp } from '../runner/prompts.ts';
import { roundsRecord, runRounds, type LaneOptions, type Measures } from '../runner/rounds.ts';
import { round } from '../runner/statistics.ts';
import type { MeshSystem } from '../systems/mesh-system.ts';
import { laneKey, nameOf, outlasting, type LongLane } from './lanes.ts';
import { decodersMeasures, lateMeasures } from './measures.ts';
import { longRatios, type LongPart } from './ratios.ts';
import type { Rig } from './rig.ts';

const PARTS: readonly LongPart[] = ['undisturbed', 'alone', 'beside'];

/** A long prompt and some decoders, each of both alone and both at once, by turns. */
export async function runLong(lane: LongLane, { parts: { network, mesh } }: Rig, options: LaneOptions): Promise<LaneRecord> {
  const { say, signal } = options;
  await network.setDelay(lane.delay);
  await mesh.run(warmUp(`warm up ${nameOf(lane)}`, lane.decoders.sessions), signal);
  const rounds = await runRounds<LongPart>({
    ...options,
    systems: PARTS,
    run: async (part, n) => {
      const measures = await measure(part, lane, { mesh, seed: `${nameOf(lane)} ${n}`, signal });
      say(`  ${part.padEnd(11)} token p95 ${String(measures['step_p95_ms'] ?? '–')} ms, ` +
        `first token of the long prompt ${String(measures['first_token_ms'] ?? '–')} ms`);
      return measures;
    },
  });
  return {
    key: laneKey(lane), systems: [...PARTS], ...roundsRecord(rounds),
    ratios: longRatios(lane, rounds),
    notes: [`a prompt of ${lane.prompt} tokens, ${lane.decoders.sessions} decoders; paths of the mesh: ${PATHS_NOTE}`],
  };
}

interface MeasureOptions {
  readonly mesh: MeshSystem;
  readonly seed: string;
  readonly signal: AbortSignal;
}

async function measure(part: LongPart, lane: LongLane, { mesh, seed, signal }: MeasureOptions): Promise<Measures> {
  const { decoders, after } = lane;
  const others = prompts(`${seed} ${part}`, { sessions: decoders.sessions, tokens: decoders.prompt });
  const [prompt = []] = prompts(`${seed} ${part} long`, { sessions: 1, tokens: lane.prompt });
  switch (part) {
    case 'undisturbed':
      return decodersMeasures(await mesh.run({ prompts: others, output: decoders.output }, signal));
    case 'alone': {
      const { prefillMs, paths } = await mesh.run({ prompts: [prompt], output: 1 }, signal);
      requireDirect(paths);
      return { first_token_ms: round(prefillMs) };
    }
    default: {
      const { output } = outlasting(lane);
      return lateMeasures(await mesh.runBeside({ prompts: others, output, late: { prompt, after } }, signal));
    }
  }
}
