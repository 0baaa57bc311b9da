import assert from 'node:assert/strict';
import { requireDirect } from '../../../bench/mesh/paths.ts';
import { cellsOf } from '../../../bench/mesh/systems.ts';
import { isMeshnetError } from '../../../src/errors.ts';

describe('bench/mesh/systems', () => {
  it('gives each session whole blocks of cells, twice', () => {
    assert.equal(cellsOf({ sessions: 3, prompt: 32, output: 1 }), 2 * 3 * 64);
    assert.equal(cellsOf({ sessions: 1, prompt: 16, output: 16 }), 2 * 32);
  });

  it('takes no measure of a seam that went another way', () => {
    requireDirect(['libp2p direct-grpc']);
    assert.throws(() => { requireDirect(['libp2p direct-grpc', 'libp2p bridge']); }, (err) => isMeshnetError(err, 'INTERNAL'));
  });
});
