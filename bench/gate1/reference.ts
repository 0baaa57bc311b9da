import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { LineSystem } from '../systems/line-system.ts';
import { run } from '../systems/native.ts';
import type { System } from '../systems/system.ts';
import type { TorchType } from './lanes.ts';

const FOLDER = path.join(import.meta.dirname, '..', 'reference');
const PYTHON = path.join(FOLDER, '.venv', 'bin', 'python');
/** Written when the installation is complete: what `sha256sum` says of what was installed. */
const STAMP = path.join(FOLDER, '.venv', 'requirements.sha256');
const LOCK = path.join(FOLDER, 'requirements.txt');
/** What a person runs once. */
export const INSTALL = 'bash bench/reference/setup.sh';
const OUTPUT_BYTES = 16 * 1024 * 1024;
/** Converting gigabytes takes a minute or two, logits of all texts less. */
const RUN_MS = 1_800_000;
/** Nothing is asked of a network, whatever a library would like to look up. */
const ENV = { HF_HUB_OFFLINE: '1', TRANSFORMERS_OFFLINE: '1' };

export interface TorchSystem {
  readonly name: string;
  readonly folder: string;
  readonly type: TorchType;
  readonly cores: readonly number[];
}

export interface Conversion {
  readonly gguf: string;
  readonly folder: string;
  readonly type: TorchType;
  readonly signal: AbortSignal;
}

export interface Logits {
  /** Of float32 safetensors. */
  readonly folder: string;
  /** JSON with `texts`, each of a name and ids. */
  readonly sequences: string;
  readonly out: string;
  readonly threads: number;
  readonly signal: AbortSignal;
}

/** The programs of `bench/reference`, in the Python environment that belongs to them. */
export class Reference {
  readonly #python: string;

  constructor(python = PYTHON) {
    this.#python = python;
  }

  /** Numbers of a GGUF as safetensors; compared with it to the last bit before it succeeds. */
  async convert({ gguf, folder, type, signal }: Conversion): Promise<void> {
    await this.#run('convert.py', [gguf, folder, '--dtype', type], signal);
  }

  /** Logits in float32 for each token of each sequence: `<out>.f32`, rows of n_vocab little-endian numbers. */
  async logits({ folder, sequences, out, threads, signal }: Logits): Promise<void> {
    await this.#run(
      'logits.py',
      ['--model', folder, '--sequences', sequences, '--out', out, '--threads', String(threads)],
      signal,
    );
  }

  /** The recipe as its user would run it. */
  system({ name, folder, type, cores }: TorchSystem): System {
    return new LineSystem({
      name,
      command: this.#python,
      cores,
      env: ENV,
      args: [
        path.join(FOLDER, 'transformers_system.py'),
        '--model',
        folder,
        '--dtype',
        type,
        '--threads',
        String(cores.length),
      ],
    });
  }

  async #run(program: string, args: readonly string[], signal: AbortSignal): Promise<void> {
    await run(this.#python, [path.join(FOLDER, program), ...args], {
      env: { ...process.env, ...ENV },
      maxBuffer: OUTPUT_BYTES,
      timeout: RUN_MS,
      signal,
    });
  }
}

/** Nothing where it is not installed, or other packages than those that are locked now: nobody needs it for anything else. */
export async function findReference(): Promise<Reference | undefined> {
  const stamp = await readFile(STAMP, 'utf8').catch(() => '');
  const locked = createHash('sha256')
    .update(await readFile(LOCK))
    .digest('hex');
  return stamp.startsWith(`${locked} `) ? new Reference() : undefined;
}
