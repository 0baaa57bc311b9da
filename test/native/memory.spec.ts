import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { LayerRange } from '../../src/domain/shard.ts';
import { WorkerProcess } from '../../src/worker/process.ts';
import { smollm2 } from './support/models.ts';
import { generatedModel } from './support/programs.ts';
import { BIN } from './support/worker-route.ts';

const MIB = 1024 * 1024;
/** Program, buffers of a tick, gRPC and the allocator, whatever the model. */
const FIXED_BYTES = 96 * MIB;
const WEIGHTS_FACTOR = 1.15;

/** Proportional set size, bytes. */
function pssOf(pid: number): number {
  return Number(/^Pss:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1]) * 1024;
}

describe('native/memory', function () {
  this.timeout(180_000);
  let dir: string;
  before(() => { dir = mkdtempSync(path.join(os.tmpdir(), 'mm-')); });
  after(() => { rmSync(dir, { recursive: true, force: true }); });

  function holds(what: string, model: () => Promise<string>, layers: LayerRange): void {
    it(`${what}, layers ${layers.first}-${layers.last}: holds its own tensors once, its KV, and little else`, async () => {
      const worker = new WorkerProcess({
        binary: path.join(BIN, 'meshnet-worker'), runtimeDir: dir, model: await model(), layers, listen: '127.0.0.1:0', threads: 1,
        cells: 2048, sequences: 8, ubatch: 256,
      });
      try {
        worker.start();
        const { budget, pid } = await worker.ready({ signal: AbortSignal.timeout(120_000) });
        await worker.client.probe(256, { signal: AbortSignal.timeout(120_000) });
        const [weights, kv] = [Number(budget?.weightBytes), Number(budget?.kvBytes)];
        assert.ok(weights > 16 * MIB && kv > 0, `weights ${weights}, KV ${kv}`);
        const allowed = WEIGHTS_FACTOR * weights + kv + FIXED_BYTES;
        const pss = pssOf(pid);
        assert.ok(pss <= allowed, `PSS ${Math.round(pss / MIB)} MiB, allowed ${Math.round(allowed / MIB)} MiB for ${Math.round(weights / MIB)} MiB of weights`);
      } finally {
        await worker.stop();
      }
    });
  }

  holds('SmolLM2', smollm2, { first: 0, last: 15 });
  holds('SmolLM2', smollm2, { first: 15, last: 30 });
  // The kernels for q4_0 want the weights in another order: the copy has to replace the original.
  const repacked = (): Promise<string> => generatedModel({
    type: 'q4_0', layers: 24, embd: 1024, heads: 16, 'kv-heads': 8, ffn: 4096,
  });
  holds('q4_0, repacked', repacked, { first: 0, last: 12 });
  holds('q4_0, repacked', repacked, { first: 12, last: 24 });
  holds('q4_0, repacked', repacked, { first: 6, last: 18 });
});
