import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { z } from 'zod';
import type { LaneKey, LaneRecord } from '../runner/lane-record.ts';
import { prompts } from '../runner/prompts.ts';
import { agreement, type Agreement } from './agreement.ts';
import { LLAMA_FORMATS, type ModelName } from './lanes.ts';
import type { Reference } from './reference.ts';
import type { Weights } from './weights.ts';

/**
 * `agreement`: each format against float32 of the same weights, both in llama.cpp: what the format costs and nothing
 * else. `reference`: that float32 against Transformers in float32: whether the formulas are the same.
 */
export const QUESTIONS = ['agreement', 'reference'] as const;
export type Question = (typeof QUESTIONS)[number];

export interface QuestionParts {
  readonly weights: Weights;
  readonly reference: Reference | undefined;
  readonly cores: readonly number[];
  readonly say: (text: string) => void;
  readonly signal: AbortSignal;
}

const TEXTS = path.join(import.meta.dirname, '..', 'reference', 'texts.json');
const Texts = z.object({ texts: z.array(z.object({ name: z.string(), ids: z.array(z.int()).min(1) })).min(1) });
/** What the tiny model of a smoke run reads: its vocabulary is not the texts'. */
const SMOKE = { sessions: 2, tokens: 24 };

export function questionKey(model: ModelName, question: Question): LaneKey {
  return { model, question };
}

/** What a reader has to know. */
const NOTES: Readonly<Record<Question, readonly string[]>> = {
  agreement: [
    'q4_0 rounds again what Q4_1 had rounded before; the published Q4_1 has the numbers of float32 itself',
    'and rounds its activations alone',
  ],
  reference: [
    'f32: rows computed as in a prefill; f32_decode (reported): one after the other, as in decoding',
  ],
};

export interface Answered {
  readonly record: LaneRecord;
  /** Engine class of llama.cpp in it. */
  readonly engine: string;
}

/** Counted, not timed: nothing that runs beside it can change the figures. */
export async function answer(question: Question, parts: QuestionParts): Promise<Answered> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'meshnet-gate1-'));
  try {
    const texts = await textsOf(parts.weights.model);
    const ids = path.join(folder, 'ids.json');
    await writeFile(ids, JSON.stringify({ texts: texts.map((text) => text.ids) }));
    const found = await (question === 'agreement' ? ofFormats(ids, parts) : ofReference({ texts, ids, folder }, parts));
    const [first] = Object.values(found) as [Agreement];
    return {
      engine: first.engine,
      record: {
        key: questionKey(parts.weights.model, question),
        systems: Object.keys(found),
        long: false,
        contended: false,
        rounds: [],
        discarded: [],
        ratios: Object.fromEntries(
          Object.entries(found).flatMap(([system, held]) => [
            [`kl/${system}`, held.mean_kl],
            [`top1/${system}`, held.top1],
            [`difference/${system}`, held.max_difference],
          ]),
        ),
        notes: [
          `${first.rows} rows of ${texts.length} texts, teacher-forced`,
          ...NOTES[question],
          ...Object.entries(found).map(
            ([system, held]) =>
              `${system}: largest KL of a row ${held.max_kl.toPrecision(3)}, ` +
              `mean difference ${held.mean_difference.toPrecision(3)}`,
          ),
        ],
      },
    };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

type NamedTexts = z.infer<typeof Texts>['texts'];

async function textsOf(model: ModelName): Promise<NamedTexts> {
  if (model === 'smollm2') {
    return Texts.parse(JSON.parse(await readFile(TEXTS, 'utf8'))).texts;
  }
  return prompts('texts', SMOKE).map((ids, i) => ({ name: `random ids ${i}`, ids }));
}

async function ofFormats(texts: string, { weights, say, signal }: QuestionParts): Promise<Record<string, Agreement>> {
  const found: Record<string, Agreement> = {};
  const files = {
    ...Object.fromEntries(LLAMA_FORMATS.map((format) => [format, weights.gguf[format]])),
    ...(weights.published === undefined ? {} : { q4_1_published: weights.published }),
  };
  for (const [system, model] of Object.entries(files)) {
    say(`${system} against float32`);
    found[system] = await agreement({ truth: { model: weights.truth ?? '' }, model, texts, signal });
  }
  return found;
}

async function ofReference(
  { texts, ids, folder }: { texts: NamedTexts; ids: string; folder: string },
  { weights, reference, cores, say, signal }: QuestionParts,
): Promise<Record<string, Agreement>> {
  const sequences = path.join(folder, 'texts.json');
  const logits = path.join(folder, 'logits');
  await writeFile(sequences, JSON.stringify({ texts }));
  say('logits of Transformers in float32');
  await reference?.logits({
    folder: weights.torch?.float32 ?? '',
    sequences,
    out: logits,
    threads: cores.length,
    signal,
  });
  say('the float32 GGUF against them');
  const held = { truth: { logits: `${logits}.f32` }, model: weights.truth ?? '', texts: ids, signal };
  return { f32: await agreement(held), f32_decode: await agreement({ ...held, rows: 1 }) };
}
