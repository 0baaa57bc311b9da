import { computingLimit, readingLimit, type Arithmetic, type MachineLimits } from './machine-limits.ts';
import type { Work } from './work.ts';

export interface ReachedOf {
  readonly work: Work;
  /** What it took. */
  readonly ms: number;
  readonly arithmetic: Arithmetic;
  readonly limits: MachineLimits;
}

/** How far from what the machine can do at most. A share of 1 is the limit itself. */
export interface Reached {
  readonly bytes: number;
  readonly gbS: number;
  readonly gbSLimit: number;
  readonly readingShare: number;
  readonly ops: number;
  readonly gopS: number;
  readonly gopSLimit: number;
  /** The same without tile instructions, which not every program uses. */
  readonly gopSVectorLimit: number;
  readonly computingShare: number;
  /** Which of both limits is nearer. */
  readonly binds: 'reading' | 'computing';
  /** Of the one that binds. */
  readonly share: number;
}

export function reached({ work, ms, arithmetic, limits }: ReachedOf): Reached {
  const { bytes, ops } = work;
  const gbS = bytes / ms / 1e6;
  const gopS = ops / ms / 1e6;
  const gbSLimit = readingLimit(limits, bytes);
  const gopSLimit = computingLimit(limits, arithmetic);
  const readingShare = gbS / gbSLimit;
  const computingShare = gopS / gopSLimit;
  return {
    bytes, gbS, gbSLimit, readingShare, ops, gopS, gopSLimit, computingShare,
    gopSVectorLimit: computingLimit(limits, arithmetic, false),
    binds: readingShare >= computingShare ? 'reading' : 'computing',
    share: Math.max(readingShare, computingShare),
  };
}

/** A line for people. */
export function reachedLine(name: string, ms: number, what: Reached): string {
  const { bytes, gbS, gbSLimit, readingShare, ops, gopS, gopSLimit, gopSVectorLimit, computingShare, binds } = what;
  const tiles = gopSVectorLimit < gopSLimit ? ` (${gopSVectorLimit.toFixed(0)} without tiles)` : '';
  return `${name}: ${ms.toPrecision(4)} ms; reads ${(bytes / 1e6).toFixed(0)} MB at ${gbS.toFixed(1)} GB/s = ` +
    `${percent(readingShare)} of ${gbSLimit.toFixed(1)}; ` +
    `${(ops / 1e9).toPrecision(3)} Gop at ${gopS.toFixed(1)} Gop/s = ` +
    `${percent(computingShare)} of ${gopSLimit.toFixed(0)}${tiles}; ${binds} binds`;
}

function percent(share: number): string {
  return `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}
