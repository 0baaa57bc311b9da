import assert from 'node:assert/strict';
import { jain, lateMeasures, meshMeasures, stepsTogether } from '../../../bench/concurrency/measures.ts';
import type { MeshResult } from '../../../bench/systems/mesh-system.ts';
import { isMeshnetError } from '../../../src/errors.ts';

const PATHS = ['libp2p direct-grpc'];

/** The first session begins early; the second one ends late. */
const TIMES = [[100, 150, 250, 300], [200, 260, 320, 380]];
const RESULT: MeshResult = {
  prefillMs: 200, decodeWallMs: 180, decodeTokens: 5, stepMs: [], timesMs: TIMES, tokens: [], memoryMiB: [300, 310], cpuS: 1, openMs: 50,
  paths: PATHS, stages: [{ queueMs: 1, computeMs: 15, handOverMs: 1 }, { queueMs: 2, computeMs: 16, handOverMs: 2 }],
};

describe('bench/concurrency/measures', () => {
  it('takes the steps that began when every session was under way', () => {
    assert.deepEqual(stepsTogether(TIMES), [50, 60, 60, 60]);
    assert.deepEqual(stepsTogether([[5, 7, 10]]), [2, 3]);
  });

  it('is 1 where all have the same, and 1 of n where one has everything', () => {
    assert.equal(jain([5, 5, 5, 5]), 1);
    assert.equal(jain([7, 0, 0, 0]), 0.25);
    assert.equal(jain([1, 3]), 0.8);
  });

  it('tells how much of the time all were under way, and how unlike their speeds were', () => {
    const measures = meshMeasures({ sessions: 2, prompt: 32, output: 4 }, RESULT);
    assert.equal(measures['decode'], Number((5 / 180 * 1000).toPrecision(4)));
    assert.equal(measures['step_p50_ms'], 60);
    assert.equal(measures['step_mean_ms'], 57.5);
    // From 200 to 300 of 200 to 380.
    assert.equal(measures['together'], 0.5556);
    // Three tokens in 200 ms, and in 180.
    assert.equal(measures['jain'], Number(jain([15, 3 / 0.18]).toPrecision(4)));
    assert.deepEqual(measures['stage_compute_ms'], [15, 16]);
  });

  it('counts no time together where a session was over before another began', () => {
    const timesMs = [[100, 150], [200, 260]];
    assert.equal(meshMeasures({ sessions: 2, prompt: 32, output: 2 }, { ...RESULT, timesMs })['together'], 0);
  });

  it('takes nothing from a route that is not direct', () => {
    const paths = ['libp2p bridge'];
    assert.throws(() => meshMeasures({ sessions: 2, prompt: 32, output: 4 }, { ...RESULT, paths }), (err) => isMeshnetError(err, 'INTERNAL'));
    assert.throws(() => lateMeasures({ firstTokenMs: 1, stepMs: [1], paths }), (err) => isMeshnetError(err, 'INTERNAL'));
    assert.deepEqual(lateMeasures({ firstTokenMs: 1234.56, stepMs: [1, 2, 3], paths: PATHS }), {
      step_p10_ms: 1, step_p50_ms: 2, step_p95_ms: 3, steps: 3, first_token_ms: 1235,
    });
  });
});
