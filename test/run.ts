/**
 * Runs the suites named as arguments, or all of them, one after another, and ends with `N passed, N failed`.
 * A suite without a test, one that does not end and one that leaves something running count as a failure.
 */
import { fork, spawn } from 'node:child_process';
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { formatError } from '../src/errors.ts';
import { assertRuntime } from '../src/cli/runtime.ts';

interface Totals {
  passed: number;
  failed: number;
  skipped: number;
}

interface Suite {
  name: string;
  run(): Promise<Totals>;
}

const MINUTE_MS = 60_000;
/** How long a finished suite may need to let go of its sockets and processes. */
const LINGER_MS = 10_000;
const root = join(import.meta.dirname, '..');
const bin = (name: string): string => join(root, 'node_modules/.bin', name);

const apart = ['mesh', 'native', 'netlab'];
const suites: Suite[] = [
  { name: 'typecheck', run: () => check(bin('tsc'), ['--noEmit']) },
  { name: 'lint', run: () => check(bin('oxlint'), ['--type-aware', '--deny-warnings']) },
  { name: 'unit', run: () => mocha(specs('test/**/*.spec.ts', apart), 5 * MINUTE_MS) },
  { name: 'ctest', run: () => ctest(10 * MINUTE_MS) },
  { name: 'mesh', run: () => mocha(specs('test/mesh/**/*.spec.ts'), 15 * MINUTE_MS) },
  { name: 'native', run: () => mocha(specs('test/native/**/*.spec.ts'), 25 * MINUTE_MS) },
];

function specs(pattern: string, without: string[] = []): string[] {
  return globSync(pattern, { cwd: root })
    .filter((file) => !without.some((folder) => file.startsWith(`test/${folder}/`)))
    .toSorted();
}

/** One command that either succeeds, which is one test passed, or does not. */
async function check(command: string, args: string[]): Promise<Totals> {
  const ok = await execute(command, args, 5 * MINUTE_MS);
  return { passed: ok ? 1 : 0, failed: ok ? 0 : 1, skipped: 0 };
}

function execute(command: string, args: string[], timeout: number): Promise<boolean> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, stdio: ['ignore', 'inherit', 'inherit'], timeout });
    child.once('error', (err) => {
      console.error(formatError(err));
      resolve(false);
    });
    child.once('close', (code) => resolve(code === 0));
  });
}

function mocha(files: string[], timeout: number): Promise<Totals> {
  return new Promise((resolve) => {
    let totals: Totals = { passed: 0, failed: 0, skipped: 0 };
    let complaint: string | undefined = 'ended before its tests did';
    const child = fork(join(root, 'test/support/mocha-suite.ts'), files, { cwd: root });
    const stop = (why: string): void => {
      complaint = why;
      child.kill('SIGKILL');
    };
    let timer = setTimeout(() => stop(`did not end within ${timeout} ms`), timeout);
    child.on('message', (message) => {
      totals = message as Totals;
      complaint = undefined;
      clearTimeout(timer);
      timer = setTimeout(() => stop(`left something running for ${LINGER_MS} ms`), LINGER_MS);
    });
    child.once('close', () => {
      clearTimeout(timer);
      if (complaint !== undefined) {
        console.error(`suite ${complaint}`);
        totals = { ...totals, failed: totals.failed + 1 };
      }
      resolve(totals);
    });
  });
}

/** The tests of the native worker, as its build registered them. */
async function ctest(timeout: number): Promise<Totals> {
  const scratch = mkdtempSync(join(tmpdir(), 'meshnet-ctest-'));
  try {
    const report = join(scratch, 'report.xml');
    const args = ['--test-dir', 'native-worker/build/out', '--output-on-failure', '--timeout', '300'];
    const ok = await execute('ctest', [...args, '--output-junit', report], timeout);
    const suite = /<testsuite\b[^>]*>/.exec(existsSync(report) ? readFileSync(report, 'utf8') : '')?.[0] ?? '';
    const count = (name: string): number => Number(new RegExp(`\\b${name}="(\\d+)"`).exec(suite)?.[1] ?? 0);
    const failed = count('failures');
    const skipped = count('skipped') + count('disabled');
    return { passed: count('tests') - failed - skipped, failed: ok ? failed : Math.max(failed, 1), skipped };
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

async function main(names: string[]): Promise<Totals> {
  const known = suites.map((suite) => suite.name);
  const unknown = names.filter((name) => !known.includes(name));
  if (unknown.length > 0) {
    throw new RangeError(`no suite ${unknown.join(', ')}; there are ${known.join(', ')}`);
  }
  const sum: Totals = { passed: 0, failed: 0, skipped: 0 };
  for (const suite of suites) {
    if (names.length > 0 && !names.includes(suite.name)) {
      continue;
    }
    console.log(`\n== ${suite.name}`);
    const totals = await suite.run();
    if (totals.passed + totals.failed === 0) {
      console.error('suite has no tests');
      totals.failed = 1;
    }
    console.log(`== ${suite.name}: ${totals.passed} passed, ${totals.failed} failed, ${totals.skipped} skipped`);
    sum.passed += totals.passed;
    sum.failed += totals.failed;
    sum.skipped += totals.skipped;
  }
  return sum;
}

let result: Totals = { passed: 0, failed: 1, skipped: 0 };
try {
  assertRuntime();
  result = await main(process.argv.slice(2));
} catch (err) {
  console.error(formatError(err));
}
process.exitCode = result.failed === 0 && result.passed > 0 ? 0 : 1;
console.log(`\n${result.passed} passed, ${result.failed} failed`);
