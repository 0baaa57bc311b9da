import { measuresOf, memoryBoundMiB } from '../mesh/measures.ts';
import type { Network } from '../mesh/network.ts';
import { PATHS_NOTE, requireDirect } from '../mesh/paths.ts';
import { budgetMeasures, tokenBudget } from '../mesh/token-budget.ts';
import type { LaneRecord } from '../runner/lane-record.ts';
import { prompts, warmUp } from '../runner/prompts.ts';
import { roundsRecord, runRounds, type Measures, type LaneOptions } from '../runner/rounds.ts';
import { median, round } from '../runner/statistics.ts';
import { MeshSystem, type MeshResult } from '../systems/mesh-system.ts';
import type { ShardNow } from '../systems/mesh.ts';
import type { System } from '../systems/system.ts';
import { laneKey, nameOf, type SpeedLane, type SystemName } from './lanes.ts';
import { ratiosOf } from './ratios.ts';
import { wireOf } from './wire.ts';

/** Bytes are the same in every round: one shows it, a second one that it is so. */
const WIRE_ROUNDS = 2;

export interface LaneParts {
  readonly systems: ReadonlyMap<SystemName, System>;
  readonly network: Network;
  /** Of our shards. */
  readonly shards: readonly ShardNow[];
  readonly nEmbd: number;
}

/** All systems of a lane live at once; the delay is set for it. */
export async function runLane(lane: SpeedLane, parts: LaneParts, options: LaneOptions): Promise<LaneRecord> {
  const { smoke, say, signal } = options;
  const { systems, network } = parts;
  await network.setDelay(lane.delay);
  for (const name of lane.systems) {
    await the(systems, name).run(warmUp(`warm up ${nameOf(lane)} ${name}`, lane.sessions), signal);
  }
  const rounds = await runRounds<SystemName>({
    ...options,
    systems: lane.systems,
    ...lane.kind === 'wire' ? { rounds: WIRE_ROUNDS } : {},
    run: async (name, n) => {
      const measures = await measure(the(systems, name), lane, { ...parts, seed: `${nameOf(lane)} ${n}`, signal });
      say(`  ${name.padEnd(11)} ${describe(lane, measures)}`);
      return measures;
    },
  });
  const record = roundsRecord(rounds);
  const ofOneToken = lane.kind === 'decode' && lane.sessions === 1 && !smoke;
  return {
    key: laneKey(lane), systems: [...lane.systems], ...record,
    ratios: ratiosOf(lane, rounds),
    ...ofOneToken ? { budget: tokenBudget(record, { system: 'ours', delayMs: lane.delay }) } : {},
    notes: notesOf(lane),
  };
}

function notesOf({ kind, systems }: SpeedLane): string[] {
  return [
    ...kind === 'wire' ? [] : [`paths of ours: ${PATHS_NOTE}`],
    ...kind === 'prefill' ? ['rpc1l at its best: micro-batches of 512, 128 and 64, the fastest of each round'] : [],
    ...systems.includes('rpc1l_head') ? ['rpc1l_head: output head in the client, no logits come back; reported, not judged'] : [],
  ];
}

interface MeasureOptions extends LaneParts {
  readonly seed: string;
  readonly signal: AbortSignal;
}

async function measure(
  system: System, lane: SpeedLane, { network, shards, nEmbd, seed, signal }: MeasureOptions,
): Promise<Measures> {
  if (lane.kind === 'wire') {
    return await wireOf(system, lane, { network, nEmbd, seed, signal });
  }
  const { sessions, prompt: tokens, output } = lane;
  const result = await system.run({ prompts: prompts(seed, { sessions, tokens }), output }, signal);
  const more = system instanceof MeshSystem ? meshMeasures(result as MeshResult, output, shards)
    : waits(system, lane) ? await pausedMeasures(system, lane, { stepMs: median(result.stepMs), seed, signal }) : {};
  return { ...measuresOf(lane, result), ...more };
}

/** One process that is alone with one session never waits; a stage of a mesh does, for the others and the network. */
function waits({ name }: System, { kind, sessions, delay }: SpeedLane): boolean {
  return name === 'local' && kind === 'decode' && sessions === 1 && delay > 0;
}

/**
 * The same job once more, by a process that sleeps before each token for as long as a stage of two would wait: what the
 * machine takes for having been idle, in colder caches and clocks, is not the mesh's.
 */
async function pausedMeasures(
  system: System, { delay, output, prompt: tokens }: SpeedLane,
  { stepMs, seed, signal }: { stepMs: number; seed: string; signal: AbortSignal },
): Promise<Measures> {
  const pauseMs = 2 * delay + stepMs / 2;
  const { stepMs: paused } = await system.run({ prompts: prompts(`${seed} paused`, { sessions: 1, tokens }), output, pauseMs }, signal);
  return { paused_step_p50_ms: round(median(paused)) };
}

function meshMeasures(result: MeshResult, output: number, shards: readonly ShardNow[]): Measures {
  const { openMs, memoryMiB, decodeWallMs, stages, paths } = result;
  requireDirect(paths);
  const shares = shards.map((shard, stage) => (memoryMiB[stage] ?? Number.NaN) / memoryBoundMiB(shard));
  return {
    open_ms: round(openMs), memory_over_bound: round(Math.max(...shares)),
    ...budgetMeasures(decodeWallMs / (output - 1), stages),
  };
}

function describe({ kind }: SpeedLane, measures: Measures): string {
  const figure = (name: string): string => String(measures[name] ?? '–');
  return kind === 'wire'
    ? `${figure('line_bytes')} bytes and ${figure('line_packets')} packets a token on the line, ` +
      `${figure('seam_bytes')} bytes on the seam`
    : `decode ${figure('decode')} tok/s, token ${figure('step_p50_ms')} ms, prefill ${figure('prefill')} tok/s, ` +
      `${figure('memory_mib')} MiB`;
}

function the(systems: ReadonlyMap<SystemName, System>, name: SystemName): System {
  return systems.get(name) as System;
}
