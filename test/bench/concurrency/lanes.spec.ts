import assert from 'node:assert/strict';
import {
  contractLanes, laneKey, loadsOf, nameOf, outlasting, promptOf, smokeLanes, work, type ConcurrencyLane, type GridLane,
  type LongLane, type WarmLane,
} from '../../../bench/concurrency/lanes.ts';
import { gridRatios, longRatios, warmRatios, type LongPart, type WarmPart } from '../../../bench/concurrency/ratios.ts';
import { DELAYS_MS, SECOND_TURN_DELAYS_MS, SESSIONS, THRESHOLDS } from '../../../bench/contract.ts';
import { POSITIONS } from '../../../bench/mesh/model.ts';
import { roundsOf, someRounds } from './some-rounds.ts';

const LONG = contractLanes().filter((lane): lane is LongLane => lane.kind === 'long');
const GRID = contractLanes().filter((lane): lane is GridLane => lane.kind === 'grid');
const PART = { step_p95_ms: 100, first_token_ms: 9000 };

/** The figures of every lane, were it measured. */
function figures(): { key: ReturnType<typeof laneKey>; names: string[] }[] {
  return contractLanes().map((lane) => ({ key: laneKey(lane), names: Object.keys(ratiosOf(lane)) }));
}

function ratiosOf(lane: ConcurrencyLane): object {
  switch (lane.kind) {
    case 'grid':
      return gridRatios(lane, someRounds(lane));
    case 'long':
      return longRatios(lane, roundsOf<LongPart>({ undisturbed: PART, alone: PART, beside: PART }));
    default:
      return warmRatios(lane, roundsOf<WarmPart>({ second: PART, cold: PART }));
  }
}

describe('bench/concurrency/lanes', () => {
  it('measures whatever the contract judges', () => {
    const bounds = THRESHOLDS.filter(({ bench }) => bench === 'concurrency')
      .flatMap(({ id, bounds = [] }) => bounds.map((bound) => ({ id, ...bound })));
    assert.ok(bounds.length > 10);
    for (const { id, lane = {}, figure } of bounds) {
      const found = figures().filter(({ key, names }) =>
        names.includes(figure) && Object.entries(lane).every(([field, value]) => key[field] === value));
      assert.equal(found.length, 1, `${id}: ${figure} of ${JSON.stringify(lane)}`);
    }
  });

  it('has a lane for each number of sessions at each delay, one process in all of them and stock in one', () => {
    assert.deepEqual(new Set(GRID.map(nameOf)), new Set(SESSIONS.flatMap((n) => DELAYS_MS.map((delay) => `1b/32/${n}/${delay}`))));
    assert.ok(GRID.every((lane) => loadsOf(lane).get('one8')?.sessions === 8));
    assert.deepEqual(GRID.filter((lane) => loadsOf(lane).has('stock8')).map(nameOf), ['1b/32/8/0']);
  });

  it('gives every lane a name of its own, every figure too, and work to do', () => {
    for (const lanes of [contractLanes(), smokeLanes()]) {
      const names = lanes.map(nameOf);
      assert.equal(new Set(names).size, names.length);
      assert.ok(lanes.every((lane) => work(lane) > 0));
    }
    const names = figures().flatMap((lane) => lane.names);
    assert.equal(new Set(names).size, names.length);
  });

  it('measures first what decides', () => {
    const judged = THRESHOLDS.filter(({ bench }) => bench === 'concurrency').flatMap(({ bounds = [] }) => bounds.map(({ figure }) => figure));
    const decides = figures().map(({ names }) => names.some((name) => judged.includes(name)));
    assert.deepEqual(decides.slice(0, decides.lastIndexOf(true) + 1), Array.from({ length: 8 }, () => true));
  });

  it('goes on with a conversation of a thousand tokens', () => {
    const warm = contractLanes().filter((lane): lane is WarmLane => lane.kind === 'warm');
    assert.deepEqual(warm.map(({ delay, first }) => [delay, first.prompt + first.output]), SECOND_TURN_DELAYS_MS.map((delay) => [delay, 1000]));
    assert.ok(warm.every((lane) => promptOf(lane) < POSITIONS[lane.model]));
  });

  it('keeps every session within its positions, those beside a long prompt up to the last one', () => {
    for (const lane of LONG) {
      const { prompt, output } = outlasting(lane);
      assert.equal(prompt + output, POSITIONS[lane.model]);
      assert.ok(lane.prompt < POSITIONS[lane.model] && lane.prompt > 0.99 * POSITIONS[lane.model]);
    }
  });
});
