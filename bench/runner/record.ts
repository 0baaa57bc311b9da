import { appendFileSync, readFileSync } from 'node:fs';
import { z } from 'zod';
import { MeshnetError } from '../../src/errors.ts';
import { lanesOfFirstRecord } from './first-records.ts';
import { commit } from './machine.ts';

/** The record of a run: one line of JSON. Everything that is judged, compared or drawn is read from it. */

const RatioSchema = z.object({ median: z.number(), low: z.number(), high: z.number(), n: z.int().nonnegative() });

/** A figure without an interval is a plain number. */
const FigureSchema = z.union([z.number(), RatioSchema]);

const PressureSchema = z.object({ load: z.number(), cpuAvg10: z.number().optional() });

const RoundSchema = z.object({
  order: z.array(z.string()),
  probe: z.number(),
  pressure: PressureSchema,
  wallMs: z.number(),
  /** What could not be measured is null. */
  runs: z.record(z.string(), z.record(z.string(), z.union([z.number().nullable(), z.array(z.number())]))),
});

const KeySchema = z.record(z.string(), z.union([z.string(), z.number()]));

const LaneSchema = z.object({
  /** All fields that name the question, in the order in which they are printed. */
  key: KeySchema,
  systems: z.array(z.string()),
  long: z.boolean(),
  /** Disturbed: judged by nothing. */
  contended: z.boolean(),
  rounds: z.array(RoundSchema),
  discarded: z.array(RoundSchema),
  /** `<measure>/<system>_over_<opponent>` */
  ratios: z.record(z.string(), FigureSchema),
  /** What this machine could do at most. */
  limits: z.record(z.string(), z.unknown()).optional(),
  /** Of a token's time; the parts add up to the measured time. */
  budget: z.array(z.object({ part: z.string(), ms: z.number() })).optional(),
  notes: z.array(z.string()).optional(),
});

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

export type Figure = Readonly<z.infer<typeof FigureSchema>>;
export type LaneKey = Readonly<Record<string, string | number>>;
export type LaneRecord = DeepReadonly<z.infer<typeof LaneSchema>>;
export type Context = DeepReadonly<z.infer<typeof ContextSchema>>;
export type BenchRecord = DeepReadonly<z.infer<typeof RecordSchema>>;

type DeepReadonly<T> = T extends object ? { readonly [K in keyof T]: DeepReadonly<T[K]> } : T;

/** The name of a lane: its fields in their order. */
export function laneName(key: LaneKey): string {
  return Object.values(key).join('/');
}

/** The ratios of a record: each lane's own, with its name in front. */
export function flatRatios(lanes: readonly LaneRecord[]): Record<string, Figure> {
  return Object.fromEntries(lanes.flatMap(({ key, ratios }) =>
    Object.entries(ratios).map(([name, figure]) => [`${laneName(key)}/${name}`, figure])));
}

export function valueOf(figure: Figure): number {
  return typeof figure === 'number' ? figure : figure.median;
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
