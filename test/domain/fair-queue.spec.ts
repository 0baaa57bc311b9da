import assert from 'node:assert/strict';
import fc from 'fast-check';
import { FairQueue, type Waiting } from '../../src/domain/fair-queue.ts';

const LINE = 'model';
const nothing = (_client: string): number => 0;
let arrivals = 0;
const one = (client: string, line = LINE): Waiting => ({ client, line, arrival: ++arrivals });

/** Serves all that wait, and says whose requests they were. */
function drain(queue: FairQueue<Waiting>, held = nothing, line = LINE): string[] {
  const served: string[] = [];
  for (let item = queue.next(line, held); item !== undefined; item = queue.next(line, held)) {
    assert.ok(queue.serve(item));
    served.push(item.client);
  }
  return served;
}

describe('domain/fair-queue', () => {
  const queueOf = (max = 100, maxPerClient = 100): FairQueue<Waiting> => new FairQueue({ max, maxPerClient });
  const fill = (queue: FairQueue<Waiting>, clients: string): Waiting[] => Array.from(clients, (client) => {
    const item = one(client);
    assert.equal(queue.add(item), undefined);
    return item;
  });

  it('serves one client by arrival, also when a later one was quicker to wait', () => {
    const queue = queueOf();
    const [first, second, third] = [one('a'), one('a'), one('a')];
    for (const item of [second, third, first]) {
      queue.add(item);
    }
    for (const expected of [first, second, third]) {
      const item = queue.next(LINE, nothing);
      assert.equal(item, expected);
      assert.equal(queue.next(LINE, nothing), item, 'looking does not take');
      queue.serve(item);
    }
    assert.equal(queue.next(LINE, nothing), undefined);
    assert.equal(queue.size, 0);
  });

  it('takes turns between clients, whoever asked for most', () => {
    const queue = queueOf();
    fill(queue, 'aaaabbc');
    assert.equal(drain(queue).join(''), 'abcabaa');
  });

  it('is fair whatever comes: of clients that wait all the time, none gets two more than another', () => {
    const counts = fc.array(fc.integer({ min: 1, max: 12 }), { minLength: 2, maxLength: 6 });
    fc.assert(fc.property(counts, fc.infiniteStream(fc.nat()), (each, order) => {
      const queue = queueOf();
      const left = each.flatMap((count, client) => Array.from({ length: count }, () => String(client)));
      while (left.length > 0) {
        const [client] = left.splice((order.next().value as number) % left.length, 1);
        queue.add(one(client as string));
      }
      const served = drain(queue);
      assert.deepEqual(served.toSorted(), each.flatMap((count, client) => Array.from({ length: count }, () => String(client))).toSorted());
      const rounds = Math.min(...each);
      const begin = served.slice(0, rounds * each.length);
      for (let at = 0; at < begin.length; at += each.length) {
        assert.equal(new Set(begin.slice(at, at + each.length)).size, each.length);
      }
    }));
  });

  it('lets nobody in front by leaving and coming back', () => {
    const queue = queueOf();
    fill(queue, 'abbb');
    const served: string[] = [];
    for (let i = 0; i < 4; i++) {
      const item = queue.next(LINE, nothing) as Waiting;
      queue.serve(item);
      served.push(item.client);
      if (item.client === 'a') {
        fill(queue, 'a');
      }
    }
    assert.equal(served.join(''), 'abab');
  });

  it('serves the client first that holds least', () => {
    const queue = queueOf();
    fill(queue, 'abc');
    const held: Record<string, number> = { a: 2, b: 1, c: 1 };
    assert.equal(drain(queue, (client) => held[client] ?? 0).join(''), 'bca');
  });

  it('tells who comes after those that are being tried for', () => {
    const queue = queueOf();
    const [first, second, third] = fill(queue, 'aab');
    assert.equal(queue.next(LINE, nothing, [first as Waiting]), second);
    assert.equal(queue.next(LINE, (client) => client === 'a' ? 1 : 0, [first as Waiting]), third);
    assert.equal(queue.next(LINE, nothing, [first, second, third] as Waiting[]), undefined);
    assert.equal(queue.size, 3);
  });

  it('keeps lines apart, and counts them together', () => {
    const queue = queueOf(3, 2);
    const other = one('a', 'other');
    queue.add(other);
    queue.add(one('a'));
    assert.deepEqual([queue.has(LINE), queue.has('other'), queue.has('third')], [true, true, false]);
    assert.equal(queue.next('other', nothing), other);
    assert.equal(queue.next('third', nothing), undefined);
    assert.deepEqual(queue.add(one('a')), { scope: 'client', waiting: 2, limit: 2 });
    assert.equal(queue.add(one('b')), undefined);
    assert.deepEqual(queue.add(one('c')), { scope: 'all', waiting: 3, limit: 3 });
    assert.equal(drain(queue).join(''), 'ab');
    assert.equal(queue.has(LINE), false);
    assert.equal(queue.size, 1);
  });

  it('frees the place of one who leaves at once, and takes no turn for it', () => {
    const queue = queueOf(3, 2);
    const [first, second] = fill(queue, 'aab');
    assert.notEqual(queue.add(one('c')), undefined);
    assert.equal(queue.remove(first as Waiting), true);
    assert.equal(queue.remove(first as Waiting), false);
    assert.equal(queue.serve(first as Waiting), false);
    assert.equal(queue.add(one('c')), undefined);
    assert.equal(queue.size, 3);
    assert.equal(queue.remove(second as Waiting), true);
    assert.equal(drain(queue).join(''), 'bc');
  });

  it('lets nobody wait when it may hold nobody', () => {
    assert.deepEqual(queueOf(0).add(one('a')), { scope: 'all', waiting: 0, limit: 0 });
    assert.deepEqual(queueOf(5, 0).add(one('a')), { scope: 'client', waiting: 0, limit: 0 });
  });
});
