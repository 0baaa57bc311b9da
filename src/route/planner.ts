import { MeshnetError } from '../errors.ts';
import { candidateId, type Candidate, type Stage } from '../domain/route.ts';
import { formatLayerRange, type LayerRange } from '../domain/shard.ts';

/** Weights of the cost of a route, in microseconds per token. */
export interface PlannerInit {
  /**
   * What a seam costs when nothing was measured between the two peers.
   *
   * @default 2000
   */
  seamUs?: number;
  /**
   * Share of a stage's decode time that each session already there adds.
   *
   * @default 0.5
   */
  queueShare?: number;
  /**
   * Added for a stage that nobody has dialled back.
   *
   * @default 500
   */
  unverifiedUs?: number;
  /**
   * Added for a stage that has room only when it ends sessions at rest: somebody's next turn would start anew.
   *
   * @default 1000
   */
  endRestUs?: number;
}

export interface PlanRequest<C extends Candidate> {
  readonly nLayer: number;
  /** Positions that the session wants at every stage. */
  readonly positions: number;
  readonly candidates: readonly C[];
  /** By `candidateId`: refused or failed a moment ago. */
  readonly excluded?: ReadonlySet<string>;
  /** In [0, 1); decides between equals, so that ties are shared. */
  readonly random: () => number;
}

interface Chain<C extends Candidate> {
  readonly cost: number;
  readonly last: C | undefined;
  readonly before: Chain<C> | undefined;
}

/**
 * The cheapest chain of shards that covers `[0, nLayer)` exactly once, all of one engine class: a shortest path over
 * layer boundaries. Load is a hint that may be seconds old: when shards that say they have room make no chain, those that
 * say they are full are asked too, and their admission tells the truth. Pure: the same request gives the same route.
 *
 * @throws {MeshnetError} NO_ROUTE; `details.missing` names the layers that nobody serves, or is empty when shards cover
 * all layers but do not meet at equal boundaries
 */
export function planRoute<C extends Candidate>(request: PlanRequest<C>, init: PlannerInit = {}): Stage<C>[] {
  const usable = request.candidates.filter((candidate) => isUsable(candidate, request));
  const best = cheapestOfOneClass(usable.filter((candidate) => hasRoom(candidate, request)), request, init) ??
    cheapestOfOneClass(usable, request, init);
  if (best === undefined) {
    throw noRoute(usable, request);
  }
  return unwind(best);
}

function isUsable<C extends Candidate>(candidate: C, request: PlanRequest<C>): boolean {
  return candidate.range.last <= request.nLayer && request.excluded?.has(candidateId(candidate)) !== true;
}

function hasRoom<C extends Candidate>(candidate: C, request: PlanRequest<C>): boolean {
  const { sequencesFree, cellsFree, lanesResting, cellsResting } = candidate;
  return sequencesFree + lanesResting > 0 && cellsFree + cellsResting >= request.positions;
}

function cheapestOfOneClass<C extends Candidate>(candidates: readonly C[], request: PlanRequest<C>, init: PlannerInit): Chain<C> | undefined {
  let best: Chain<C> | undefined;
  for (const engineClass of new Set(candidates.map((candidate) => candidate.engineClass))) {
    const found = cheapest(candidates.filter((candidate) => candidate.engineClass === engineClass), request, init);
    if (found !== undefined && (best === undefined || found.cost < best.cost)) {
      best = found;
    }
  }
  return best;
}

/** Boundaries only grow along a route, so one pass over them in order is a shortest path. */
function cheapest<C extends Candidate>(candidates: C[], request: PlanRequest<C>, init: PlannerInit): Chain<C> | undefined {
  const reached = new Map<number, Chain<C>>([[0, { cost: 0, last: undefined, before: undefined }]]);
  const shuffled = candidates.map((candidate) => ({ candidate, order: request.random() }))
    .sort((a, b) => a.candidate.range.first - b.candidate.range.first || a.order - b.order);
  for (const { candidate } of shuffled) {
    const before = reached.get(candidate.range.first);
    if (before === undefined) {
      continue;
    }
    const cost = before.cost + stageCost(candidate, request, init) + (before.last === undefined ? 0 : init.seamUs ?? 2000);
    const known = reached.get(candidate.range.last);
    if (known === undefined || cost < known.cost) {
      reached.set(candidate.range.last, { cost, last: candidate, before });
    }
  }
  return reached.get(request.nLayer);
}

function stageCost(candidate: Candidate, request: PlanRequest<Candidate>, init: PlannerInit): number {
  const { decodeUs, lanes, lanesResting, sequencesFree, cellsFree, unverified } = candidate;
  // What rests may have begun to after the lanes were counted.
  const busy = Math.max(0, lanes - lanesResting);
  const endsRest = sequencesFree === 0 || cellsFree < request.positions;
  return decodeUs * (1 + (init.queueShare ?? 0.5) * busy) + (unverified ? init.unverifiedUs ?? 500 : 0) +
    (endsRest ? init.endRestUs ?? 1000 : 0);
}

function unwind<C extends Candidate>(end: Chain<C>): Stage<C>[] {
  const chain: C[] = [];
  for (let at: Chain<C> | undefined = end; at?.last !== undefined; at = at.before) {
    chain.unshift(at.last);
  }
  return chain.map((candidate, stage) => ({ stage, candidate }));
}

function noRoute(usable: readonly Candidate[], request: PlanRequest<Candidate>): MeshnetError {
  const missing = uncovered(usable.map((candidate) => candidate.range), request.nLayer);
  const offers = [...new Set(usable.map((candidate) => formatLayerRange(candidate.range)))].sort();
  const why = missing.length > 0
    ? `nobody serves layers ${missing.map(formatLayerRange).join(', ')} of 0-${request.nLayer} now`
    : `the shards ${offers.join(', ')} cover all layers, but do not meet at equal boundaries in one engine class`;
  return new MeshnetError('NO_ROUTE', why, {
    details: { missing: missing.map(formatLayerRange), offers, known: request.candidates.length, usable: usable.length },
  });
}

/** The parts of `[0, nLayer)` outside every range. */
export function uncovered(ranges: readonly LayerRange[], nLayer: number): LayerRange[] {
  const missing: LayerRange[] = [];
  let covered = 0;
  for (const range of [...ranges].sort((a, b) => a.first - b.first)) {
    if (range.first > covered) {
      missing.push({ first: covered, last: range.first });
    }
    covered = Math.max(covered, range.last);
  }
  if (covered < nLayer) {
    missing.push({ first: covered, last: nLayer });
  }
  return missing;
}
