import { requireInteger } from '../../src/model/gguf-metadata.ts';
import { readGgufFile } from '../../src/model/gguf.ts';
import { generatedModel } from '../systems/native.ts';
import { intoPageCache } from '../systems/page-cache.ts';

const MAX_WIDTH = 1_048_576;

/** `generated` is the tiny model of a smoke run. */
export type ModelName = '1b' | 'generated';

/** Positions of one session at most. A tiny model decodes so fast that its sessions need more to outlast what happens beside them. */
export const POSITIONS: Readonly<Record<ModelName, number>> = { '1b': 2048, generated: 4096 };

export interface Model {
  /** For people. */
  readonly name: string;
  readonly file: string;
  readonly nLayer: number;
  readonly nEmbd: number;
}

/** Random weights, written when they are missing, and read once so that no lane waits for the disk. */
export async function prepareModel(
  which: ModelName, { say, signal }: { say: (text: string) => void; signal: AbortSignal },
): Promise<Model> {
  say('making the model, unless it is there');
  const file = await generatedModel(which === '1b' ? { preset: '1b' } : { layers: 4, type: 'q4_0' });
  await intoPageCache(file, signal);
  const { architecture, nLayer, metadata } = await readGgufFile(file);
  return {
    name: which === '1b' ? '1.1B shape, q4_0' : 'generated, 4 layers, q4_0', file, nLayer,
    nEmbd: requireInteger(metadata, `${architecture}.embedding_length`, 1, MAX_WIDTH),
  };
}
