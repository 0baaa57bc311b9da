import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { isMeshnetError, MeshnetError } from '../../src/errors.ts';
import { UBATCH } from '../mesh/systems.ts';
import type { LaneRecord } from '../runner/lane-record.ts';
import { prompts } from '../runner/prompts.ts';
import { LineSystem } from '../systems/line-system.ts';
import { MeshSystem } from '../systems/mesh-system.ts';
import { BIN, pssMiB } from '../systems/native.ts';
import { loopback } from '../systems/place.ts';
import type { Started, System } from '../systems/system.ts';
import { laneKey, type Gate5Lane } from './lanes.ts';
import { MemoryLimit } from './memory-limit.ts';

/** Starting and a short answer take a tenth of it without a limit; what thrashes for longer has not finished. */
const FINISH_MS = 180_000;
const LEAVE_MS = 10_000;
const LOOK_EVERY_MS = 100;
const CELLS = 512;
const PROMPT = 32;
const OUTPUT = 8;
const MIB = 2 ** 20;

export interface FitOptions {
  readonly model: string;
  readonly say: (text: string) => void;
  readonly signal: AbortSignal;
}

export interface End {
  readonly finished: boolean;
  /** Not within the time that it had. */
  readonly late: boolean;
  readonly kills: number;
  readonly how: string;
}

/** Killed or too late is what a limit does to a program. Another end says nothing of memory. */
export function endedByLimit({ late, kills }: Pick<End, 'late' | 'kills'>): boolean {
  return late || kills > 0;
}

export interface RanFit {
  readonly record: LaneRecord;
  /** Engine class of both. */
  readonly engine: string;
}

/**
 * A limit midway between what one process holds and what one host of two holds (its node as well as its worker), then
 * both under it. The page cache counts and can be dropped, so that only an end tells: finished, killed or too late.
 */
export async function runFit(lane: Gate5Lane, { model, say, signal }: FitOptions): Promise<RanFit> {
  // A machine without control groups is told before anything is loaded.
  await (await MemoryLimit.create(`meshnet-bench-${process.pid}`, 64 * MIB)).remove();
  const { mib: whole } = await held(oneProcess(model), (system) => [[system.pid]], signal);
  const { mib: shard, engine } = await held(twoShards(model), (system) => system.hosts, signal);
  const limitMiB = Math.round((whole + shard) / 2);
  say(`one process holds ${whole} MiB, a host of two shards ${shard}; the limit is ${limitMiB}`);
  if (shard >= whole) {
    throw new MeshnetError('INTERNAL', 'no limit lies between one process and a host of two shards', { details: { whole, shard } });
  }
  const one = await underLimits(limitMiB, 1, signal, ([limit = []]) => oneProcess(model, limit));
  say(`one process ${one.how}`);
  if (!one.finished && !endedByLimit(one)) {
    throw new MeshnetError('INTERNAL', `one process ${one.how}, which says nothing of memory`);
  }
  const two = await underLimits(limitMiB, 2, signal, (limits) => twoShards(model, limits));
  say(`two shards ${two.how}`);
  return {
    engine,
    record: {
      key: laneKey(lane), systems: ['one_process', 'two_shards'], rounds: [], discarded: [], long: false, contended: false,
      ratios: {
        'fit/one_process_finished': Number(one.finished),
        // A worker that was killed is started again: an answer in the end is no finish under the limit.
        'fit/two_shards_finished': Number(two.finished && two.kills === 0),
      },
      limits: {
        memory_mib: limitMiB, finish_ms: FINISH_MS,
        one_process: { ...one, unlimited_mib: whole }, two_shards: { ...two, unlimited_mib: shard },
      },
      notes: [`limit ${limitMiB} MiB, no swap`, `one process ${one.how}`, `two shards, each with its node, ${two.how}`],
    },
  };
}

function oneProcess(model: string, limit: readonly string[] = []): LineSystem {
  const [command, ...args] = [
    ...limit, path.join(BIN, 'meshnet-bench-whole'), '--model', model, '--threads', '1', '--cells', String(CELLS),
    '--ubatch', String(UBATCH),
  ];
  return new LineSystem({ name: 'one process', command, args, cores: [0] });
}

function twoShards(model: string, limits: readonly (readonly string[])[] = []): MeshSystem {
  const places = [0, 1].map((core) => ({ ...loopback(core), confine: limits[core] ?? [] }));
  return new MeshSystem('two shards', { model, places, cells: CELLS, sessions: 4, ubatch: UBATCH });
}

async function answer(system: System, signal: AbortSignal): Promise<Started> {
  const started = await system.start(signal);
  await system.run({ prompts: prompts('fit', { sessions: 1, tokens: PROMPT }), output: OUTPUT }, signal);
  return started;
}

/** The most that a host holds after an answer, nothing limited, in MiB. */
async function held<S extends System>(
  system: S, hosts: (system: S) => readonly (readonly number[])[], signal: AbortSignal,
): Promise<{ mib: number; engine: string }> {
  try {
    const { engine } = await answer(system, signal);
    const sums = await Promise.all(hosts(system).map(async (pids) =>
      (await Promise.all(pids.map((pid) => pssMiB(pid)))).reduce((sum, mib) => sum + mib, 0)));
    return { mib: Math.max(...sums), engine };
  } finally {
    await system.stop();
  }
}

async function underLimits(
  limitMiB: number, n: number, signal: AbortSignal, make: (launchers: string[][]) => System,
): Promise<End> {
  const limits: MemoryLimit[] = [];
  try {
    for (let i = 0; i < n; i++) {
      limits.push(await MemoryLimit.create(`meshnet-bench-${process.pid}-${i}`, limitMiB * MIB));
    }
    const { finished, late, failure } = await ends(make(limits.map(({ launcher }) => launcher)), signal);
    const kills = (await Promise.all(limits.map((limit) => limit.kills()))).reduce((sum, one) => sum + one, 0);
    const missed = kills > 0 ? 'was killed by the kernel for its memory' : `did not finish: ${failure}`;
    return { finished, late, kills, how: finished ? `finished${kills > 0 ? `, but ${kills} were killed on the way` : ''}` : missed };
  } finally {
    await Promise.all(limits.map((limit) => removed(limit)));
  }
}

async function ends(system: System, signal: AbortSignal): Promise<{ finished: boolean; late: boolean; failure: string }> {
  const limit = AbortSignal.timeout(FINISH_MS);
  try {
    await answer(system, AbortSignal.any([signal, limit]));
    return { finished: true, late: false, failure: '' };
  } catch (err) {
    if (signal.aborted) {
      throw err;
    }
    return { finished: false, late: limit.aborted, failure: isMeshnetError(err) ? `${err.code}: ${err.message}` : String(err) };
  } finally {
    await system.stop();
  }
}

/** The kernel keeps a group busy for a moment after its last process. */
async function removed(limit: MemoryLimit): Promise<void> {
  const deadline = performance.now() + LEAVE_MS;
  for (;;) {
    try {
      await limit.remove();
      return;
    } catch (err) {
      if (performance.now() > deadline) {
        throw err;
      }
      await setTimeout(LOOK_EVERY_MS);
    }
  }
}
