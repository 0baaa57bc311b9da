import assert from 'node:assert/strict';
import { formatRoute, shortPeer } from '../../src/cli/route-text.ts';

describe('cli/route-text', () => {
  it('gives each stage a line: peer, half-open layers, path', () => {
    assert.equal(formatRoute({
      epoch: 1, stages: [
        { peer: '12D3KooWQtzRG8XH', layers: [0, 15], path: 'libp2p' },
        { peer: 'short', layers: [15, 30], path: 'direct-grpc' },
      ],
    }), 'stage 0  …QtzRG8XH  layers 0-15  libp2p\nstage 1  short  layers 15-30  direct-grpc');
  });

  it('says that it does not know a route', () => {
    assert.equal(formatRoute(undefined), 'route unknown');
  });

  it('keeps the end of a peer id, where they differ', () => {
    assert.equal(shortPeer('12D3KooWQtzRG8XH'), '…QtzRG8XH');
    assert.equal(shortPeer('twelve chars'), 'twelve chars');
  });
});
