import assert from 'node:assert/strict';
import { join } from 'node:path';
import { isMeshnetError } from '../../src/errors.ts';
import type { TextService } from '../../src/gateway/backend.ts';
import { TextProcess, type TextProcessInit } from '../../src/worker/text-process.ts';
import { type FakeModel, FakeWorkshop } from '../support/fake-model.ts';

describe('worker/text-process', function () {
  // Programs start slowly on a busy machine.
  this.timeout(30_000);

  const workshop = new FakeWorkshop();
  const running: TextProcess[] = [];
  const soon = (): { signal: AbortSignal } => ({ signal: AbortSignal.timeout(20_000) });
  const isCode = (code: string) => (err: unknown): boolean => isMeshnetError(err) && err.code === code;

  after(() => workshop.remove());
  afterEach(async () => {
    await Promise.all(running.splice(0).map((text) => text.stop()));
  });

  async function make(model: Partial<FakeModel> = {}, init: Partial<TextProcessInit> = {}): Promise<TextProcess> {
    const text = new TextProcess({
      binary: workshop.binary,
      runtimeDir: join(workshop.folder, 'run'),
      model: workshop.model(model),
      backoff: { baseMs: 10, maxFailures: 3 },
      ...init,
    });
    running.push(text);
    text.start();
    return text;
  }

  it('serves what the gateway asks of a text service', async () => {
    const text = await make();
    await text.ready(soon());
    const service: TextService = text;
    assert.deepEqual([...service.endIds], [2, 7]);
    assert.deepEqual(await service.tokenize('ab', soon()), [97, 98]);
    const rendered = await service.render({ messages: [{ role: 'user', content: 'hi' }], addGenerationPrompt: true }, soon());
    assert.deepEqual(rendered, { prompt: '[{"role":"user","content":"hi"}]', ids: [1, 2, 3] });
    const withTools = await service.render({ messages: [], tools: [{ a: 1 }], addGenerationPrompt: false }, soon());
    assert.equal(withTools.prompt, '[][{"a":1}]');
    assert.equal(await service.grammarFromSchema('{}', soon()), 'root ::= "{}"');
  });

  it('waits for the first boot by itself', async () => {
    const text = await make();
    assert.deepEqual(await text.tokenize('a', soon()), [97]);
  });

  it('remembers pieces, apart for control tokens, and gives them in the order of the ids', async () => {
    const text = await make();
    const { pid } = await text.ready(soon());
    const texts = async (ids: number[], special = false): Promise<string[]> =>
      (await text.pieces(ids, { ...soon(), special })).map((piece) => Buffer.from(piece).toString().split('@')[0] ?? '');
    assert.deepEqual(await texts([3, 1, 3, 2]), ['3', '1', '3', '2']);
    assert.deepEqual(await texts([1], true), ['s1']);
    process.kill(pid, 'SIGSTOP');
    assert.deepEqual(await texts([2, 3, 1, 1]), ['2', '3', '1', '1']);
    assert.deepEqual(await texts([]), []);
    process.kill(pid, 'SIGCONT');
  });

  it('passes on refusals as they are', async () => {
    const text = await make();
    await assert.rejects(text.pieces([100], soon()), isCode('TOKEN_INVALID'));
    await assert.rejects(text.grammarFromSchema('no schema', soon()), isCode('GRAMMAR_INVALID'));
    await assert.rejects(text.render({ messages: ['nonsense'], addGenerationPrompt: true }, soon()), isCode('TEXT_FAILED'));
  });

  it('kills a process that passes the hard limit, and serves everybody else with the next', async () => {
    const text = await make({}, { callTimeoutMs: 1_500 });
    const { pid } = await text.ready(soon());
    const hostile = text.render({ messages: ['for ever'], addGenerationPrompt: true }, soon());
    const beside = text.pieces([5], soon());
    await assert.rejects(hostile, isCode('TEXT_FAILED'));
    await beside;
    assert.deepEqual(await text.tokenize('a', soon()), [97]);
    assert.notEqual((await text.ready(soon())).pid, pid);
    assert.throws(() => process.kill(pid, 0), { code: 'ESRCH' });
  });

  it('goes on however often that happens', async () => {
    const text = await make({}, { callTimeoutMs: 1_000, backoff: { baseMs: 10, maxFailures: 2 } });
    for (let i = 0; i < 3; i++) {
      const hostile = text.render({ messages: ['for ever'], addGenerationPrompt: true }, soon());
      await assert.rejects(hostile, isCode('TEXT_FAILED'));
    }
    assert.deepEqual(await text.tokenize('a', soon()), [97]);
  });

  it('serves again what another request lost', async () => {
    const text = await make();
    const { pid } = await text.ready(soon());
    process.kill(pid, 'SIGSTOP');
    const asked = text.tokenize('a', soon());
    process.kill(pid, 'SIGKILL');
    assert.deepEqual(await asked, [97]);
  });

  it('withdraws a call without harm to the process', async () => {
    const text = await make();
    const { pid } = await text.ready(soon());
    const stop = new AbortController();
    const asked = text.render({ messages: ['for ever'], addGenerationPrompt: true }, { signal: stop.signal });
    stop.abort();
    await assert.rejects(asked, isCode('CANCELLED'));
    assert.equal((await text.ready(soon())).pid, pid);
  });

  it('says what it failed with for good, and withdraws waits when it stops', async () => {
    const broken = await make({ exit: 65 });
    await assert.rejects(broken.ready(soon()), isCode('MODEL_CORRUPT'));
    await assert.rejects(broken.tokenize('a', soon()), isCode('MODEL_CORRUPT'));
    assert.throws(() => broken.endIds, isCode('MODEL_CORRUPT'));
    const stopped = await make();
    const waiting = stopped.tokenize('a', soon());
    await Promise.all([assert.rejects(waiting, isCode('CANCELLED')), stopped.stop()]);
  });
});
