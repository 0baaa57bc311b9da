/**
 * Go, stop or not judged, from a record alone. What is unknown (a lane left out or contended) makes the answer unknown
 * only where it could change it: one lane that fails for every format is a stop, whatever another lane would have said.
 */

/** A lane's median of its pair ratios, and whether it may be judged by. */
export interface JudgedLane {
  readonly key: Readonly<Record<string, string | number>>;
  readonly contended: boolean;
  readonly ratios: Readonly<Record<string, { readonly median: number } | number>>;
}

export interface Gate1Thresholds {
  readonly speed: { readonly decode: number; readonly prefill: number };
  readonly fit: { readonly memory: number; readonly decode: number };
  readonly quality: { readonly f16: number; readonly q8_0: number };
  readonly reference: { readonly kl: number; readonly difference: number };
}

export type Answer = 'holds' | 'fails' | 'not judged';

export interface Finding {
  /** As in the contract, then the format and the lane where there are several. */
  readonly id: string;
  readonly answer: Answer;
  /** The figures that it was judged by. */
  readonly why: string;
}

export interface Decision {
  readonly decision: 'go' | 'stop' | 'not judged';
  /** The formats with which every lane that decides meets speed or fit. */
  readonly formats: readonly string[];
  readonly findings: readonly Finding[];
  readonly why: string;
}

/** The lanes that decide; the others are reported. */
export const DECIDING = [128, 2048].flatMap((context) =>
  [1, 4].map((sessions) => ({ model: '1b', context, sessions, sampling: 'greedy' })),
);
/** The formats of which one has to do it. */
const CANDIDATES = ['q8_0', 'q4_0'] as const;

export function decide(lanes: readonly JudgedLane[], thresholds: Gate1Thresholds): Decision {
  const findings: Finding[] = [...quality(lanes, thresholds), reference(lanes, thresholds)];
  const needed = findings.map(({ answer }) => answer);
  const formats = CANDIDATES.map((format) => {
    const perLane = DECIDING.map((key) =>
      lane(find(lanes, key), { format, name: Object.values(key).join('/') }, thresholds),
    );
    findings.push(...perLane.flatMap(({ speed, fit }) => [speed, fit]));
    return { format, answer: all(perLane.map(({ speed, fit }) => any([speed.answer, fit.answer]))) };
  });
  const answer = all([...needed, any(formats.map((one) => one.answer))]);
  return {
    decision: answer === 'holds' ? 'go' : answer === 'fails' ? 'stop' : 'not judged',
    formats: formats.filter((one) => one.answer === 'holds').map(({ format }) => format),
    findings,
    why: reason(findings, formats),
  };
}

function quality(lanes: readonly JudgedLane[], { quality: bounds }: Gate1Thresholds): Finding[] {
  const agreement = find(lanes, { model: 'smollm2', question: 'agreement' });
  return (['f16', 'q8_0'] as const).map((format) =>
    bound(`G1.quality.${format}`, figure(agreement, `kl/${format}`), { atMost: bounds[format], what: 'mean KL' }),
  );
}

function reference(lanes: readonly JudgedLane[], { reference: bounds }: Gate1Thresholds): Finding {
  const numbers = find(lanes, { model: 'smollm2', question: 'reference' });
  const parts = [
    bound('', figure(numbers, 'kl/f32'), { atMost: bounds.kl, what: 'mean KL' }),
    bound('', figure(numbers, 'difference/f32'), {
      atMost: bounds.difference,
      what: 'largest relative difference of a row',
    }),
  ];
  return {
    id: 'G1.reference',
    answer: all(parts.map(({ answer }) => answer)),
    why: parts.map(({ why }) => why).join('; '),
  };
}

function lane(
  of: JudgedLane | undefined,
  { format, name }: { format: string; name: string },
  { speed, fit }: Gate1Thresholds,
): { speed: Finding; fit: Finding } {
  const ratio = (measure: string): number | undefined => figure(of, `${measure}/${format}_over_transformers`);
  const both = (id: string, parts: Finding[]): Finding => ({
    id: `${id} ${format} ${name}`,
    answer: of === undefined || of.contended ? 'not judged' : all(parts.map(({ answer }) => answer)),
    why:
      of === undefined
        ? 'not measured'
        : `${of.contended ? 'contended; ' : ''}${parts.map(({ why }) => why).join('; ')}`,
  });
  return {
    speed: both('G1.speed', [
      bound('', ratio('decode'), { atLeast: speed.decode, what: 'decode' }),
      bound('', ratio('prefill'), { atLeast: speed.prefill, what: 'prefill' }),
    ]),
    fit: both('G1.fit', [
      bound('', ratio('memory'), { atMost: fit.memory, what: 'memory' }),
      bound('', ratio('decode'), { atLeast: fit.decode, what: 'decode' }),
    ]),
  };
}

function find(lanes: readonly JudgedLane[], wanted: Readonly<Record<string, string | number>>): JudgedLane | undefined {
  return lanes.find(({ key }) => Object.entries(wanted).every(([field, value]) => key[field] === value));
}

function figure(of: JudgedLane | undefined, name: string): number | undefined {
  const value = of?.ratios[name];
  return typeof value === 'object' ? value.median : value;
}

function bound(
  id: string,
  value: number | undefined,
  { atLeast, atMost, what }: { atLeast?: number; atMost?: number; what: string },
): Finding {
  if (value === undefined || Number.isNaN(value)) {
    return { id, answer: 'not judged', why: `${what} not measured` };
  }
  const holds = atLeast === undefined ? value <= (atMost ?? Number.NaN) : value >= atLeast;
  const sign = atLeast === undefined ? '≤' : '≥';
  return {
    id,
    answer: holds ? 'holds' : 'fails',
    why: `${what} ${Number(value.toPrecision(4))}, to be ${sign} ${atLeast ?? atMost}`,
  };
}

/** One failure decides; then one that is unknown does. */
export function all(answers: readonly Answer[]): Answer {
  return answers.includes('fails') ? 'fails' : answers.includes('not judged') ? 'not judged' : 'holds';
}

/** One success decides; then one that is unknown does. */
export function any(answers: readonly Answer[]): Answer {
  return answers.includes('holds') ? 'holds' : answers.includes('not judged') ? 'not judged' : 'fails';
}

function reason(findings: readonly Finding[], formats: readonly { format: string; answer: Answer }[]): string {
  const said = findings
    .filter(({ id, answer }) => !id.includes(' ') && answer !== 'holds')
    .map(({ id, answer }) => `${id} ${answer}`);
  const perFormat = formats.map(({ format, answer }) => `${format} ${answer} over the lanes that decide`);
  return [...said, ...perFormat].join('; ');
}
