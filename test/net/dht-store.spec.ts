import assert from 'node:assert/strict';
import { DhtStore } from '../../src/net/dht-store.ts';

type Key = Parameters<DhtStore['put']>[0];
const key = (name: string): Key => ({ toString: () => name }) as Key;
const record = (model: number, peer: string): Key => key(`/dht/provider/model${model}/${peer}`);

describe('net/dht-store', () => {
  let store: DhtStore;
  beforeEach(() => {
    store = new DhtStore('own');
  });
  const put = (name: Key) => store.put(name, Uint8Array.of(1));

  it('keeps the newest records of a peer', () => {
    for (let model = 0; model < 100; model++) {
      void put(record(model, 'greedy'));
    }
    assert.equal(store.records, 64);
    assert.equal(store.has(record(35, 'greedy')), false);
    assert.equal(store.has(record(36, 'greedy')), true);
    assert.equal(store.has(record(99, 'greedy')), true);
  });

  it('keeps the newest records of all, and its own', () => {
    void put(record(0, 'own'));
    void put(record(0, 'first'));
    void put(record(0, 'second'));
    void put(record(0, 'first'));
    for (let peer = 0; peer < 4094; peer++) {
      void put(record(0, `sybil${peer}`));
    }
    assert.equal(store.records, 4096);
    assert.equal(store.has(record(0, 'second')), false);
    assert.equal(store.has(record(0, 'first')), true);
    assert.equal(store.has(record(0, 'own')), true);
  });

  it('counts a record that is renewed or deleted once, and leaves everything else alone', () => {
    void put(record(1, 'peer'));
    void put(record(1, 'peer'));
    void put(key('/peers/abc'));
    assert.equal(store.records, 1);
    void store.delete(record(1, 'peer'));
    void store.delete(record(1, 'peer'));
    assert.equal(store.records, 0);
    assert.equal(store.has(key('/peers/abc')), true);
  });
});
