import { z } from 'zod';

/** What a record holds of one lane. */

const RatioSchema = z.object({ median: z.number(), low: z.number(), high: z.number(), n: z.int().nonnegative() });

/** A figure without an interval is a plain number. */
export const FigureSchema = z.union([z.number(), RatioSchema]);

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

export const LaneSchema = z.object({
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

export type Figure = Readonly<z.infer<typeof FigureSchema>>;
export type LaneKey = Readonly<Record<string, string | number>>;
export type LaneRecord = DeepReadonly<z.infer<typeof LaneSchema>>;

export type DeepReadonly<T> = T extends object ? { readonly [K in keyof T]: DeepReadonly<T[K]> } : T;

/** The name of a lane: its fields in their order. */
export function laneName(key: LaneKey): string {
  return Object.values(key).join('/');
}

export function valueOf(figure: Figure): number {
  return typeof figure === 'number' ? figure : figure.median;
}

/** As it will stand in a record. Asked of each lane, or one that does not fit would be told of when the others are lost with it. */
export function asRecorded(lane: LaneRecord): LaneRecord {
  return LaneSchema.parse(JSON.parse(JSON.stringify(lane)));
}
