import assert from 'node:assert/strict';
import { contractLanes, nameOf, type GridLane, type LongLane, type WarmLane } from '../../../bench/concurrency/lanes.ts';
import { gridRatios, longRatios, warmRatios, type LongPart } from '../../../bench/concurrency/ratios.ts';
import { isMeshnetError } from '../../../src/errors.ts';
import { roundsOf, someRounds } from './some-rounds.ts';

function grid(name: string): GridLane {
  return contractLanes().find((lane): lane is GridLane => lane.kind === 'grid' && nameOf(lane) === name) as GridLane;
}

describe('bench/concurrency/ratios', () => {
  it('divides by one process with eight sessions, whatever the mesh has, and that by stock', () => {
    const eight = gridRatios(grid('1b/32/8/0'), someRounds(grid('1b/32/8/0')));
    assert.deepEqual(Object.entries(eight).map(([name, { median }]) => [name, median]), [
      ['mesh8_over_one8_0ms', 1.5], ['jain_mesh8_0ms', 0.99], ['one8_over_stock8', 0.96],
    ]);
    const many = gridRatios(grid('1b/32/32/50'), someRounds(grid('1b/32/32/50')));
    assert.deepEqual(Object.keys(many), ['mesh32_over_one8_50ms', 'jain_mesh32_50ms']);
  });

  it('holds one session against its computing and two delays', () => {
    // 16 + 16 ms of computing and two delays of 20 ms, and 4 ms.
    const ratios = gridRatios(grid('1b/32/1/20'), someRounds(grid('1b/32/1/20')));
    assert.equal(ratios['delay_law_20ms']?.median, Number((77 / 76).toPrecision(6)));
    assert.equal(ratios['jain_mesh1_20ms'], undefined);
  });

  it('makes no law of stages that did not tell their computing', () => {
    const lane = grid('1b/32/1/20');
    assert.throws(() => gridRatios(lane, someRounds(lane, { stage_compute_ms: [] })), (err) => isMeshnetError(err, 'INTERNAL'));
  });

  it('holds decoders and the prompt each against itself', () => {
    const lane = contractLanes().find((one): one is LongLane => one.kind === 'long' && one.delay === 20) as LongLane;
    const rounds = roundsOf<LongPart>({
      undisturbed: { step_p95_ms: 80 }, alone: { first_token_ms: 10_000 }, beside: { step_p95_ms: 160, first_token_ms: 15_000 },
    });
    const ratios = longRatios(lane, rounds);
    assert.equal(ratios['decoders_p95_over_undisturbed_20ms']?.median, 2);
    assert.equal(ratios['long_first_token_over_alone_20ms']?.median, 1.5);
  });

  it('divides a second turn by the same prompt cold', () => {
    const lane = contractLanes().find((one): one is WarmLane => one.kind === 'warm' && one.delay === 20) as WarmLane;
    const rounds = roundsOf({ second: { first_token_ms: 500 }, cold: { first_token_ms: 4000 } });
    assert.equal(warmRatios(lane, rounds)['second_turn_ttft_over_cold_20ms']?.median, 0.125);
  });
});
