import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { ERROR_CODES, FIRST_LOCAL_CODE } from '../src/errors.ts';
import {
  argumentsOf,
  codesOfProto,
  codesOfSpec,
  codesOfStatus,
  metricRows,
  missingPaths,
  pathsIn,
  scriptsIn,
  type CodeNumbers,
} from './support/documents.ts';

const DOCUMENTS = [
  'README.md', 'ARCHITECTURE.md', 'METRICS.md', 'bench/README.md', 'bench/CONTRACT.md', 'bench/wan/README.md', 'patches/README.md',
];
const read = (file: string): string => readFileSync(file, 'utf8');

describe('docs', () => {
  const travelling: CodeNumbers = Object.fromEntries(
    Object.entries(ERROR_CODES)
      .map(([code, { wire }]) => [code, wire] as const)
      .filter(([, wire]) => wire < FIRST_LOCAL_CODE),
  );

  it('has the same error codes in src/errors.ts and proto/seam.proto', () => {
    assert.deepEqual(codesOfProto(read('proto/seam.proto')), travelling);
  });

  it('has the same error codes in src/errors.ts and native-worker/src/status.h', () => {
    assert.deepEqual(codesOfStatus(read('native-worker/src/status.h')), travelling);
  });

  it('has the same error codes in src/errors.ts and proto/SPEC.md, each with its time and its advice', () => {
    assert.deepEqual(codesOfSpec(read('proto/SPEC.md')), travelling);
  });

  for (const document of DOCUMENTS) {
    it(`names only commands and files that exist in ${document}`, () => {
      const text = read(document);
      const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
      assert.deepEqual(scriptsIn(text).filter((name) => !(name in scripts)), []);
      const isBench = (name: string): boolean => [`bench/${name}/${name}.ts`, `bench/judging/${name}.ts`].some(existsSync);
      assert.deepEqual(argumentsOf('bench', text).filter((name) => !isBench(name)), []);
      assert.deepEqual(argumentsOf('meshnet', text).filter((name) => !existsSync(`src/cli/${name}.ts`)), []);
      assert.deepEqual(missingPaths(text), []);
    });
  }

  it('runs in .ci/run what README.md tells a person to run', () => {
    assert.match(read('README.md'), /\bnpm test\b/);
    assert.match(read('.ci/run'), /^exec npm test\b/m);
  });

  it('notices a number, a command or a path that is wrong', () => {
    assert.deepEqual(codesOfProto('  ERROR_CODE_UNSPECIFIED = 0;\n  ERROR_CODE_SEQ_GAP = 18;'), { SEQ_GAP: 18 });
    assert.deepEqual(codesOfStatus('  kOk = 0,\n  kSeqGap = 18,'), { SEQ_GAP: 18 });
    assert.deepEqual(codesOfSpec('| 18 | SEQ_GAP | a gap | reopen |\n| 19 | BRANCH_STALE |  | drop |'), { SEQ_GAP: 18 });
    assert.throws(() => codesOfSpec('| 1 | A_B | x | y |\n| 2 | A_B | x | y |'), RangeError);
    assert.deepEqual(metricRows('| `a_b` | gauge | none | How many. |\n| a_c | gauge | none | No name. |'), [
      { name: 'a_b', type: 'gauge', labels: 'none', help: 'How many.' },
    ]);
    assert.deepEqual(scriptsIn('`npm test` or `npm run nothing:here`'), ['nothing:here', 'test']);
    assert.deepEqual(argumentsOf('bench', 'npm run bench -- split --json, npm run bench -- NAME'), ['split']);
    assert.deepEqual(pathsIn('`src/a.{ts,md}` and `/meshnet/kad/1.0.0` and `[0, 3)`'), ['src/a.ts', 'src/a.md']);
    assert.deepEqual(missingPaths('`errors.ts`, `src/errors.ts`, [x](src/gone.ts), `src/nowhere/`'), [
      'src/nowhere/',
      'src/gone.ts',
    ]);
  });
});
