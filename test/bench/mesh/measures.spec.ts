import assert from 'node:assert/strict';
import { lawMs, measuresOf, memoryBoundMiB } from '../../../bench/mesh/measures.ts';

const EIGHT = { sessions: 8, prompt: 32, output: 24 };
const RESULT = { prefillMs: 512, decodeWallMs: 2000, stepMs: [100, 80, 120], tokens: [], memoryMiB: [300, 310], cpuS: 1 };

describe('bench/mesh/measures', () => {
  it('counts the tokens that came within the time that they are divided by', () => {
    assert.equal(measuresOf(EIGHT, RESULT)['decode'], 8 * 23 / 2);
    // A session that was ahead of the last one's first token had some of them before.
    assert.equal(measuresOf(EIGHT, { ...RESULT, decodeTokens: 160 })['decode'], 80);
    assert.equal(measuresOf(EIGHT, RESULT)['prefill'], 500);
    assert.deepEqual(measuresOf(EIGHT, RESULT)['memory_each_mib'], [300, 310]);
  });

  it('allows a token two delays and the larger of 4 ms and 5 % above computing', () => {
    assert.equal(lawMs(30, 0), 34);
    assert.equal(lawMs(200, 0), 210);
    assert.equal(lawMs(30, 50), 136.5);
  });

  it('allows a worker its tensors with a share, its cells and a fixed rest', () => {
    assert.equal(memoryBoundMiB({ weightBytes: 100 * 2 ** 20, kvBytes: 2 ** 20 }), 116 + 96e6 / 2 ** 20);
  });
});
