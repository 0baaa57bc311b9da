import { LRUCache } from 'lru-cache';
import { MeshnetError, isMeshnetError } from '../errors.ts';
import type { AbortOptions } from './packet-duplex.ts';

/** Neighbours in the vocabulary, remembered together: some kilobytes, and a vocabulary has some hundred of them at most. */
const BLOCK_IDS = 1024;
/** Of one call, which should hold nobody else's up for long: about 20 ms. */
const IDS_PER_CALL = 16_384;

export type PieceOptions = AbortOptions & { readonly special?: boolean };

export interface PieceBlocksComponents {
  /**
   * The bytes of each of these ids, as the process gives them.
   *
   * @throws {MeshnetError} TOKEN_INVALID for an id without any, RESOURCE_EXHAUSTED for too many bytes
   */
  ask(ids: readonly number[], options: PieceOptions): Promise<readonly Uint8Array[]>;
  /** Ids of the vocabulary; 0: not known yet. */
  size(): number;
}

/**
 * The bytes of token ids, which never change: each block of neighbours is asked for once, so that an answer costs some
 * calls in its first tokens instead of one for each that nobody has said before.
 */
export class PieceBlocks {
  readonly #components: PieceBlocksComponents;
  readonly #blocks: LRUCache<string, Block>;

  /** `remembered`: about as many pieces, the longest unused are forgotten first. */
  constructor(components: PieceBlocksComponents, { remembered }: { readonly remembered: number }) {
    this.#components = components;
    this.#blocks = new LRUCache({ max: Math.max(1, Math.ceil(remembered / BLOCK_IDS)) });
  }

  /** In the order of `ids`; nobody writes to them. @throws {MeshnetError} TOKEN_INVALID and what `ask` throws */
  async get(ids: readonly number[], options: PieceOptions): Promise<Uint8Array[]> {
    const pieces = new Map<number, Uint8Array>();
    const missing = new Set<number>();
    for (const id of ids) {
      const piece = pieces.get(id) ?? this.#blocks.get(keyOf(blockOf(id), options))?.piece(id % BLOCK_IDS);
      if (piece === undefined) {
        missing.add(id);
      } else {
        pieces.set(id, piece);
      }
    }
    if (missing.size > 0) {
      await this.#fetch([...missing], pieces, options);
    }
    return ids.map((id) => pieces.get(id) as Uint8Array);
  }

  /** Adds the pieces of these ids. */
  async #fetch(missing: readonly number[], pieces: Map<number, Uint8Array>, options: PieceOptions): Promise<void> {
    const unknown = [...new Set(missing.map(blockOf))].filter((at) => !this.#blocks.has(keyOf(at, options)));
    const loaded = new Map(await this.#load(unknown.map((at) => this.#rangeOf(at)).filter(({ ids }) => ids.length > 0), options));
    for (const [at, block] of loaded) {
      this.#blocks.set(keyOf(at, options), block);
    }
    // Of an id outside the vocabulary the process tells best, and a block without pieces has one that cannot be given.
    const alone: number[] = [];
    for (const id of missing) {
      const piece = loaded.get(blockOf(id))?.piece(id % BLOCK_IDS);
      if (piece === undefined) {
        alone.push(id);
      } else {
        pieces.set(id, piece);
      }
    }
    for (const [i, piece] of (await this.#ask(alone, options)).entries()) {
      pieces.set(alone[i] as number, piece);
    }
  }

  /** Without ids outside the vocabulary. */
  #rangeOf(at: number): Range {
    const first = at * BLOCK_IDS;
    const length = first < 0 ? 0 : Math.max(0, Math.min(BLOCK_IDS, this.#components.size() - first));
    return { at, ids: Array.from({ length }, (_, i) => first + i) };
  }

  /** All at once; one by one when that is refused, so that only the one at fault is without pieces. */
  async #load(ranges: readonly Range[], options: PieceOptions): Promise<(readonly [number, Block])[]> {
    try {
      const pieces = await this.#ask(ranges.flatMap(({ ids }) => ids), options);
      let from = 0;
      return ranges.map(({ at, ids }) => [at, new Block(pieces.slice(from, from += ids.length))]);
    } catch (err) {
      if (!isMeshnetError(err, 'TOKEN_INVALID') && !isMeshnetError(err, 'RESOURCE_EXHAUSTED')) {
        throw err;
      }
      const [only, ...others] = ranges;
      if (only !== undefined && others.length === 0) {
        return [[only.at, new Block([])]];
      }
      const loaded: (readonly [number, Block])[] = [];
      for (const range of ranges) {
        loaded.push(...await this.#load([range], options));
      }
      return loaded;
    }
  }

  async #ask(ids: readonly number[], options: PieceOptions): Promise<Uint8Array[]> {
    const pieces: Uint8Array[] = [];
    while (pieces.length < ids.length) {
      const part = ids.slice(pieces.length, pieces.length + IDS_PER_CALL);
      const given = await this.#components.ask(part, options);
      if (given.length !== part.length) {
        throw new MeshnetError('TEXT_FAILED', 'the text process left pieces out', {
          details: { asked: part.length, got: given.length },
        });
      }
      pieces.push(...given);
    }
    return pieces;
  }
}

/** The ids of a block. */
interface Range {
  readonly at: number;
  readonly ids: readonly number[];
}

/** Pieces one behind the other: an object for each would take ten times as much. */
class Block {
  readonly #bytes: Uint8Array;
  readonly #ends: Uint32Array;

  constructor(pieces: readonly Uint8Array[]) {
    let end = 0;
    this.#ends = Uint32Array.from(pieces, ({ length }) => end += length);
    this.#bytes = new Uint8Array(end);
    pieces.forEach((piece, i) => this.#bytes.set(piece, this.#ends[i - 1] ?? 0));
  }

  /** Nothing when it is not in the block. */
  piece(i: number): Uint8Array | undefined {
    const end = this.#ends[i];
    return end === undefined ? undefined : this.#bytes.subarray(this.#ends[i - 1] ?? 0, end);
  }
}

function blockOf(id: number): number {
  return Math.floor(id / BLOCK_IDS);
}

function keyOf(block: number, { special }: PieceOptions): string {
  return special === true ? `s${block}` : `${block}`;
}
