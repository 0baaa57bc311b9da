import { setTimeout } from 'node:timers/promises';
import { LOAD } from '../contract.ts';
import type { LaneRecord } from '../runner/lane-record.ts';
import { prompts } from '../runner/prompts.ts';
import { roundsRecord, runRounds, type LaneOptions, type Measures } from '../runner/rounds.ts';
import { round } from '../runner/statistics.ts';
import { laneKey, nameOf, type OverloadLane } from './lanes.ts';
import type { LoadMesh } from './load-mesh.ts';
import { countsOf, mib, outcomeOf, sessionSpeed, type Outcome } from './measures.ts';
import { growths, usagesOf, type NamedProcess, type Usage } from './processes.ts';
import { overloadRatios, type OverloadPart } from './ratios.ts';

/** One answer, the wait for room included; without one the call counts as untyped. */
const ANSWER_MS = 120_000;
const LOOK_EVERY_MS = 500;

interface Parts {
  readonly mesh: LoadMesh;
  readonly seed: string;
  readonly say: (text: string) => void;
  readonly signal: AbortSignal;
}

/** As many clients as there is room for, and many times as many; each comes back for a next answer until the time is over. */
export async function runOverload(lane: OverloadLane, mesh: LoadMesh, options: LaneOptions): Promise<LaneRecord> {
  const { say, signal } = options;
  const systems: readonly OverloadPart[] = ['capacity', 'overload'];
  const rounds = await runRounds<OverloadPart>({
    ...options,
    systems,
    run: async (part, n) => {
      const clients = lane.each.sessions * (part === 'overload' ? lane.factor : 1);
      const measures = await measure(clients, lane, { mesh, seed: `${nameOf(lane)} ${n} ${part}`, say, signal });
      say(`  ${part.padEnd(8)} ${String(measures['session_tok_s'])} tok/s a session, ${String(measures['answered'])} answers, ` +
        `refused ${String(measures['refused_429'])} and ${String(measures['refused_503'])} times`);
      return measures;
    },
  });
  return {
    key: laneKey(lane), systems: [...systems], ...roundsRecord(rounds),
    ratios: overloadRatios(rounds),
    notes: ['the largest process by rss_back_mib and fds_back, each against itself before'],
  };
}

async function measure(clients: number, lane: OverloadLane, { mesh, seed, say, signal }: Parts): Promise<Measures> {
  const processes = await mesh.processes();
  const before = await usagesOf(processes);
  const outcomes: Outcome[] = [];
  const answers: (readonly number[])[] = [];
  const from = performance.now();
  const client = async (name: string): Promise<void> => {
    for (let n = 0, left = lane.windowMs; left > 0; n++, left = from + lane.windowMs - performance.now()) {
      const [prompt = []] = prompts(`${seed} ${name} ${n}`, { sessions: 1, tokens: lane.each.prompt });
      const limit = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]);
      const call = mesh.ask({ prompt, output: lane.each.output, client: name }, limit);
      const end = await call.ended;
      signal.throwIfAborted();
      const outcome = outcomeOf(end, { tokens: call.times.length, output: lane.each.output });
      outcomes.push(outcome);
      if (outcome === 'untyped') {
        say(`  untyped: status ${end.status}, ${JSON.stringify(end.error)}, ${call.times.length} tokens`);
        // It was not told when to come back.
        return;
      }
      if (outcome === 'answered') {
        answers.push(call.times);
      } else {
        const again = Math.min((end.retryAfter ?? 0) * 1000, from + lane.windowMs - performance.now());
        await setTimeout(Math.max(0, again), undefined, { signal });
      }
    }
  };
  await Promise.all(Array.from({ length: clients }, (_, i) => client(`client ${i}`)));
  const wallMs = performance.now() - from;
  return {
    session_tok_s: round(sessionSpeed(answers)),
    decode: round(answers.reduce((sum, { length }) => sum + length, 0) / wallMs * 1000),
    ...countsOf(outcomes),
    ...await backFrom(before, processes, { mesh, backMs: lane.backMs, signal }),
  };
}

/** What is not as before when everything is, or time is over: by then it should be. */
async function backFrom(
  before: readonly Usage[], processes: readonly NamedProcess[],
  { mesh, backMs, signal }: { mesh: LoadMesh; backMs: number; signal: AbortSignal },
): Promise<Measures> {
  const began = performance.now();
  for (;;) {
    const left = await mesh.held(signal);
    const now = await usagesOf(processes);
    const rss = growths(before, now, 'rssMiB');
    const fds = Math.max(...growths(before, now, 'fds'));
    if ((left === 0 && fds <= 0 && Math.max(...rss) <= LOAD.mib) || performance.now() - began > backMs) {
      return {
        left, fds_back: fds, rss_back_mib: mib(Math.max(...rss)), rss_back_each_mib: rss.map(mib),
        back_ms: Math.round(performance.now() - began),
      };
    }
    await setTimeout(LOOK_EVERY_MS, undefined, { signal });
  }
}
