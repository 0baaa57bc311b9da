import assert from 'node:assert/strict';
import { lines } from '../../src/cli/status.ts';

describe('cli/status', () => {
  it('shows a loading shard, its problem, and nothing that would control the terminal', () => {
    const shown = lines({
      status: 'unavailable', node: { peerId: '12D3KooWQtzRG8XH', addresses: [], peers: 3, upSeconds: 7260 },
      shard: {
        state: 'loading', verified: false, progress: 0.42, architecture: '', layers: [0, 6], nLayer: 12, lanes: 0,
        cellsFree: 0, cellsTotal: 0, weightBytes: 0, kvBytes: 0, seamPort: 0,
        error: { code: 'WORKER_LOST', message: 'gone\u001b[2J' },
      },
      models: [{ id: 'm', digest: '00', coverage: 'incomplete' }],
    });
    assert.deepEqual(shown, [
      'Meshnet  node …QtzRG8XH  up 2 h 1 min  UNAVAILABLE',
      ' Shard     layers 0-6 of 12  loading, 42 %, unverified  0 sessions',
      ' Memory    weights 0 MiB  KV 0 MiB  cells 0/0',
      ' Problem   E_WORKER_LOST: gone�[2J',
      ' Model     m  layers known now: incomplete',
      ' Network   3 peers  no address',
      ' Privacy   public mesh: operators of shards can reconstruct prompts',
    ]);
  });
});
