import assert from 'node:assert/strict';
import { readResult } from '../../../bench/systems/batched-bench.ts';
import { isMeshnetError } from '../../../src/errors.ts';

const ASKED = { sessions: 8, prompt: 32, steps: 31 };

function line(more: Readonly<Record<string, number>> = {}): string {
  return JSON.stringify({ n_kv_max: 2048, n_threads: 1, pp: 32, tg: 31, pl: 8, speed_pp: 120.5, speed_tg: 61.25, speed: 70, ...more });
}

describe('bench/systems/batched-bench', () => {
  it('takes the last run, behind the one that warms up', () => {
    const stdout = `\n${line({ tg: 8, speed_tg: 1 })}\n${line()}\n\n`;
    assert.deepEqual(readResult(stdout, ASKED), { prefill: 120.5, decode: 61.25 });
  });

  it('finds it whatever comes behind it', () => {
    for (const last of [line({ tg: 1, speed_tg: 9 }), line({ tg: 1 }).replace('61.25', 'inf'), line({ tg: 1 }).slice(0, 40), '']) {
      assert.deepEqual(readResult(`${line({ tg: 8 })}\n${line()}\n${last}`, ASKED), { prefill: 120.5, decode: 61.25 }, last);
    }
  });

  it('takes nothing for an answer to another question', () => {
    for (const stdout of ['', line({ pl: 4 }), line({ tg: 8 }), '{"pp": 32}']) {
      assert.throws(() => readResult(stdout, ASKED), (err) => isMeshnetError(err, 'INTERNAL'), stdout);
    }
  });
});
