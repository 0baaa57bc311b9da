import assert from 'node:assert/strict';
import { seamEndpoints } from '../../src/serve/seam-endpoints.ts';

describe('serve/seam-endpoints', () => {
  const addresses = [
    '/ip4/203.0.113.7/tcp/4001/p2p/12D3', '/ip4/203.0.113.7/tcp/4002', '/dns4/node.example/tcp/4001',
    '/ip6/2001:db8::1/tcp/4001', '/p2p/12D3/p2p-circuit',
  ];

  it('names the hosts that others reach the node by, each once, with the port of the listener', () => {
    for (const listen of ['0.0.0.0:0', '[::]:0']) {
      assert.deepEqual(seamEndpoints(listen, addresses, 5001), [
        '203.0.113.7:5001', 'node.example:5001', '[2001:db8::1]:5001',
      ]);
    }
  });

  it('names the one address that it is bound to', () => {
    assert.deepEqual(seamEndpoints('127.0.0.1:0', addresses, 5001), ['127.0.0.1:5001']);
    assert.deepEqual(seamEndpoints('[2001:db8::9]:0', addresses, 5001), ['[2001:db8::9]:5001']);
  });

  it('names none when the node knows no address', () => {
    assert.deepEqual(seamEndpoints('0.0.0.0:0', [], 5001), []);
  });
});
