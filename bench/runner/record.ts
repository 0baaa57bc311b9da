import { closeSync, fstatSync, ftruncateSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { z } from 'zod';
import { MeshnetError } from '../../src/errors.ts';
import { lanesOfFirstRecord } from './first-records.ts';
import { FigureSchema, laneName, LaneSchema, type DeepReadonly, type Figure, type LaneRecord } from './lane-record.ts';

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

/** @throws MeshnetError MALFORMED when it is no record; `where` it stands is in the details */
export function parseRecord(line: string, where: { readonly file?: string; readonly line?: number } = {}): BenchRecord {
  try {
    const json = z.looseObject({ bench: z.string() }).parse(JSON.parse(line));
    if ('lanes' in json) {
      return RecordSchema.parse(json);
    }
    const lanes = lanesOfFirstRecord(json);
    return RecordSchema.parse({ ...json, lanes, ratios: Object.assign({}, ...lanes.map(({ ratios }) => ratios)) as object });
  } catch (err) {
    const why = err instanceof z.ZodError ? z.prettifyError(err) : String(err);
    throw new MeshnetError('MALFORMED', `not the record of a benchmark: ${why}`, { details: { ...where }, cause: err });
  }
}

/** Its figures mean nothing. */
export function isSmoke({ context }: BenchRecord): boolean {
  return context['smoke'] === true;
}

/** In the order of the file. @throws MeshnetError CONFIG_INVALID when it cannot be read, MALFORMED */
export function readRecords(file: string): BenchRecord[] {
  return textOf(file).split('\n').flatMap((line, i) => line.trim() === '' ? [] : [parseRecord(line, { file, line: i + 1 })]);
}

function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (err) {
    throw new MeshnetError('CONFIG_INVALID', `no records can be read: ${String(err)}`, { details: { file }, cause: err });
  }
}

/** The record of a run that ends now, checked against the schema; `commit` is the checkout as it was when the run began. */
export function recordOf(
  { commit, bench, ratios, context, lanes, details }: Omit<BenchRecord, 'at'>,
): BenchRecord {
  return parseRecord(JSON.stringify({ at: new Date().toISOString(), commit, bench, ratios, context, lanes, details }));
}

/** Asked before a run: what takes an hour is not lost for a folder that is missing. @throws MeshnetError CONFIG_INVALID */
export function assertAppendable(file: string): void {
  try {
    closeSync(openSync(file, 'a'));
  } catch (err) {
    throw new MeshnetError('CONFIG_INVALID', `no record can be written: ${String(err)}`, { details: { file }, cause: err });
  }
}

/** A whole line or, when the disk is full, nothing: half a line would spoil the file. */
export function appendRecord(file: string, record: BenchRecord): void {
  const handle = openSync(file, 'a');
  const before = fstatSync(handle);
  try {
    writeFileSync(handle, `${JSON.stringify(record)}\n`);
  } catch (err) {
    if (before.isFile()) {
      ftruncateSync(handle, before.size);
    }
    throw err;
  } finally {
    closeSync(handle);
  }
}
