import assert from 'node:assert/strict';
import { LineProgram } from '../../../bench/systems/line-program.ts';
import { LineSystem } from '../../../bench/systems/line-system.ts';

const READY = { ready: true, engine: 'e', weight_bytes: 5, load_ms: 1, n_vocab: 9, n_embd: 2, n_layer: 1 };

/** A program of so many words in this language; `answer` sees each request as `q`. */
function system(answer: string, more: { ready?: object; jobTimeoutMs?: number } = {}): LineSystem {
  const script = `
    console.log(${JSON.stringify(JSON.stringify(more.ready ?? READY))});
    require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => { const q = JSON.parse(line); ${answer} });`;
  return new LineSystem({
    name: 'some', command: process.execPath, args: ['-e', script], cores: [0],
    ...more.jobTimeoutMs === undefined ? {} : { jobTimeoutMs: more.jobTimeoutMs },
  });
}

const say = (what: string): string => `console.log(JSON.stringify(${what}));`;
const RESULT = '{ prefill_ms: 2, decode_wall_ms: 3, step_ms: [1.5, 1.5], tokens: q.prompts.map(() => [1, 2, 3]), peak_mib: 7, cpu_s: 0.5, q }';
const JOB = { prompts: [[1, 2], [3, 4]], output: 3 };

describe('bench/systems/line-system', () => {
  const { signal } = new AbortController();

  it('starts a program, asks it for jobs and ends it', async () => {
    const some = system(`if (q.sampling.top_k !== 40) process.exit(1); ${say(RESULT)}`);
    try {
      const started = await some.start(signal);
      assert.deepEqual([started.engine, started.weightBytes, started.loadMs], ['e', 5, 1]);
      assert.ok(started.startMs > 0);
      const result = await some.run({ ...JOB, sampling: { temperature: 0.8, topK: 40, topP: 0.9, seed: 1 } }, signal);
      assert.deepEqual(JSON.parse(JSON.stringify(result)), {
        prefillMs: 2, decodeWallMs: 3, stepMs: [1.5, 1.5], tokens: [[1, 2, 3], [1, 2, 3]], memoryMiB: [7], cpuS: 0.5,
      });
    } finally {
      await some.stop();
    }
  });

  it('passes on what the program complains about, and goes on', async () => {
    const some = system(`q.output === 1 ? ${say('{ error: "too few" }').slice(0, -1)} : ${say(RESULT)}`);
    try {
      await some.start(signal);
      await assert.rejects(some.run({ ...JOB, output: 1 }, signal), /some: too few/);
      assert.equal((await some.run(JOB, signal)).prefillMs, 2);
    } finally {
      await some.stop();
    }
  });

  it('refuses answers of another length, and lines that are no answer', async () => {
    const some = system(`q.output === 4 ? ${say(RESULT).slice(0, -1)} : ${say('{ prefill_ms: "2" }')}`);
    try {
      await some.start(signal);
      await assert.rejects(some.run({ ...JOB, output: 4 }, signal), /another length/);
      await assert.rejects(some.run(JOB, signal), { code: 'INTERNAL' });
    } finally {
      await some.stop();
    }
  });

  it('tells how a program ended that does not start, with what it said last', async () => {
    const some = new LineSystem({
      name: 'some', command: process.execPath, args: ['-e', 'console.error("no such model"); process.exit(3)'], cores: [0],
    });
    await assert.rejects(some.start(signal), /ended with 3\s+no such model/);
    await some.stop();
    const missing = new LineProgram('/no/such/program', []);
    await assert.rejects(missing.next({ timeoutMs: 10_000 }), /could not run/);
    await missing.stop();
  });

  it('kills a program that does not answer in time, or whose run is given up', async () => {
    const slow = system('', { jobTimeoutMs: 1 });
    await slow.start(signal);
    await assert.rejects(slow.run(JOB, signal), { code: 'DEADLINE_EXCEEDED' });
    await slow.stop();
    const given = system('');
    await given.start(signal);
    const stop = new AbortController();
    const asked = given.run(JOB, stop.signal);
    stop.abort(new RangeError('enough'));
    await assert.rejects(asked, /enough/);
    await given.stop();
  });
});
