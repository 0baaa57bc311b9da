import assert from 'node:assert/strict';
import { MeshnetError, isMeshnetError } from '../../src/errors.ts';
import type { AdmissionHandler, LeaseEnd } from '../../src/net/admission-protocol.ts';
import { LocalAdmission } from '../../src/serve/local-admission.ts';

const SELF = 'self';
const soon = { timeoutMs: 5000 };

/** A stage that admits when it is told to, and notes every end. */
class Stage implements AdmissionHandler {
  readonly ends: LeaseEnd[] = [];
  readonly answer = Promise.withResolvers<{ positions: number }>();

  async admit(): Promise<{ positions: number }> {
    return await this.answer.promise;
  }

  async link(): Promise<{ path: number }> {
    return { path: 1 };
  }

  readonly turns: (number | 'rest')[] = [];
  /** Why no turn may come. */
  refusal: MeshnetError | undefined;

  rest(): void {
    this.turns.push('rest');
  }

  async resume({ positions }: { positions: number }): Promise<{ positions: number }> {
    this.turns.push(positions);
    if (this.refusal !== undefined) {
      throw this.refusal;
    }
    return { positions };
  }

  ended(_lease: unknown, reason: LeaseEnd): void {
    this.ends.push(reason);
  }
}

describe('serve/local-admission', () => {
  let stage: Stage;
  let local: LocalAdmission;

  beforeEach(() => {
    stage = new Stage();
    local = new LocalAdmission({ remote: { open: () => Promise.reject(new MeshnetError('PEER_UNREACHABLE')) } }, { peerId: SELF });
    local.serve(stage);
  });

  it('admits at this node without a connection, until the release', async () => {
    const stream = await local.open({ peerId: SELF }, soon);
    stage.answer.resolve({ positions: 7 });
    assert.equal((await stream.admit({}, soon)).positions, 7);
    assert.deepEqual(stage.ends, []);
    await stream.release('CANCELLED', soon);
    assert.equal(await stream.ended, undefined);
    assert.deepEqual(stage.ends, ['released']);
  });

  it('rests and goes on without a connection, and ends when it cannot', async () => {
    const stream = await local.open({ peerId: SELF }, soon);
    stage.answer.resolve({ positions: 7 });
    await stream.admit({}, soon);
    await stream.rest(soon);
    assert.equal((await stream.resume({ positions: 9 }, soon)).positions, 9);
    stage.refusal = new MeshnetError('NO_CAPACITY');
    await assert.rejects(stream.resume({ positions: 11 }, soon), (err) => isMeshnetError(err, 'NO_CAPACITY'));
    assert.deepEqual(stage.turns, ['rest', 9, 11]);
    assert.equal((await stream.ended)?.code, 'NO_CAPACITY');
    assert.deepEqual(stage.ends, ['failed']);
  });

  it('asks other nodes over the network', async () => {
    await assert.rejects(local.open({ peerId: 'other' }, soon), (err) => isMeshnetError(err, 'PEER_UNREACHABLE'));
  });

  it('gives back what is admitted too late', async () => {
    const stream = await local.open({ peerId: SELF }, soon);
    await assert.rejects(stream.admit({}, { timeoutMs: 1 }), (err) => isMeshnetError(err, 'DEADLINE_EXCEEDED'));
    assert.deepEqual(stage.ends, []);
    stage.answer.resolve({ positions: 7 });
    await stage.answer.promise;
    await new Promise(setImmediate);
    assert.deepEqual(stage.ends, ['failed']);
  });

  it('ends every lease when the node stops', async () => {
    const stream = await local.open({ peerId: SELF }, soon);
    stage.answer.resolve({ positions: 7 });
    await stream.admit({}, soon);
    local.stop();
    assert.equal((await stream.ended)?.code, 'DRAINING');
    assert.deepEqual(stage.ends, ['stopped']);
  });

  it('ends the lease with a Link that fails or is late', async () => {
    for (const [link, code] of [
      [() => Promise.reject(new MeshnetError('SEAM_UNREACHABLE')), 'SEAM_UNREACHABLE'],
      [() => new Promise<never>(() => undefined), 'DEADLINE_EXCEEDED'],
    ] as const) {
      const failing = new Stage();
      failing.link = link;
      failing.answer.resolve({ positions: 7 });
      local.serve(failing);
      const stream = await local.open({ peerId: SELF }, soon);
      await stream.admit({}, soon);
      await assert.rejects(stream.link({}, { timeoutMs: 20 }), (err) => isMeshnetError(err, code));
      assert.equal((await stream.ended)?.code, code);
      assert.deepEqual(failing.ends, ['failed']);
    }
  });

  it('serves nothing before a stage is there and after the stop', async () => {
    const empty = new LocalAdmission({ remote: { open: () => Promise.reject(new Error('nobody')) } }, { peerId: SELF });
    await assert.rejects(empty.open({ peerId: SELF }, soon), (err) => isMeshnetError(err, 'NOT_SERVING'));
    local.stop();
    await assert.rejects(local.open({ peerId: SELF }, soon), (err) => isMeshnetError(err, 'NOT_SERVING'));
  });
});
