import assert from 'node:assert/strict';
import { lines } from '../../src/cli/status.ts';

const SHARD = {
  state: 'serving', verified: false, progress: 1, architecture: 'llama', layers: [0, 6] as [number, number], nLayer: 12, lanes: 2, resting: 1,
  cellsUsed: 300, cellsTotal: 4096, sequencesUsed: 2, sequencesTotal: 16, weightBytes: 50 * 2 ** 20, kvBytes: 12 * 2 ** 20, seamPort: 1,
  queueDepth: 3, batchSize: 1.75, tickUs: { decode: 3200, prefill: 140_000 }, ticks: 99,
};

describe('cli/status', () => {
  it('shows a loading shard, its problem, and nothing that would control the terminal', () => {
    const shown = lines({
      status: 'unavailable', node: { peerId: '12D3KooWQtzRG8XH', addresses: [], peers: 3, upSeconds: 7260 },
      shard: {
        ...SHARD, state: 'loading', progress: 0.42, architecture: '', lanes: 0, resting: 0, cellsUsed: 0, cellsTotal: 0, sequencesUsed: 0,
        sequencesTotal: 0, weightBytes: 0, kvBytes: 0, ticks: 0, error: { code: 'WORKER_LOST', message: 'gone\u001b[2J' },
      },
      models: [{ id: 'm', digest: '00', coverage: 'incomplete' }],
    });
    assert.deepEqual(shown, [
      'Meshnet  node …QtzRG8XH  up 2 h 1 min  UNAVAILABLE',
      ' Shard     layers 0-6 of 12  loading, 42 %, unverified  0 sessions',
      ' Memory    weights 0 MiB  KV 0 MiB  cells 0/0  sequences 0/0',
      ' Problem   E_WORKER_LOST: gone�[2J',
      ' Model     m  layers known now: incomplete',
      ' Network   3 peers  no address',
      ' Privacy   public mesh: operators of shards can reconstruct prompts',
    ]);
  });

  it('sums up what shard and gateway do', () => {
    const shown = lines({
      status: 'ok', node: { peerId: '12D3KooWQtzRG8XH', addresses: ['/ip4/10.0.0.1/tcp/4001'], peers: 3, upSeconds: 60 },
      shard: SHARD,
      activity: { requests: { answered: 7, refused: 0, failed: 0, cancelled: 1, waiting: 0, open: 2 }, refusals: {} },
    });
    assert.deepEqual(shown, [
      'Meshnet  node …QtzRG8XH  up 1 min  OK',
      ' Shard     llama layers 0-6 of 12  serving, unverified  2 sessions, 1 at rest',
      ' Memory    weights 50 MiB  KV 12 MiB  cells 300/4096  sequences 2/16',
      ' Work      queue 3  batch 1.8  tick 3.2 ms decode, 140 ms prefill',
      ' Requests  7 answered  0 refused  0 failed  1 cancelled',
      ' Now       2 open  0 waiting',
      ' Network   3 peers  /ip4/10.0.0.1/tcp/4001',
      ' Privacy   public mesh: operators of shards can reconstruct prompts',
    ]);
  });
});
