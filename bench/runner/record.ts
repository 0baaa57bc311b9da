import { appendFileSync, readFileSync } from 'node:fs';
import { z } from 'zod';
import { MeshnetError } from '../../src/errors.ts';
import { lanesOfFirstRecord } from './first-records.ts';
import { FigureSchema, laneName, LaneSchema, type DeepReadonly, type Figure, type LaneRecord } from './lane-record.ts';
import { commit } from './machine.ts';

/** The record of a run: one line of JSON. Everything that is judged, compared or drawn is read from it. */

const MachineSchema = z.object({
  cpu: z.string(),
  cores: z.int(),
  kernel: z.string(),
  node: z.string(),
  congestion: z.string(),
  memoryGiB: z.number(),
  /** Instruction sets that an engine may use. */
  features: z.array(z.string()).optional(),
});

const ContextSchema = z.looseObject({
  machine: MachineSchema,
  engine: z.string(),
  threads: z.number(),
  model: z.string(),
});

const RecordSchema = z.object({
  at: z.iso.datetime(),
  commit: z.string(),
  bench: z.string(),
  ratios: z.record(z.string(), FigureSchema),
  context: ContextSchema,
  lanes: z.array(LaneSchema),
  details: z.record(z.string(), z.unknown()),
});

export type Context = DeepReadonly<z.infer<typeof ContextSchema>>;
export type BenchRecord = DeepReadonly<z.infer<typeof RecordSchema>>;

/** The ratios of a record: each lane's own, with its name in front. */
export function flatRatios(lanes: readonly LaneRecord[]): Record<string, Figure> {
  return Object.fromEntries(lanes.flatMap(({ key, ratios }) =>
    Object.entries(ratios).map(([name, figure]) => [`${laneName(key)}/${name}`, figure])));
}

/** @throws MeshnetError MALFORMED when it is no record */
export function parseRecord(line: string): BenchRecord {
  try {
    const json = z.looseObject({ bench: z.string() }).parse(JSON.parse(line));
    if ('lanes' in json) {
      return RecordSchema.parse(json);
    }
    const lanes = lanesOfFirstRecord(json);
    return RecordSchema.parse({ ...json, lanes, ratios: Object.assign({}, ...lanes.map(({ ratios }) => ratios)) as object });
  } catch (err) {
    const why = err instanceof z.ZodError ? z.prettifyError(err) : String(err);
    throw new MeshnetError('MALFORMED', `not the record of a benchmark: ${why}`, { cause: err });
  }
}

/** Its figures mean nothing. */
export function isSmoke({ context }: BenchRecord): boolean {
  return context['smoke'] === true;
}

/** In the order of the file. */
export function readRecords(file: string): BenchRecord[] {
  return readFileSync(file, 'utf8').split('\n').filter((line) => line !== '').map(parseRecord);
}

/** The record of a run that ends now, checked against the schema. */
export function recordOf(
  { bench, ratios, context, lanes, details }: Pick<BenchRecord, 'bench' | 'ratios' | 'context' | 'lanes' | 'details'>,
): BenchRecord {
  return parseRecord(JSON.stringify({ at: new Date().toISOString(), commit: commit(), bench, ratios, context, lanes, details }));
}

export function appendRecord(file: string, record: BenchRecord): void {
  appendFileSync(file, `${JSON.stringify(record)}\n`);
}
