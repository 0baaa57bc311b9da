import assert from 'node:assert/strict';
import fc from 'fast-check';
import { Progress, type ProgressEvent } from '../../src/model/progress.ts';

function recorder(): { events: ProgressEvent[]; progress: Progress; clock: { ms: number } } {
  const events: ProgressEvent[] = [];
  const clock = { ms: 0 };
  return { events, clock, progress: new Progress((event) => { events.push(event); }, () => clock.ms) };
}

describe('model/progress', () => {
  it('counts download and verification as one total', () => {
    const { events, progress } = recorder();
    progress.plan({ download: 100, verify: 100 });
    progress.advance('download', 50, 100);
    progress.advance('download', 100, 100);
    progress.advance('verify', 50, 100);
    progress.finish(100);
    assert.deepEqual(events.map(({ phase, done, total }) => [phase, done, total]), [
      ['plan', 0, 200], ['download', 50, 200], ['download', 100, 200], ['verify', 150, 200], ['verify', 200, 200],
    ]);
  });

  it('has no total until the source says one, and keeps it then', () => {
    const { events, progress } = recorder();
    progress.plan({ download: undefined, verify: undefined });
    progress.advance('download', 10, undefined);
    progress.advance('download', 20, 100);
    progress.advance('download', 30, 120);
    assert.deepEqual(events.map(({ total }) => total), [null, null, 200, 200]);
  });

  it('scales a source that counts other bytes than those of the file', () => {
    const { events, progress } = recorder();
    progress.plan({ download: 1000, verify: 1000 });
    progress.advance('download', 5, 10);
    assert.equal(events.at(-1)?.done, 500);
  });

  it('tells rate and time left from the last seconds of the phase alone', () => {
    const { events, progress, clock } = recorder();
    progress.plan({ download: 10_000, verify: 0 });
    progress.advance('download', 4000, 10_000); // resumed: not fetched now
    clock.ms = 1000;
    progress.advance('download', 5000, 10_000);
    assert.equal(events.at(-1)?.rate, 1000);
    assert.equal(events.at(-1)?.eta, 5);
    clock.ms = 11_000;
    progress.advance('download', 5000, 10_000);
    clock.ms = 12_000;
    progress.advance('download', 5100, 10_000);
    assert.equal(events.at(-1)?.rate, 100);
  });

  it('passes a notice on without moving', () => {
    const { events, progress } = recorder();
    progress.plan({ download: 100, verify: 100 });
    progress.advance('download', 50, 100);
    progress.notice({ kind: 'stalled', attempt: 2, attempts: 5 });
    assert.equal(events.at(-1)?.done, 50);
    assert.deepEqual(events.at(-1)?.notice, { kind: 'stalled', attempt: 2, attempts: 5 });
  });

  it('ends at once when there was nothing to do', () => {
    const { events, progress } = recorder();
    progress.finish(77);
    assert.deepEqual(events, [{ phase: 'verify', done: 77, total: 77, rate: null, eta: 0 }]);
  });

  it('never goes back and never passes its total, whatever a source says', () => {
    const step = fc.record({
      phase: fc.constantFrom('download' as const, 'verify' as const),
      done: fc.nat(2000), total: fc.option(fc.nat(1500), { nil: undefined }), ms: fc.nat(400),
    });
    fc.assert(fc.property(fc.option(fc.nat(1000), { nil: undefined }), fc.array(step, { maxLength: 40 }), (planned, steps) => {
      const { events, progress, clock } = recorder();
      progress.plan({ download: planned, verify: planned });
      for (const { phase, done, total, ms } of steps) {
        clock.ms += ms;
        progress.advance(phase, done, total);
      }
      progress.finish(1);
      let before: ProgressEvent | undefined;
      for (const event of events) {
        assert.ok(event.done >= (before?.done ?? 0));
        assert.ok(event.total === null || event.done <= event.total);
        assert.ok(before?.total == null || before.total === event.total);
        before = event;
      }
      assert.equal(events.at(-1)?.done, events.at(-1)?.total);
    }), { seed: 20_240_607, numRuns: 500 });
  });
});
