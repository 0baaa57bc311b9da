import { z } from 'zod';

/** What theory allows a ring of equal stages that serves many sessions: one process cut in pieces, and delays between them. */

export interface RingOf {
  readonly sessions: number;
  readonly stages: number;
  /** One way, between neighbours. */
  readonly delayMs: number;
  /** Of one process, by the sessions in a step. */
  readonly stepMs: ReadonlyMap<number, number>;
}

const Limit = z.object({
  /** Sessions of a group: how many a stage works on at once where the ring is at its best. */
  group: z.number(),
  /** Tokens per second of all sessions. */
  tokS: z.number(),
  /** From one token of a session to its next. */
  tokenMs: z.number(),
});
export type RingLimit = Readonly<z.infer<typeof Limit>>;

/**
 * The best of all ways to divide the sessions into equal groups. A group takes S (c + d) for its way round, c being a
 * stage's time for it and d the delay; and no stage can do more than one group after the other, which takes one c each.
 *
 * @returns nothing when no step of a group that fits was measured
 */
export function ringLimit({ sessions, stages, delayMs, stepMs }: RingOf): RingLimit | undefined {
  const ways = [...stepMs].filter(([group]) => sessions % group === 0).map(([group, wholeMs]): RingLimit => {
    const stageMs = wholeMs / stages;
    const tokenMs = Math.max(stages * (stageMs + delayMs), sessions / group * stageMs);
    return { group, tokenMs, tokS: sessions / tokenMs * 1000 };
  });
  return ways.toSorted((a, b) => b.tokS - a.tokS)[0];
}

/** The same out of the limits in a lane's record, where they have it as `ring`. */
export function ringOf(limits: Readonly<Record<string, unknown>> | undefined): RingLimit | undefined {
  return Limit.safeParse(limits?.['ring']).data;
}
