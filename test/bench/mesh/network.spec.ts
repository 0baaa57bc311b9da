import assert from 'node:assert/strict';
import { placeOn } from '../../../bench/mesh/network.ts';
import { isMeshnetError } from '../../../src/errors.ts';

const HOSTS = [{ enter: ['nsenter', 'a'], address: '11.77.0.1' }, { enter: ['nsenter', 'b'], address: '11.77.0.2' }];

describe('bench/mesh/network', () => {
  it('puts everything of a host on one core, and knows no host that is not there', () => {
    assert.deepEqual(placeOn({ hosts: HOSTS }, 1, 0), { enter: ['nsenter', 'b'], address: '11.77.0.2', core: 0, pins: 'everything' });
    assert.throws(() => placeOn({ hosts: HOSTS }, 2, 0), (err) => isMeshnetError(err, 'INTERNAL'));
  });
});
