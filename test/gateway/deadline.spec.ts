import assert from 'node:assert/strict';
import { isMeshnetError, MeshnetError } from '../../src/errors.ts';
import { eachWithin, within } from '../../src/gateway/deadline.ts';

const never = (): Promise<never> => new Promise(() => undefined);

describe('gateway/deadline', () => {
  it('gives the result and leaves no listener on the signal', async () => {
    const { signal } = new AbortController();
    assert.equal(await within(1000, 'it', async () => 5, { signal }), 5);
    await assert.rejects(within(1000, 'it', async () => { throw new RangeError('x'); }, { signal }), RangeError);
  });

  it('tells the work when the time is over, and does not wait for it', async () => {
    let told: unknown;
    const work = ({ signal }: { signal: AbortSignal }): Promise<never> => {
      signal.addEventListener('abort', () => { told = signal.reason; });
      return never();
    };
    await assert.rejects(within(5, 'it', work, { signal: new AbortController().signal }), (err) => isMeshnetError(err, 'DEADLINE_EXCEEDED'));
    assert.ok(isMeshnetError(told, 'DEADLINE_EXCEEDED'));
  });

  it('ends with the reason of the signal', async () => {
    const controller = new AbortController();
    const waiting = within(10_000, 'it', never, { signal: controller.signal });
    controller.abort(new MeshnetError('CANCELLED'));
    await assert.rejects(waiting, (err) => isMeshnetError(err, 'CANCELLED'));
    await assert.rejects(within(10, 'it', never, { signal: controller.signal }), (err) => isMeshnetError(err, 'CANCELLED'));
  });

  it('leaves an iteration when it is left, and when an item does not come', async () => {
    const left: string[] = [];
    const source = async function* (name: string, hang: boolean): AsyncGenerator<number> {
      try {
        yield 1;
        if (hang) {
          await never();
        }
        yield 2;
      } finally {
        left.push(name);
      }
    };
    const { signal } = new AbortController();
    for await (const item of eachWithin(1000, 'the next', source('broken off', false), { signal })) {
      assert.equal(item, 1);
      break;
    }
    assert.deepEqual(left, ['broken off']);
    const items: number[] = [];
    await assert.rejects(async () => {
      for await (const item of eachWithin(5, 'the next', source('hanging', true), { signal })) {
        items.push(item);
      }
    }, (err) => isMeshnetError(err, 'DEADLINE_EXCEEDED'));
    assert.deepEqual(items, [1]);
  });
});
