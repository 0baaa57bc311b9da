import { setTimeout } from 'node:timers/promises';
import { MeshnetError } from '../../src/errors.ts';
import type { LaneRecord } from '../runner/lane-record.ts';
import { prompts } from '../runner/prompts.ts';
import { roundsRecord, runRounds, type LaneOptions, type Measures } from '../runner/rounds.ts';
import { round } from '../runner/statistics.ts';
import type { Call } from './call.ts';
import { laneKey, nameOf, type StallLane } from './lanes.ts';
import type { LoadMesh } from './load-mesh.ts';
import type { LoadShard } from './load-shard.ts';
import { mib, windowSpeed } from './measures.ts';
import { growths, usagesOf, type NamedProcess } from './processes.ts';
import { stallRatios, type StallPart } from './ratios.ts';
import { AFTER } from './scenes.ts';

/** Sessions are under way within this, or something is wrong. */
const BEGIN_MS = 120_000;
/** A worker that was stopped for a minute is replaced by its node; the new one loads and is verified. */
const RESTORE_MS = 240_000;
/** A node that was stopped needs a moment to notice what it has missed. */
const STEADY_MS = 2000;
const SAMPLE_MS = 1000;

interface Parts {
  readonly seed: string;
  /** A window may end with a session. */
  readonly smoke: boolean;
  readonly signal: AbortSignal;
}

/** A stage stops reading: what it costs the memory of everybody else, and the sessions that only share the head with it. */
export async function runStall(lane: StallLane, mesh: LoadMesh, options: LaneOptions): Promise<LaneRecord> {
  const { say, smoke, signal } = options;
  const systems: readonly StallPart[] = ['undisturbed', 'stalled'];
  const rounds = await runRounds<StallPart>({
    ...options,
    systems,
    run: async (part, n) => {
      const measures = await measure(part, lane, { mesh, seed: `${nameOf(lane)} ${n} ${part}`, smoke, signal });
      say(`  ${part.padEnd(11)} others ${String(measures['decode'])} tok/s, memory +${String(measures['rss_growth_mib'])} MiB`);
      return measures;
    },
  });
  const watched = await mesh.processes(mesh.tails[1]);
  return {
    key: laneKey(lane), systems: [...systems], ...roundsRecord(rounds),
    ratios: stallRatios(rounds),
    notes: [`processes of rss_growth_each_mib, without those of one tail: ${watched.map(({ name }) => name).join(', ')}`],
  };
}

async function measure(part: StallPart, lane: StallLane, { mesh, ...parts }: Parts & { mesh: LoadMesh }): Promise<Measures> {
  const { signal } = parts;
  const calls: Call[] = [];
  let stopped: LoadShard | undefined;
  try {
    const { stage, own, others } = await begin(lane, mesh, { ...parts, calls });
    const watched = await mesh.processes(stage);
    if (part === 'stalled') {
      stopped = stage;
      stage.freeze();
    } else {
      own.forEach((call) => { call.leave(); });
    }
    const measures = await watch(watched, others, { windowMs: lane.windowMs, ...parts });
    return part === 'stalled' ? { ...measures, own_over: own.filter(({ end }) => end !== undefined).length } : measures;
  } finally {
    stopped?.thaw();
    for (const call of calls) {
      call.leave();
    }
    if (!signal.aborted) {
      await mesh.atRest(signal, stopped === undefined ? {} : { withinMs: RESTORE_MS, steadyMs: STEADY_MS });
    }
  }
}

interface Begun {
  /** The one that may stop. */
  readonly stage: LoadShard;
  /** Sessions through it. */
  readonly own: readonly Call[];
  /** Sessions through the other tail. */
  readonly others: readonly Call[];
}

/**
 * As many sessions through each tail as it takes. The last one is alone in finding room at one of them, and its prompt is
 * so long that it is not through yet: so that stage has both phases, whichever of the tails it is.
 */
async function begin({ each, long }: StallLane, mesh: LoadMesh, { seed, signal, calls }: Parts & { calls: Call[] }): Promise<Begun> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(BEGIN_MS)]);
  const decoders = prompts(seed, { sessions: 2 * each.sessions - 1, tokens: each.prompt })
    .map((prompt, i) => mesh.ask({ prompt, output: each.output, client: `client ${i}` }, signal));
  calls.push(...decoders);
  const tails = await Promise.all(decoders.map(async (call) => (await call.opened(limit)).at(-1) ?? ''));
  await Promise.all(decoders.map((call) => call.reaches(AFTER, limit)));
  const stage = mesh.tails.find(({ peerId }) => tails.filter((peer) => peer === peerId).length < each.sessions);
  const [prompt = []] = prompts(`${seed} long`, { sessions: 1, tokens: long.prompt });
  const last = mesh.ask({ prompt, output: long.output, client: 'long' }, signal);
  calls.push(last);
  if ((await last.opened(limit)).at(-1) !== stage?.peerId || stage === undefined) {
    throw new MeshnetError('INTERNAL', 'a session went through a tail that had no room', { details: { tails: [...new Set(tails)] } });
  }
  return {
    stage,
    own: [...decoders.filter((_, i) => tails[i] === stage.peerId), last],
    others: decoders.filter((_, i) => tails[i] !== stage.peerId),
  };
}

/** Speed of these sessions over the window, and the most by which each of these processes has grown in it. */
async function watch(
  processes: readonly NamedProcess[], sessions: readonly Call[], { windowMs, smoke, signal }: Parts & { windowMs: number },
): Promise<Measures> {
  const before = await usagesOf(processes);
  let most = before.map(() => 0);
  const from = performance.now();
  let to = from;
  while (to - from < windowMs && sessions.every(({ end }) => end === undefined)) {
    await setTimeout(Math.min(SAMPLE_MS, windowMs - (to - from)), undefined, { signal });
    to = performance.now();
    const grown = growths(before, await usagesOf(processes), 'rssMiB');
    most = most.map((value, i) => Math.max(value, grown[i] ?? Number.NaN));
  }
  for (const { end, times } of sessions) {
    if (end !== undefined && !(smoke && end.whole)) {
      throw new MeshnetError('INTERNAL', 'a session that does not use the stage was over before the window', {
        details: { status: end.status, code: end.error?.code, tokens: times.length },
      });
    }
  }
  return {
    decode: round(windowSpeed(sessions.map(({ times }) => times), { from, to })),
    rss_growth_mib: mib(Math.max(...most)),
    rss_growth_each_mib: most.map(mib),
  };
}
