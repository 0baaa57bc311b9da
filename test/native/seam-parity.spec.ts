import assert from 'node:assert/strict';
import { laneId } from '../../src/domain/lane.ts';
import { uniformCuts, type LayerRange } from '../../src/domain/shard.ts';
import { smollm2 } from './support/models.ts';
import { generatedModel } from './support/programs.ts';
import { replay, type PlayedTurn } from './support/replay.ts';
import { WorkerRoute, type WorkerSession } from './support/worker-route.ts';

const CELLS = 1024;
const SEQUENCES = 6;
const UBATCH = 16;
const VOCABULARY = 30_000;
/** Options of the generator, besides four layers. */
const GENERATED: Record<string, string>[] = [
  { type: 'f16' }, { type: 'f32', tied: 'yes' }, { type: 'q4_0', tied: 'yes' }, { type: 'q8_0' },
];

interface Played {
  readonly session: WorkerSession;
  readonly turns: PlayedTurn[];
  next: number;
}

/** xorshift32; the seed is in the name of each test. */
function seeded(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

async function play(one: Played, turn: PlayedTurn, onFirst: () => void): Promise<void> {
  const got: number[] = [];
  for await (const frame of one.session.entry.turn({
    turn: one.turns.length + 1, start: turn.start, ids: turn.ids, maxTokens: turn.maxTokens, logprobs: -1, ignoreEnd: true, grammar: '',
    sampling: { temperature: 0 },
  }, { signal: AbortSignal.timeout(60_000) })) {
    got.push(...frame.tokens);
    onFirst();
  }
  onFirst();
  assert.equal(got.length, turn.maxTokens);
  one.turns.push(turn);
  one.next = turn.start + turn.ids.length + turn.maxTokens - 1;
}

/**
 * Sessions join, prefill in chunks beside others that decode, rewind and leave; the whole model then runs the very batches that
 * the tail ran, and every row of logits has to have the same bits.
 */
async function compare(model: string, cuts: readonly LayerRange[], seed: number): Promise<ReturnType<typeof replay>[]> {
  const random = seeded(seed);
  const prompt = (n: number): number[] => Array.from({ length: n }, () => 300 + random(VOCABULARY - 300));
  const route = new WorkerRoute({ model, cuts, cells: CELLS, sequences: SEQUENCES, ubatch: UBATCH, lockstep: true, groupWaitUs: 5_000_000 });
  const played: Played[] = [];
  try {
    await route.start();
    const join = async (): Promise<Played> => {
      const one = { session: await route.open(200), turns: [], next: 0 };
      played.push(one);
      return one;
    };
    /** The turns overlap: each begins when the one before has its first token. */
    const round = async (work: readonly { one: Played; turn: PlayedTurn }[]): Promise<void> => {
      let previous: Promise<void> = Promise.resolve();
      await Promise.all(work.map(async ({ one, turn }) => {
        const begin = previous;
        const { promise, resolve } = Promise.withResolvers<void>();
        previous = promise;
        await begin;
        await play(one, turn, resolve);
      }));
    };
    const [first, second, third] = [await join(), await join(), await join()];
    await round([
      { one: first, turn: { start: 0, ids: prompt(20), maxTokens: 64 } },
      { one: second, turn: { start: 0, ids: prompt(40), maxTokens: 9 } },
      { one: third, turn: { start: 0, ids: prompt(3), maxTokens: 12 } },
    ]);
    await second.session.leave();
    const fourth = await join();
    await round([
      { one: first, turn: { start: first.next, ids: prompt(18), maxTokens: 10 } },
      { one: third, turn: { start: 2, ids: prompt(33), maxTokens: 8 } },
      { one: fourth, turn: { start: 0, ids: prompt(25), maxTokens: 8 } },
    ]);
    await Promise.all([first, third, fourth].map(({ session }) => session.leave()));
    const sampled = played.flatMap(({ turns }) => turns).reduce((sum, { maxTokens }) => sum + maxTokens, 0);
    await route.traced(sampled, AbortSignal.timeout(30_000));
  } finally {
    await route.stop();
  }
  const turns = new Map(played.map(({ session, turns: done }) => [laneId(session.lanes.at(-1) as NonNullable<(typeof session.lanes)[0]>), done]));
  const setting = { model, cells: CELLS, sequences: SEQUENCES, ubatch: UBATCH };
  let swapped = false;
  return [
    replay(route.traces, turns, setting),
    // The same with two sequences exchanged in one row: what the comparison must not miss.
    replay(route.traces, turns, setting, (line) => {
      const row = /^row (\d+) (\d+) 1 1$/.exec(line);
      if (row === null || swapped) {
        return line;
      }
      swapped = true;
      return `row ${Number(row[1]) + 1} ${row[2]} 1 1`;
    }),
  ];
}

function twoWay(nLayer: number): LayerRange[][] {
  return Array.from({ length: nLayer - 1 }, (_, i) => [{ first: 0, last: i + 1 }, { first: i + 1, last: nLayer }]);
}

describe('native/seam-parity', function () {
  this.timeout(300_000);
  /** Which sessions share a tick is a matter of time on a busy machine: enough of it has to happen over all cases. */
  let mixedTicks = 0;

  function cutsEqual(what: string, model: () => Promise<string>, cuts: readonly LayerRange[], seed: number): void {
    const name = cuts.map(({ first, last }) => `${first}-${last}`).join(' | ');
    it(`${what}, ${name}: every row of logits has the bits of the whole model (seed ${seed})`, async () => {
      const [same, tampered] = await compare(await model(), cuts, seed);
      assert.deepEqual(same?.different, []);
      assert.equal(same?.logits, 111, JSON.stringify(same));
      mixedTicks += same?.mixedTicks ?? 0;
      assert.notDeepEqual(tampered?.different, [], 'a wrong row went unseen');
    });
  }

  for (const [i, options] of GENERATED.entries()) {
    const model = (): Promise<string> => generatedModel({ ...options, layers: 4 });
    for (const cuts of [...twoWay(4), [{ first: 0, last: 1 }, { first: 1, last: 3 }, { first: 3, last: 4 }]]) {
      cutsEqual(Object.entries(options).flat().join(' '), model, cuts, 100 + i);
    }
  }

  for (const cuts of [...twoWay(30), uniformCuts(30, 3), [{ first: 0, last: 7 }, { first: 7, last: 29 }, { first: 29, last: 30 }]]) {
    cutsEqual('SmolLM2', smollm2, cuts, 7);
  }

  it('computed chunks of prompts and decoded tokens in one tick', () => {
    assert.ok(mixedTicks > 0);
  });
});
