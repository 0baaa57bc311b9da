import { setTimeout } from 'node:timers/promises';
import { MeshnetError } from '../../src/errors.ts';
import { POSITIONS } from '../mesh/model.ts';
import type { LaneRecord } from '../runner/lane-record.ts';
import { prompts } from '../runner/prompts.ts';
import { roundsRecord, runRounds, type LaneOptions, type Measures } from '../runner/rounds.ts';
import { round } from '../runner/statistics.ts';
import type { Call } from './call.ts';
import { laneKey, nameOf, PROMPT, type DisconnectLane } from './lanes.ts';
import type { LoadMesh } from './load-mesh.ts';
import type { LoadShard } from './load-shard.ts';
import { disconnectRatios } from './ratios.ts';
import { AFTER, SCENES, type Scene } from './scenes.ts';
import type { Held } from './worker-status.ts';

/** A phase is reached, or a lane free, within this, or something is wrong. */
const LIMIT_MS = 60_000;
/** Between two looks at a worker: a fraction of what is measured. */
const LOOK_EVERY_MS = 2;

/** How soon every stage is free of a session whose client has closed its connection. */
export async function runDisconnect(lane: DisconnectLane, mesh: LoadMesh, options: LaneOptions): Promise<LaneRecord> {
  const rounds = await runRounds<'mesh'>({
    ...options,
    systems: ['mesh'],
    run: async (_, n) => {
      const measures = await measure(lane, mesh, { seed: `${nameOf(lane)} ${n}`, signal: options.signal });
      options.say(`  free after ${String(measures['free_ms'])} ms`);
      return measures;
    },
  });
  return {
    key: laneKey(lane), systems: ['mesh'], ...roundsRecord(rounds),
    ratios: disconnectRatios(lane.phase, rounds),
    notes: ['the slowest stage of the slowest time; free_each_ms has each time, stage by stage'],
  };
}

interface Parts {
  readonly seed: string;
  readonly signal: AbortSignal;
}

async function measure(lane: DisconnectLane, mesh: LoadMesh, { seed, signal }: Parts): Promise<Measures> {
  const each: number[][] = [];
  for (let time = 0; time < lane.times; time++) {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(LIMIT_MS)]);
    each.push(await leaveOnce(lane, mesh, { seed: `${seed} ${time}`, signal: limit }));
    await mesh.atRest(signal);
  }
  const ticks = (await Promise.all(mesh.shards.map((shard) => shard.health(signal)))).map((health) => health?.tickUs);
  return {
    free_ms: round(Math.max(...each.flat())),
    free_each_ms: each.flat().map((ms) => round(ms)),
    tick_decode_ms: ticks.map((tick) => (tick?.decode ?? 0) / 1000),
    tick_prefill_ms: ticks.map((tick) => (tick?.prefill ?? 0) / 1000),
  };
}

/** From the close of the connection until each stage is free, and for one that waits until the gateway has forgotten it. */
async function leaveOnce({ model, phase }: DisconnectLane, mesh: LoadMesh, { seed, signal }: Parts): Promise<number[]> {
  const scene = SCENES[phase];
  const output = POSITIONS[model] - PROMPT;
  const others = prompts(`${seed} others`, { sessions: scene.others, tokens: PROMPT })
    .map((prompt, i) => mesh.ask({ prompt, output, client: `other ${i}` }, signal));
  const calls = [...others];
  try {
    await Promise.all(others.map((other) => other.reaches(AFTER, signal)));
    const before = await Promise.all(mesh.shards.map(({ worker }) => worker.held(signal)));
    const call = await begin(scene, mesh, { model, seed, calls, signal });
    const at = performance.now();
    call.leave();
    const free = await Promise.all([
      ...mesh.shards.map(({ worker }, stage) => freeAfter(async () =>
        isBack(before[stage], await worker.held(signal)), { at, signal })),
      ...scene.waits ? [freeAfter(async () => (await mesh.gateway(signal)).waiting === 0, { at, signal })] : [],
    ]);
    if (call.times.length > 0 && !scene.answering) {
      throw new MeshnetError('INTERNAL', 'a prompt was over before its client left', { details: { tokens: call.times.length } });
    }
    return free;
  } finally {
    for (const call of calls) {
      call.leave();
    }
  }
}

interface Beginning extends Parts {
  readonly model: DisconnectLane['model'];
  /** Takes the call, so that it ends whatever happens. */
  readonly calls: Call[];
}

/** The call that will be left, once it is in its phase. */
async function begin(scene: Scene, mesh: LoadMesh, { model, seed, calls, signal }: Beginning): Promise<Call> {
  const load = scene.load(POSITIONS[model]);
  const [prompt = []] = prompts(seed, { sessions: 1, tokens: load.prompt });
  const { worker } = mesh.tails[0] as LoadShard;
  const before = await worker.report(signal);
  const call = mesh.ask({ prompt, output: load.output, stream: scene.stream, client: 'leaving' }, signal);
  calls.push(call);
  await scene.reached({
    call, before, report: () => worker.report(signal), waiting: async () => (await mesh.gateway(signal)).waiting, signal,
  });
  return call;
}

async function freeAfter(look: () => Promise<boolean>, { at, signal }: { at: number; signal: AbortSignal }): Promise<number> {
  while (!await look()) {
    await setTimeout(LOOK_EVERY_MS, undefined, { signal });
  }
  return performance.now() - at;
}

function isBack(before: Held | undefined, now: Held): boolean {
  return before !== undefined && now.cells <= before.cells && now.sequences <= before.sequences;
}
