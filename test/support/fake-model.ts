import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CERTIFICATES } from '../../src/domain/certificate.ts';

/** What the model file of `fake-worker.ts` says. */
export interface FakeModel {
  nLayer: number;
  architecture: string;
  engineClass: string;
  /** Hexadecimal. */
  certificate: string;
  /** Describe answers "loading" so many times. */
  loadingAnswers?: number;
  /** Exits at once with this code, after this line on stderr. */
  exit?: number;
  stderr?: string;
  /** Describe answers "failed" with this code. */
  failure?: string;
  ignoreTerm?: boolean;
  /** Never sends a report. */
  silent?: boolean;
  probeFails?: boolean;
  sequences?: number;
  crashAfterMs?: number;
}

const [certificate] = CERTIFICATES;

export const CERTIFIED_ENGINE =
  `llama-${certificate?.tree}-${certificate?.patchedTree}/${certificate?.backend}-0123456789abcdef/kv-f16`;

/** A scratch folder with the fake as a program and as many models as asked for. */
export class FakeWorkshop {
  readonly folder = mkdtempSync(join(tmpdir(), 'meshnet-fake-'));
  readonly binary = join(this.folder, 'worker.mjs');
  #models = 0;

  constructor() {
    const script = join(import.meta.dirname, 'fake-worker.ts');
    writeFileSync(this.binary, `#!${process.execPath}\nawait import(${JSON.stringify(script)});\n`);
    chmodSync(this.binary, 0o755);
  }

  /** Path of a model file. */
  model(init: Partial<FakeModel> = {}): string {
    const file = join(this.folder, `model-${++this.#models}.json`);
    this.change(file, init);
    return file;
  }

  change(file: string, init: Partial<FakeModel>): void {
    const model: FakeModel = { nLayer: 12, architecture: 'llama', engineClass: CERTIFIED_ENGINE, certificate: 'c0ffee', ...init };
    writeFileSync(file, JSON.stringify(model));
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
