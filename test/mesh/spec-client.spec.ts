import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { completeOnce } from './spec-client/client.ts';
import { UpProcess } from './spec-client/up.ts';

const READY_MS = 120_000;
const N_LAYER = 4;
const MAX_TOKENS = 24;
/** Longer than 16 frames' worth of acks, shorter than one compute unit. */
const PROMPT = Array.from({ length: 40 }, (_, i) => 100 + ((i * 7919) % 900));

const program = (name: string): string => join(import.meta.dirname, '../../native-worker/build/bin', name);

/** Greedy tokens of the whole model, by llama.cpp alone. */
function reference(model: string): number[] {
  const args = ['--model', model, '--tokens', PROMPT.join(','), '--predict', String(MAX_TOKENS)];
  const lines = execFileSync(program('meshnet-reference'), args, { encoding: 'utf8' }).trimEnd().split('\n');
  const { tokens } = JSON.parse(lines.at(-1) ?? '') as { tokens: number[] };
  return tokens;
}

describe('mesh/spec-client', function () {
  this.timeout(READY_MS + 60_000);
  const nodes: UpProcess[] = [];
  let root = '';
  let model = '';

  const up = (name: string, args: string[]): UpProcess => {
    const common = ['--lab', '--dht-server', '--cache-dir', join(root, 'cache'), '--data-dir', join(root, name)];
    const node = new UpProcess([...common, '--listen', '/ip4/127.0.0.1/tcp/0', '--log-level', 'warn', ...args]);
    nodes.push(node);
    return node;
  };

  /** A gateway that everybody meets at, and a serving shard between every two cuts. */
  const startMesh = async (cuts: number[]) => {
    const signal = AbortSignal.timeout(READY_MS);
    const gateway = up(`gateway-${cuts.length}`, ['--api-port', '0']);
    const { addresses } = await gateway.event(({ event }) => event === 'listening', signal);
    const bootstrap = String((addresses as string[])[0]);
    const serving = ['--no-api', '--bootstrap', bootstrap, '--model', model];
    const worker = ['--worker-threads', '1', '--worker-listen', '127.0.0.1:0', '--worker-cells', '4096'];
    const stages = await Promise.all(
      cuts.slice(1).map(async (last, i) => {
        const first = cuts[i] ?? 0;
        const shard = up(`shard-${cuts.length}-${i}`, [...serving, '--layers', `${first}-${last}`, ...worker]);
        await shard.event(({ event, state }) => event === 'shard' && state === 'serving', signal);
        const { digest } = await shard.event(({ event }) => event === 'model', signal);
        const { peer_id } = await shard.event(({ event }) => event === 'listening', signal);
        return { peerId: String(peer_id), first, last, digest: String(digest) };
      }),
    );
    return { bootstrap, stages };
  };

  before(() => {
    root = mkdtempSync(join(tmpdir(), 'meshnet-spec-client-'));
    model = join(root, 'model.gguf');
    const args = ['--out', model, '--layers', String(N_LAYER), '--embd', '64', '--ffn', '128'];
    execFileSync(program('meshnet-testmodel'), args, { stdio: ['ignore', 'ignore', 'inherit'] });
  });

  afterEach(async () => {
    await Promise.all(nodes.splice(0).map((node) => node.stop()));
  });

  after(() => rmSync(root, { recursive: true, force: true }));

  for (const cuts of [[0, 2, 4], [0, 1, 3, 4]]) {
    it(`completes a session over ${cuts.length - 1} stages with nothing but SPEC.md to go by`, async () => {
      const { bootstrap, stages } = await startMesh(cuts);
      const [digest = '', ...others] = new Set(stages.map((stage) => stage.digest));
      assert.deepEqual(others, []);
      const modelDigest = Buffer.from(digest, 'hex');
      const answer = await completeOnce({ bootstrap, modelDigest, nLayer: N_LAYER, ids: PROMPT, maxTokens: MAX_TOKENS });

      assert.deepEqual(answer.stages, stages.map(({ peerId, first, last }) => ({ peerId, first, last })));
      assert.deepEqual(answer.tokens, reference(model));
      assert.equal(answer.finish, answer.tokens.length === MAX_TOKENS ? 'MAX_TOKENS' : 'END');
      assert.equal(answer.nTimes, stages.length);
    });
  }
});
