import assert from 'node:assert/strict';
import { MeshnetError } from '../../src/errors.ts';
import { AnswerMeter } from '../../src/gateway/answer-meter.ts';
import type { TokenEvent } from '../../src/gateway/backend.ts';
import { RecordingMetrics } from './recording-metrics.ts';

type Times = NonNullable<TokenEvent['times']>;

/** One stage that computes for so long. */
const busy = (ms: number): Times => [{ queueUs: 0, computeUs: ms * 1000, serializeUs: 0 }];

describe('gateway/answer-meter', () => {
  let observer: RecordingMetrics;
  let now: number;
  let meter: AnswerMeter;

  beforeEach(() => {
    observer = new RecordingMetrics();
    now = 1000;
    meter = new AnswerMeter(observer, () => now);
  });

  /** Events at their times, ms from the begin of the request. */
  async function * at(...events: [number, TokenEvent][]): AsyncGenerator<TokenEvent> {
    for (const [ms, event] of events) {
      now = 1000 + ms;
      yield event;
    }
  }

  it('passes every event on as it is', async () => {
    const events: [number, TokenEvent][] = [[1, { ids: [5], times: busy(1) }], [2, { ids: [6, 7] }], [3, { ids: [], finish: 'end' }]];
    assert.deepEqual(await Array.fromAsync(meter.watch(at(...events))), events.map(([, event]) => event));
  });

  it('times the first token from the request, and the others from the one before', async () => {
    await Array.fromAsync(meter.watch(at([300, { ids: [5] }], [320, { ids: [6] }], [350, { ids: [7, 8] }], [900, { ids: [], finish: 'end' }])));
    assert.deepEqual(observer.firsts, [300]);
    assert.deepEqual(observer.more, [{ count: 1, ms: 20 }, { count: 2, ms: 30 }]);
    assert.deepEqual(observer.steps, []);
  });

  it('tells how much of a prompt was cached once the first token is there, and not of an answer without one', async () => {
    const events = at([300, { ids: [5] }], [320, { ids: [6] }]);
    const warm = { cachedTokens: 0, [Symbol.asyncIterator]: () => events };
    const watched = meter.watch(warm);
    // Known for sure only then.
    warm.cachedTokens = 96;
    await Array.fromAsync(watched);
    await Array.fromAsync(new AnswerMeter(observer).watch(at([1, { ids: [], finish: 'cancelled' }])));
    assert.deepEqual(observer.cached, [96]);
  });

  it('splits a step into what its stages say and what is left for the network', async () => {
    const times = [{ queueUs: 1000, computeUs: 5000, serializeUs: 500 }, { queueUs: 0, computeUs: 6000, serializeUs: 1500 }];
    await Array.fromAsync(meter.watch(at([300, { ids: [5], times }], [320, { ids: [6], times }])));
    assert.deepEqual(observer.steps, [{
      stages: [{ queueMs: 1, computeMs: 5, handoverMs: 0.5 }, { queueMs: 0, computeMs: 6, handoverMs: 1.5 }], networkMs: 6,
    }]);
  });

  it('takes what a bunch of tokens leaves too little of from the network of the next', async () => {
    const times = busy(8);
    const events = [100, 110, 112, 130].map((ms, id): [number, TokenEvent] => [ms, { ids: [id], times }]);
    await Array.fromAsync(meter.watch(at(...events)));
    assert.deepEqual(observer.steps.map(({ networkMs }) => networkMs), [2, 0, 4]);
  });

  it('believes no stage that a part took longer than the whole', async () => {
    await Array.fromAsync(meter.watch(at([100, { ids: [1] }], [120, { ids: [2], times: busy(4_000_000) }])));
    assert.deepEqual(observer.steps, [{ stages: [{ queueMs: 0, computeMs: 120, handoverMs: 0 }], networkMs: 0 }]);
  });

  it('leaves the generation when it is left', async () => {
    let left = false;
    async function * endless(): AsyncGenerator<TokenEvent> {
      try {
        for (;;) {
          yield { ids: [1] };
        }
      } finally {
        left = true;
      }
    }
    const events = meter.watch(endless());
    await events.next();
    await events.return(undefined);
    assert.equal(left, true);
  });

  for (const [what, err, opened, end] of [
    ['an answer', undefined, true, { outcome: 'answered' }],
    ['a refusal before its route was open', new MeshnetError('NO_ROUTE'), false, { outcome: 'refused', reason: 'NO_ROUTE' }],
    ['a failure after that', new MeshnetError('WORKER_LOST'), true, { outcome: 'failed', reason: 'WORKER_LOST' }],
    ['a client that left early', new MeshnetError('CANCELLED'), false, { outcome: 'cancelled' }],
    ['a client that left late', new MeshnetError('CANCELLED'), true, { outcome: 'cancelled' }],
    ['a bug', new TypeError('x'), false, { outcome: 'refused', reason: 'INTERNAL' }],
  ] as const) {
    it(`tells ${what}, once`, () => {
      assert.equal(observer.waiting, 1);
      if (opened) {
        meter.watch(at());
        assert.deepEqual([observer.waiting, observer.open], [0, 1]);
      }
      meter.ended(err);
      meter.ended(new MeshnetError('INTERNAL'));
      meter.ended();
      assert.deepEqual(observer.ends, [{ ...end, opened }]);
      assert.deepEqual([observer.waiting, observer.open], [0, 0]);
    });
  }
});
