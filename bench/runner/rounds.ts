import { MeshnetError } from '../../src/errors.ts';
import { pressure, waitForQuiet } from './machine.ts';
import { nativeProbe, type Probe } from './probe.ts';
import { median, medianInterval, round } from './statistics.ts';

/** Rounds by the contract; fewer where one takes so long. */
const ROUNDS = 5;
const LONG = [{ aboveMs: 180_000, rounds: 2 }, { aboveMs: 60_000, rounds: 3 }];
/** A round counts only when the probe took the same time, within this share, before and after it. */
const PROBE_TOLERANCE = 0.1;
/**
 * Of a round's time the probe takes so much, before and after it: a moment says nothing of minutes. Before the first round of
 * a lane nobody knows how long it will take: one take has to do there.
 */
const PROBE_SHARE = 0.1;
/** Significant digits of a median. It is judged as it is recorded: four of them would make a bound of 1 one of 1.0005. */
const MEDIAN_DIGITS = 6;
/** How long a lane waits for other work on the machine to end. */
const QUIET_MS = 120_000;

/** What one system gave in one round; names and units are the lane's. */
export type Measures = Readonly<Record<string, number | readonly number[] | null>>;

/** How a lane is run, whatever it asks. */
export interface LaneOptions {
  /** One round, no waiting, and whatever the probe says. */
  readonly smoke: boolean;
  readonly say: (text: string) => void;
  readonly signal: AbortSignal;
  /** After each round: undisturbed ones, of how many. */
  readonly progress?: (done: number, of: number) => void;
}

export interface RoundsPlan<S extends string> extends LaneOptions {
  /** Order of the first round; reversed in every second one. */
  readonly systems: readonly S[];
  /** `round` is never the same twice, repeated rounds included: a seed for prompts. */
  readonly run: (system: S, round: number) => Promise<Measures>;
  /** @default by the contract: 5, 3 when the first round took more than a minute, 2 when more than three */
  readonly rounds?: number;
  /** @default reading memory and multiplying */
  readonly probe?: Probe;
  /** Milliseconds. */
  readonly clock?: () => number;
  /** Waits for the machine to be quiet, and says whether it is. */
  readonly quiet?: (signal: AbortSignal) => Promise<boolean>;
}

export interface Round<S extends string = string> {
  readonly order: readonly S[];
  /** Time of the probe after the round over the time before it. */
  readonly probe: number;
  /** As the round began. */
  readonly pressure: ReturnType<typeof pressure>;
  readonly wallMs: number;
  readonly runs: Readonly<Record<S, Measures>>;
}

export interface Rounds<S extends string = string> {
  /** Those that count: the undisturbed ones, or all when they are too few. */
  readonly good: readonly Round<S>[];
  readonly discarded: readonly Round<S>[];
  /** Too few undisturbed rounds, or a machine that was never quiet: printed, and judged by nothing. */
  readonly contended: boolean;
  /** A round takes more than a minute: fewer are enough. */
  readonly long: boolean;
}

/** What the record of a lane says of its rounds. */
export function roundsRecord<S extends string>(
  { good, ...rest }: Rounds<S>,
): Omit<Rounds<S>, 'good'> & { readonly rounds: Rounds<S>['good'] } {
  return { ...rest, rounds: good };
}

/** The median of a ratio over the rounds, with its 95 % interval. */
export interface Ratio {
  readonly median: number;
  readonly low: number;
  readonly high: number;
  readonly n: number;
}

/** Runs every system by turns, forwards and backwards, and repeats the rounds in which the machine was disturbed. */
export async function runRounds<S extends string>(plan: RoundsPlan<S>): Promise<Rounds<S>> {
  const { smoke, say, signal } = plan;
  const quiet = smoke || await (plan.quiet ?? ((stop) => waitForQuiet(QUIET_MS, stop)))(signal);
  const probe = plan.probe ?? nativeProbe();
  const all: { round: Round<S>; disturbed: boolean }[] = [];
  const count = (disturbed: boolean): number => all.filter((one) => one.disturbed === disturbed).length;
  let wanted = smoke ? 1 : plan.rounds ?? ROUNDS;
  try {
    while (count(false) < wanted && count(true) < wanted) {
      const order = count(false) % 2 === 0 ? plan.systems : plan.systems.toReversed();
      const round = await oneRound(plan, { order, n: all.length, probe, lastMs: all.at(-1)?.round.wallMs ?? 0 });
      const disturbed = !smoke && Math.abs(round.probe - 1) > PROBE_TOLERANCE;
      all.push({ round, disturbed });
      if (!smoke && plan.rounds === undefined) {
        wanted = roundsFor(all[0]?.round.wallMs ?? 0);
      }
      if (disturbed) {
        say(`round discarded: the probe moved to ${round.probe.toFixed(2)}`);
      }
      (plan.progress ?? ((done, of) => { say(`${done} of ${of} rounds`); }))(Math.min(count(false), wanted), wanted);
    }
  } finally {
    await probe.stop();
  }
  const tooFew = count(false) < wanted;
  return {
    good: all.filter(({ disturbed }) => tooFew || !disturbed).map(({ round }) => round),
    discarded: all.filter(({ disturbed }) => !tooFew && disturbed).map(({ round }) => round),
    contended: tooFew || !quiet,
    long: roundsFor(all[0]?.round.wallMs ?? 0) < ROUNDS,
  };
}

/** The figure of a lane: `of` within each round, the median over the rounds. */
export function ratioOf<S extends string>(rounds: Rounds<S>, of: (runs: Readonly<Record<S, Measures>>) => number): Ratio {
  return ratioOfValues(rounds.good.map(({ runs }) => of(runs)));
}

/** @throws MeshnetError INTERNAL when a value is no number: a figure must not be made of fewer pairs than it says. */
export function ratioOfValues(values: readonly number[]): Ratio {
  if (values.length === 0 || !values.every(Number.isFinite)) {
    throw new MeshnetError('INTERNAL', `a ratio of ${JSON.stringify(values)}`);
  }
  const [low, high] = medianInterval(values);
  return { median: round(median(values), MEDIAN_DIGITS), low: round(low), high: round(high), n: values.length };
}

function roundsFor(wallMs: number): number {
  return LONG.find(({ aboveMs }) => wallMs > aboveMs)?.rounds ?? ROUNDS;
}

interface RoundParts<S extends string> {
  readonly order: readonly S[];
  readonly n: number;
  readonly probe: Probe;
  /** What the round before it took. */
  readonly lastMs: number;
}

async function oneRound<S extends string>(
  { run, smoke, signal, clock = () => performance.now() }: RoundsPlan<S>, { order, n, probe, lastMs }: RoundParts<S>,
): Promise<Round<S>> {
  const now = pressure();
  const before = await levelOf(probe, { overMs: lastMs * PROBE_SHARE, signal });
  const began = clock();
  const runs: Partial<Record<S, Measures>> = {};
  for (const system of order) {
    signal.throwIfAborted();
    runs[system] = await run(system, n);
  }
  const wallMs = clock() - began;
  const after = await levelOf(probe, { overMs: smoke ? 0 : wallMs * PROBE_SHARE, signal });
  return { order, probe: round(after / before), pressure: now, wallMs: Math.round(wallMs), runs: runs as Record<S, Measures> };
}

/** The mean of as many takes as fill that time, one at least. */
async function levelOf(probe: Probe, { overMs, signal }: { overMs: number; signal: AbortSignal }): Promise<number> {
  let sum = 0;
  let n = 0;
  while (n === 0 || sum < overMs) {
    sum += await probe.take(signal);
    n++;
  }
  return sum / n;
}
