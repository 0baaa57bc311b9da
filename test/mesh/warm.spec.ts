import assert from 'node:assert/strict';
import type { NodeProcess } from '../../src/cli/node-process.ts';
import { Exposition } from '../support/exposition.ts';
import { ENDLESS } from './support/answer-stream.ts';
import { apiOf, covered, idle, LAYERS, Mesh, MODEL, READY_MS, resolveModel } from './support/mesh.ts';
import { until } from './support/processes.ts';

/** Tokens of an answer, which no end token ends. */
const TOKENS = 8;
const FIRST = 200;
const MORE = 40;

interface Answered {
  readonly text: string;
  readonly prompt: number;
  readonly cached: number;
  readonly route: string;
}

/** A conversation that nobody else has: ids of whole words. */
const ids = (seed: number, count: number): number[] =>
  Array.from({ length: count }, (_, i) => 1000 + ((seed * 104_729 + i * 7919) % 20_000));

describe('mesh/warm', function () {
  this.timeout(60_000);
  let mesh: Mesh;
  let gateway: NodeProcess;
  /** Holds two sessions. */
  let head: NodeProcess;
  let tail: NodeProcess;

  before(async function () {
    this.timeout(2 * READY_MS);
    mesh = new Mesh('warm');
    gateway = await mesh.gateway(await resolveModel(), 'gateway', ['--warm-sessions', '8']);
    [head, tail] = await Promise.all([
      mesh.shard('0-4', gateway, { args: ['--worker-sequences', '2'] }), mesh.shard(`4-${LAYERS}`, gateway),
    ]);
    await covered(gateway);
  });

  after(async function () {
    this.timeout(60_000);
    await mesh?.stop();
  });

  const ask = async (key: string, prompt: readonly number[]): Promise<Answered> => {
    const response = await fetch(`${apiOf(gateway)}/v1/completions`, {
      method: 'POST', signal: AbortSignal.timeout(30_000), headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
      body: JSON.stringify({ model: MODEL, prompt, temperature: 0, max_tokens: TOKENS, ...ENDLESS }),
    });
    assert.equal(response.status, 200);
    const { choices: [choice], usage } = await response.json() as {
      choices: { text: string }[]; usage: { prompt_tokens: number; prompt_tokens_details: { cached_tokens: number } };
    };
    const cached = usage.prompt_tokens_details.cached_tokens;
    return { text: choice?.text ?? '', prompt: usage.prompt_tokens, cached, route: response.headers.get('x-meshnet-route') ?? '' };
  };
  const read = async (node: NodeProcess): Promise<Exposition> => {
    const response = await fetch(`${apiOf(node)}/metrics`, { signal: AbortSignal.timeout(10_000) });
    return new Exposition(await response.text());
  };
  /** Until the shards, whose workers report once a second, have computed so many positions of prompts. */
  const prefilled = async (count: number): Promise<void> => {
    for (const shard of [head, tail]) {
      await until(`${count} positions of prompts`, async () =>
        (await read(shard)).value('meshnet_positions_total', { phase: 'prefill' }) === count || undefined);
    }
  };
  const resting = (count: number): Promise<true> => until(`${count} sessions rest`, async () =>
    (await read(gateway)).value('meshnet_warm_sessions') === count || undefined);

  it('computes only what is new in the second turn, which says the same as a cold one', async () => {
    const began = (await read(head)).value('meshnet_positions_total', { phase: 'prefill' });
    const prompt = ids(1, FIRST);
    const first = await ask('alice', prompt);
    assert.deepEqual([first.prompt, first.cached], [FIRST, 0]);
    await resting(1);

    const longer = [...prompt, ...ids(2, MORE)];
    const second = await ask('alice', longer);
    // What was answered is no part of it, unless by chance.
    assert.ok(second.cached >= FIRST && second.cached < FIRST + TOKENS, `${second.cached} cached`);
    assert.equal(second.prompt, FIRST + MORE);
    assert.equal(second.route, first.route);
    await prefilled(began + FIRST + FIRST + MORE - second.cached);
    assert.equal((await read(gateway)).value('meshnet_cached_tokens_total'), second.cached);

    // Another client has nothing of it, and pays for all.
    const cold = await ask('bob', longer);
    assert.equal(cold.cached, 0);
    assert.equal(cold.text, second.text);
    await resting(2);
    await prefilled(began + 2 * (FIRST + MORE) + FIRST - second.cached);
  });

  it('takes a turn that begins alike back to where it parts', async () => {
    const [before, after] = [ids(1, FIRST), ids(3, MORE)];
    const { cached, text } = await ask('alice', [...before, ...after]);
    assert.ok(cached >= FIRST && cached < FIRST + TOKENS, `${cached} cached`);
    await resting(2);
    // The same again, to the end of the prompt.
    const again = await ask('alice', [...before, ...after]);
    assert.deepEqual([again.cached, again.text], [FIRST + MORE - 1, text]);
    await resting(2);
  });

  it('gives the place of the session that has rested longest to a request that needs it', async () => {
    assert.equal((await ask('carol', ids(4, FIRST))).cached, 0);
    // It was bob's: alice has asked later.
    const longer = (seed: number): number[] => [...ids(1, FIRST), ...ids(3, MORE), ...ids(seed, MORE)];
    assert.equal((await ask('alice', longer(5))).cached >= FIRST + MORE, true);
    assert.equal((await ask('bob', [...ids(1, FIRST), ...ids(2, MORE), ...ids(6, MORE)])).cached, 0);
  });

  it('goes on with a session that has grown beyond what it was opened for', async () => {
    let prompt = ids(7, FIRST);
    for (const turn of [1, 2, 3]) {
      const { cached } = await ask('dave', prompt);
      assert.ok(cached >= (turn - 1) * FIRST, `${cached} cached in turn ${turn}`);
      await resting(2);
      prompt = [...prompt, ...ids(7 + turn, FIRST)];
    }
  });

  it('leaves nothing behind when the gateway stops', async () => {
    await gateway.stop();
    await idle(head, tail);
  });
});
