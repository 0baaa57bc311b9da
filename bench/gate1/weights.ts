import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { loadConfig } from '../../src/config.ts';
import { assertSpace } from '../../src/model/atomic-file.ts';
import { configuredModels } from '../../src/model/configured.ts';
import { BIN, MODELS, run, stockProgram } from '../systems/native.ts';
import { LLAMA_FORMATS, TORCH_TYPES, type LlamaFormat, type ModelName, type TorchType } from './lanes.ts';
import type { Reference } from './reference.ts';
import { tensorTypes, type TensorTypes } from './tensors.ts';

const PROJECT = path.join(import.meta.dirname, '..', '..');
const REAL_MODEL = 'smollm2-135m-instruct';
const QUANTISER = 'llama-quantize';
const TOOL_OUTPUT_BYTES = 16 * 1024 * 1024;
/** One format of the large model takes a minute or two. */
const TOOL_MS = 1_800_000;
const PIN = path.join(PROJECT, 'patches', 'pin.env');
const CONVERTER = path.join(PROJECT, 'bench', 'reference', 'convert.py');

/** Options of the generator. All formats come from one float32 file, so that they hold the same numbers. */
const GENERATED = {
  // Room for an answer behind the longest prompt, which the preset would not have.
  '1b': { preset: '1b', ctx: '4096', type: 'f32', seed: '1' },
  generated: { layers: '2', embd: '64', heads: '4', 'kv-heads': '2', ffn: '128', tied: 'yes', type: 'f32', seed: '1' },
} as const;
/** Bytes of all files while they are made, for the question whether the disk has room. */
const DISK: Readonly<Record<ModelName, number>> = { smollm2: 2.2e9, '1b': 15.5e9, generated: 100e6 };

/** Every form of one model's weights. */
export interface Weights {
  readonly model: ModelName;
  /** Where the numbers come from and by which tools, for the record. */
  readonly source: string;
  readonly gguf: Readonly<Record<LlamaFormat, string>>;
  /** Float32; kept where the quality lanes need it. */
  readonly truth: string | undefined;
  /** As it was published; of SmolLM2 alone. */
  readonly published: string | undefined;
  /** Folders of safetensors; missing without the Python side. */
  readonly torch: Readonly<Record<TorchType, string>> | undefined;
  readonly tensors: Readonly<Record<LlamaFormat, TensorTypes>>;
}

export interface WeightsOptions {
  /** The Python side; without it no safetensors are written. */
  readonly reference: Reference | undefined;
  readonly say: (text: string) => void;
  readonly signal: AbortSignal;
}

/** Finds the files of a model, or makes them: minutes and gigabytes the first time, nothing after it. */
export async function prepareWeights(model: ModelName, options: WeightsOptions): Promise<Weights> {
  const source = await sourceOf(model, options);
  const folder = path.join(MODELS, 'gate1', `${model}-${await digestOf(source.identity, [PIN])}`);
  const gguf = record(LLAMA_FORMATS, (format) => path.join(folder, `${format}.gguf`));
  const converted = await digestOf('', [CONVERTER]);
  const torch =
    options.reference === undefined
      ? undefined
      : record(TORCH_TYPES, (type) => path.join(folder, `${type}-${converted}`));
  // The large model has no quality lanes: its float32 file is only on the way.
  const truth = model === '1b' ? undefined : path.join(folder, 'f32.gguf');
  const wanted = [...Object.values(gguf), ...(truth === undefined ? [] : [truth]), ...Object.values(torch ?? {})];
  const missing = (await Promise.all(wanted.map(async (file) => ((await exists(file)) ? [] : [file])))).flat();
  if (missing.length > 0) {
    await removeOthers(path.dirname(folder), { prefix: `${model}-`, keep: [folder] });
    if (torch !== undefined) {
      await removeOthers(folder, { prefix: '', keep: wanted });
    }
    await make(model, { folder, missing, source, gguf, torch }, options);
  }
  const tensors = await Promise.all(LLAMA_FORMATS.map(async (format) => await tensorTypes(gguf[format])));
  return {
    model,
    source: source.text,
    gguf,
    truth,
    published: source.file,
    torch,
    tensors: record(LLAMA_FORMATS, (_, i) => tensors[i] as TensorTypes),
  };
}

interface Source {
  readonly text: string;
  /** A published file, to be dequantised. */
  readonly file: string | undefined;
  readonly identity: string;
}

async function sourceOf(model: ModelName, { say, signal }: WeightsOptions): Promise<Source> {
  if (model !== 'smollm2') {
    const options = Object.entries(GENERATED[model])
      .map(([name, value]) => `--${name} ${value}`)
      .join(' ');
    const generator = await readFile(path.join(PROJECT, 'native-worker', 'tools', 'testmodel.cpp'), 'utf8');
    return { text: `meshnet-testmodel ${options}`, file: undefined, identity: `${options}\n${generator}` };
  }
  say(`${model}: finding ${REAL_MODEL}`);
  const found = await configuredModels(loadConfig({})).resolve(REAL_MODEL, { signal });
  const sha256 = Buffer.from(found.manifest.fileSha256).toString('hex');
  return {
    text: `${REAL_MODEL} as published (SHA-256 ${sha256}), dequantised to float32`,
    file: found.path,
    identity: sha256,
  };
}

async function digestOf(identity: string, tools: readonly string[]): Promise<string> {
  const hash = createHash('sha256').update(identity);
  for (const tool of tools) {
    hash.update(await readFile(tool));
  }
  return hash.digest('hex').slice(0, 12);
}

interface Plan {
  readonly folder: string;
  readonly missing: readonly string[];
  readonly source: Source;
  readonly gguf: Weights['gguf'];
  readonly torch: Weights['torch'];
}

async function make(
  model: ModelName,
  { folder, missing, source, gguf, torch }: Plan,
  { reference, say, signal }: WeightsOptions,
): Promise<void> {
  await mkdir(folder, { recursive: true });
  say(
    `${model}: making ${missing.map((file) => path.basename(file)).join(', ')}; ` +
      `up to ${(DISK[model] / 1e9).toFixed(1)} GB in ${folder}`,
  );
  await assertSpace(folder, DISK[model]);
  const quantiser = await stockProgram(QUANTISER);
  const f32 = path.join(folder, 'f32.gguf');
  await unlessThere(f32, async (part) => {
    if (source.file === undefined) {
      const options = Object.entries(GENERATED[model as keyof typeof GENERATED]).flatMap(([name, value]) => [
        `--${name}`,
        value,
      ]);
      await run(path.join(BIN, 'meshnet-testmodel'), ['--out', part, ...options], { signal, timeout: TOOL_MS });
    } else {
      await quantise(quantiser, ['--allow-requantize', source.file, part, 'F32'], signal);
    }
  });
  for (const format of LLAMA_FORMATS) {
    await unlessThere(gguf[format], async (part) => {
      say(`${model}: ${format}`);
      await quantise(quantiser, [f32, part, format.toUpperCase()], signal);
    });
  }
  for (const type of torch === undefined ? [] : TORCH_TYPES) {
    await unlessThere(torch?.[type] ?? '', async (part) => {
      say(`${model}: safetensors in ${type}`);
      await reference?.convert({ gguf: f32, folder: part, type, signal });
    });
  }
  if (model === '1b') {
    await rm(f32);
  }
}

/** As the tool does it by default: its own choice of types for embedding and output is part of what people use. */
async function quantise(program: string, args: readonly string[], signal: AbortSignal): Promise<void> {
  await run(program, args, { signal, maxBuffer: TOOL_OUTPUT_BYTES, timeout: TOOL_MS });
}

/** Files of older sources or tools would stay for ever. */
async function removeOthers(
  folder: string,
  { prefix, keep }: { prefix: string; keep: readonly string[] },
): Promise<void> {
  const names = await readdir(folder).catch(() => []);
  const old = names
    .map((name) => path.join(folder, name))
    .filter((file) => path.basename(file).startsWith(prefix) && !keep.includes(file));
  await Promise.all(old.map((file) => rm(file, { recursive: true })));
}

async function unlessThere(file: string, write: (part: string) => Promise<void>): Promise<void> {
  if (!(await exists(file))) {
    await written(file, write);
  }
}

/** Half a file never stands under the name of a whole one. */
async function written(file: string, write: (part: string) => Promise<void>): Promise<void> {
  const part = `${file}.part`;
  await rm(part, { recursive: true, force: true });
  try {
    await write(part);
    await rename(part, file);
  } finally {
    await rm(part, { recursive: true, force: true });
  }
}

async function exists(file: string): Promise<boolean> {
  return await stat(file).then(
    () => true,
    () => false,
  );
}

function record<K extends string, V>(keys: readonly K[], value: (key: K, i: number) => V): Record<K, V> {
  return Object.fromEntries(keys.map((key, i) => [key, value(key, i)])) as Record<K, V>;
}
