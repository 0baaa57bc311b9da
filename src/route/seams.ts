import { SeamEnd } from '../proto/peer_pb.js';

/** A seam between two stages of a route. Frames go both ways whoever dials; the earlier stage does, the tail for the loop. */
export interface SeamPair {
  readonly dialler: number;
  readonly diallerEnd: SeamEnd;
  readonly listener: number;
  readonly listenerEnd: SeamEnd;
}

/** One end that a stage has, and the stage beyond it; without one, the gateway. */
export interface StageSeam {
  readonly end: SeamEnd;
  readonly other?: number;
}

/** The seams between the stages, in the order of the stages, the loop last: with two of them it is half of their one seam. */
export function seamsBetween(nStages: number): SeamPair[] {
  const pairs: SeamPair[] = [];
  for (let dialler = 0; dialler + 1 < nStages; dialler++) {
    pairs.push({
      dialler, diallerEnd: SeamEnd.TO_NEXT, listener: dialler + 1, listenerEnd: SeamEnd.TO_PREVIOUS,
    });
  }
  if (nStages >= 3) {
    pairs.push({ dialler: nStages - 1, diallerEnd: SeamEnd.LOOP, listener: 0, listenerEnd: SeamEnd.LOOP });
  }
  return pairs;
}

/** What a stage is asked for at admission: every seam that it is an end of. */
export function seamsOf(stage: number, nStages: number): StageSeam[] {
  const ends: StageSeam[] = stage === 0 ? [{ end: SeamEnd.ENTRY }] : [];
  for (const { dialler, diallerEnd, listener, listenerEnd } of seamsBetween(nStages)) {
    if (listener === stage) {
      ends.push({ end: listenerEnd, other: dialler });
    } else if (dialler === stage) {
      ends.push({ end: diallerEnd, other: listener });
    }
  }
  return ends;
}
