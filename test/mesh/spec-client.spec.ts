import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { completeOnce } from './spec-client/client.ts';
import { PathKind } from './spec-client/messages.ts';
import { UpProcess } from './spec-client/up.ts';

const READY_MS = 120_000;
const N_LAYER = 4;
/** More than the frames that may stay without an ack. */
const MAX_TOKENS = 24;
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
    const common = ['--lab', '--cache-dir', join(root, 'cache'), '--data-dir', join(root, name)];
    const node = new UpProcess([...common, '--listen', '/ip4/127.0.0.1/tcp/0', '--log-level', 'warn', ...args]);
    nodes.push(node);
    return node;
  };

  /** A gateway that everybody meets at, and a serving shard between every two cuts. */
  const startMesh = async (name: string, cuts: number[], workerArgs: string[]) => {
    const signal = AbortSignal.timeout(READY_MS);
    const gateway = up(`${name}-gateway`, ['--api-port', '0']);
    const { addresses } = await gateway.event(({ event }) => event === 'listening', signal);
    const bootstrap = String((addresses as string[])[0]);
    const serving = ['--no-api', '--bootstrap', bootstrap, '--model', model];
    const worker = ['--worker-threads', '1', '--worker-cells', '4096', ...workerArgs];
    const stages = await Promise.all(
      cuts.slice(1).map(async (last, i) => {
        const first = cuts[i] ?? 0;
        const shard = up(`${name}-${i}`, [...serving, '--layers', `${first}-${last}`, ...worker]);
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

  const direct = ['--worker-listen', '127.0.0.1:0'];
  const meshes = [
    { name: 'two stages', cuts: [0, 2, 4], workerArgs: direct, path: PathKind.DIRECT_GRPC },
    { name: 'three stages', cuts: [0, 1, 3, 4], workerArgs: direct, path: PathKind.DIRECT_GRPC },
    { name: 'a bridged seam', cuts: [0, 2, 4], workerArgs: ['--no-direct'], path: PathKind.LIBP2P },
  ];
  for (const { name, cuts, workerArgs, path } of meshes) {
    it(`completes a session over ${name} with nothing but SPEC.md to go by`, async () => {
      const { bootstrap, stages } = await startMesh(name, cuts, workerArgs);
      const [digest = '', ...others] = new Set(stages.map((stage) => stage.digest));
      assert.deepEqual(others, []);
      const modelDigest = Buffer.from(digest, 'hex');
      const answer = await completeOnce({ bootstrap, modelDigest, nLayer: N_LAYER, ids: PROMPT, maxTokens: MAX_TOKENS });

      assert.deepEqual(answer.stages, stages.map(({ peerId, first, last }) => ({ peerId, first, last })));
      assert.deepEqual(answer.tokens, reference(model));
      assert.equal(answer.finish, answer.tokens.length === MAX_TOKENS ? 'MAX_TOKENS' : 'END');
      assert.equal(answer.nTimes, stages.length);
      // One seam between neighbours, and the loop from the tail to the head when they are none.
      const nSeams = stages.length === 2 ? 1 : stages.length;
      assert.deepEqual(answer.paths, Array.from({ length: nSeams }, () => path));
    });
  }
});
