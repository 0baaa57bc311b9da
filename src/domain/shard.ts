import { MeshnetError } from '../errors.ts';
import { LIMITS } from './limits.ts';

/** Contiguous layers `[first, last)` of a model. */
export interface LayerRange {
  readonly first: number;
  readonly last: number;
}

/**
 * Parses `A-B` as `[A, B)`.
 *
 * @throws {MeshnetError} RANGE_INVALID when the text is no range or the range is empty
 */
export function parseLayerRange(text: string): LayerRange {
  const match = /^(\d{1,4})-(\d{1,4})$/.exec(text.trim());
  const first = Number(match?.[1]);
  const last = Number(match?.[2]);
  if (match == null || first >= last || last > LIMITS.layersPerModel) {
    throw new MeshnetError('RANGE_INVALID', `"${text}" is no layer range; write A-B with A < B, for example 0-15 for [0, 15)`, {
      details: { range: text },
    });
  }
  return { first, last };
}

/** `12-24` for `[12, 24)`. */
export function formatLayerRange(range: LayerRange): string {
  return `${range.first}-${range.last}`;
}

/**
 * Holds a range against the model.
 *
 * @throws {MeshnetError} RANGE_INVALID
 */
export function assertRangeInside(range: LayerRange, nLayer: number): void {
  if (!(range.first >= 0 && range.first < range.last && range.last <= nLayer)) {
    throw new MeshnetError('RANGE_INVALID', `layers ${formatLayerRange(range)} are not inside the model's 0-${nLayer}`, {
      details: { first: range.first, last: range.last, nLayer },
    });
  }
}

export function rangesOverlap(a: LayerRange, b: LayerRange): boolean {
  return a.first < b.last && b.first < a.last;
}

/** `[0, nLayer)` in `stages` contiguous parts that differ by a layer at most, the longer ones first. */
export function uniformCuts(nLayer: number, stages: number): LayerRange[] {
  if (!Number.isInteger(stages) || stages < 1 || stages > Math.min(nLayer, LIMITS.stagesPerRoute)) {
    throw new MeshnetError('RANGE_INVALID', `${nLayer} layers cannot be split into ${stages} stages`, { details: { nLayer, stages } });
  }
  const cuts: LayerRange[] = [];
  let first = 0;
  for (let stage = 0; stage < stages; stage++) {
    const last = first + Math.ceil((nLayer - first) / (stages - stage));
    cuts.push({ first, last });
    first = last;
  }
  return cuts;
}
