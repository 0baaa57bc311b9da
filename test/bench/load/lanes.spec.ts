import assert from 'node:assert/strict';
import { DISCONNECT_PHASES, THRESHOLDS } from '../../../bench/contract.ts';
import { contractLanes, laneKey, nameOf, shapeOf, smokeLanes, work, type LoadLane } from '../../../bench/load/lanes.ts';
import { disconnectRatios, overloadRatios, stallRatios } from '../../../bench/load/ratios.ts';
import { OVERLOAD, roundsOf, STALL } from './some-rounds.ts';

/** The figures of a lane, were it measured. */
function namesOf(lane: LoadLane): string[] {
  switch (lane.kind) {
    case 'stall':
      return Object.keys(stallRatios(STALL));
    case 'disconnect':
      return Object.keys(disconnectRatios(lane.phase, roundsOf({ mesh: { free_ms: 1 } })));
    default:
      return Object.keys(overloadRatios(OVERLOAD));
  }
}

describe('bench/load/lanes', () => {
  it('measures whatever the contract judges', () => {
    const bounds = THRESHOLDS.filter(({ bench }) => bench === 'load').flatMap(({ id, bounds = [] }) => bounds.map((bound) => ({ id, ...bound })));
    assert.equal(bounds.length, 2 + DISCONNECT_PHASES.length + 5);
    for (const { id, lane = {}, figure } of bounds) {
      const found = contractLanes().filter((one) =>
        namesOf(one).includes(figure) && Object.entries(lane).every(([field, value]) => laneKey(one)[field] === value));
      assert.equal(found.length, 1, `${id}: ${figure} of ${JSON.stringify(lane)}`);
    }
  });

  it('gives every lane a name of its own, every figure too, and work to do', () => {
    for (const lanes of [contractLanes(), smokeLanes()]) {
      for (const names of [lanes.map(nameOf), lanes.flatMap(namesOf)]) {
        assert.equal(new Set(names).size, names.length);
      }
      assert.ok(lanes.every((lane) => work(lane) > 0));
    }
  });

  it('has a smoke lane for each lane of the contract', () => {
    const kinds = (lanes: LoadLane[]): string[] => lanes.map((lane) => nameOf(lane).split('/').slice(0, 2).join('/').replace(/1b|generated/, ''));
    assert.deepEqual(kinds(smokeLanes()), kinds(contractLanes()));
  });

  it('lets as many sessions in at a tail as go through it, so that the last one has no choice', () => {
    const lane = contractLanes().find(({ kind }) => kind === 'stall') as Extract<LoadLane, { kind: 'stall' }>;
    const { tails, head, tail } = shapeOf(lane);
    assert.deepEqual([tails, tail.sequences, head.sequences], [2, 4, 8]);
    assert.ok(lane.long.prompt + lane.long.output <= tail.cells / tail.sequences);
  });

  it('asks ten times of what there is room for, and makes the phases share their nodes', () => {
    const overload = contractLanes().find(({ kind }) => kind === 'overload') as LoadLane;
    assert.deepEqual([laneKey(overload)['sessions'], laneKey(overload)['clients'], shapeOf(overload).head.sequences], [8, 80, 8]);
    const shapes = contractLanes().filter(({ kind }) => kind === 'disconnect').map((lane) => JSON.stringify(shapeOf(lane)));
    assert.equal(new Set(shapes).size, 1);
  });
});
