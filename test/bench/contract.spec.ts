import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import {
  DELAYS_MS, DISCONNECT_PHASES, GATE1, LONG_PROMPT_DELAYS_MS, MEMORY, R3_ALLOWANCE, R6_BYTES, REGRESSION, SESSIONS, THRESHOLDS,
  type Threshold,
} from '../../bench/contract.ts';

const text = readFileSync('bench/CONTRACT.md', 'utf8');

/** Rows of the tables whose first column is `id`: id → threshold, in the order of the document. */
function tables(document: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const [, body = ''] of document.matchAll(/^\| id \|.*\n\|[-| ]+\n((?:\|.*\n)+)/gm)) {
    for (const [, id = '', cell = ''] of body.matchAll(/^\| (\S+) \| (.*) \|$/gm)) {
      found.set(id, cell);
    }
  }
  return found;
}

/** `≥ 1.10 / 1.25` as `['≥', 1.1], ['≥', 1.25]`: what stands behind a sign of comparison, a number for each delay. */
function comparisons(cell: string): [string, number][] {
  return [...cell.matchAll(/(≥|≤) (\d[\d.e-]*(?: \/ \d[\d.]*)*)/g)]
    .flatMap(([, sign = '', numbers = '']) =>
      numbers.split(' / ').map((number): [string, number] => [sign, Number(number.replace(/\.$/, ''))]));
}

const GATE1_BOUNDS: Readonly<Record<string, [string, number][]>> = {
  'G1.speed': [['≥', GATE1.speed.decode], ['≥', GATE1.speed.prefill]],
  'G1.fit': [['≤', GATE1.fit.memory], ['≥', GATE1.fit.decode]],
  'G1.quality.f16': [['≤', GATE1.quality.f16]],
  'G1.quality.q8_0': [['≤', GATE1.quality.q8_0]],
  'G1.reference': [['≤', GATE1.reference.kl], ['≤', GATE1.reference.difference]],
};

/** What a row says in words and formulas, made of the same constants. */
const FORMULAS: Readonly<Record<string, string>> = {
  'S.memory': `${MEMORY.factor} × its tensors + KV + ${MEMORY.besidesMB} MB`,
  R3: `local's + 2 *D* + max(${R3_ALLOWANCE.ms} ms, ${R3_ALLOWANCE.share * 100} %)`,
  R6: `n_embd · ${R6_BYTES.perValue} + ${R6_BYTES.besides} bytes; one message per micro-batch and seam; no logits`,
  R7: 'S.memory',
  'F.fit': 'one process does not survive, two shards, each under the same limit, finish',
  'P.direct': 'S.decode',
  R10: `${REGRESSION} ×`,
};

function boundsOf({ id, bounds = [] }: Threshold): [string, number][] {
  const all = bounds.map(({ atLeast, atMost }): [string, number] =>
    atLeast === undefined ? ['≤', atMost ?? Number.NaN] : ['≥', atLeast]);
  // One number for all sizes is one number in the document.
  return GATE1_BOUNDS[id] ?? (new Set(all.map(String)).size === 1 ? all.slice(0, 1) : all);
}

describe('bench/contract', () => {
  const rows = tables(text);

  it('has the thresholds of CONTRACT.md, all of them and in its order', () => {
    assert.ok(rows.size > 20);
    assert.deepEqual(THRESHOLDS.map(({ id }) => id), [...rows.keys()]);
  });

  for (const threshold of THRESHOLDS) {
    it(`demands of ${threshold.id} what CONTRACT.md demands`, () => {
      const cell = rows.get(threshold.id) ?? '';
      const formula = FORMULAS[threshold.id];
      if (formula === undefined) {
        assert.deepEqual(comparisons(cell), boundsOf(threshold));
      } else {
        assert.ok(cell.includes(formula), cell);
      }
    });
  }

  it('measures at the delays of CONTRACT.md', () => {
    assert.match(text, new RegExp(`at \\*D\\* = ${DELAYS_MS.join(' / ')} ms`));
    for (const { id, bounds = [] } of THRESHOLDS.filter((one) => one.id.startsWith('R2'))) {
      assert.deepEqual(bounds.map(({ lane }) => lane?.['delay']), [...DELAYS_MS], id);
    }
  });

  it('measures many sessions where CONTRACT.md does', () => {
    assert.ok(text.includes(`with sessions {${SESSIONS.join(', ')}} at each *D* of gate 5`));
    assert.ok(text.includes(`at ${LONG_PROMPT_DELAYS_MS.join(' and ')} ms |`));
    assert.ok(text.includes(`mean token time ÷ (Σ compute + 2 *D* + max(${R3_ALLOWANCE.ms} ms, ${R3_ALLOWANCE.share * 100} %))`));
  });

  it('lets clients leave in the phases of CONTRACT.md', () => {
    const section = /\*\*Disconnect\*\*[\s\S]*?\*\*Overload/.exec(text)?.[0] ?? '';
    const named = [...section.matchAll(/`(\w+)`/g)].map(([, name]) => name);
    assert.deepEqual(named, [...DISCONNECT_PHASES]);
  });

  it('says of each threshold what judges it', () => {
    for (const { id, bench, heldBy, sameAs } of THRESHOLDS) {
      assert.equal([bench, heldBy, sameAs].filter((one) => one !== undefined).length, 1, id);
      if (heldBy?.includes('/') === true) {
        assert.ok(existsSync(heldBy), heldBy);
      }
    }
  });

  it('notices a number that differs', () => {
    assert.deepEqual(comparisons('decode ≥ 1.10 / 2.0, prefill ≥ 0.8'), [['≥', 1.1], ['≥', 2], ['≥', 0.8]]);
    assert.deepEqual(comparisons('mean KL ≤ 5e-3. q4_0 is reported'), [['≤', 5e-3]]);
    assert.deepEqual([...tables('| id | threshold |\n|---|---|\n| A.b | x ≥ 1 |\n')], [['A.b', 'x ≥ 1']]);
  });
});
