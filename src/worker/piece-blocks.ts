import { LRUCache } from 'lru-cache';
import { MeshnetError, isMeshnetError } from '../errors.ts';
import type { AbortOptions } from './packet-duplex.ts';

/** Neighbours in the vocabulary that are asked for and remembered together. */
const BLOCK_IDS = 1024;
const IDS_PER_CALL = 16_384;

export type PieceOptions = AbortOptions & { readonly special?: boolean };

export interface PieceBlocksComponents {
  /** The bytes of each of these ids, as the process gives them. */
  ask(ids: readonly number[], options: PieceOptions): Promise<readonly Uint8Array[]>;
  /** Ids of the vocabulary. */
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
    const blocks = await this.#blocksOf(ids, options);
    const pieces = ids.map((id) => blocks.get(blockOf(id))?.piece(id % BLOCK_IDS));
    // Of an id without a piece the process tells best, and one that has a piece may only have a neighbour without.
    return pieces.every((piece) => piece !== undefined) ? pieces : await this.#ask(ids, options);
  }

  /** Without those that have an id which the process refuses. */
  async #blocksOf(ids: readonly number[], options: PieceOptions): Promise<ReadonlyMap<number, Block>> {
    const found = new Map<number, Block>();
    const missing = new Set<number>();
    for (const at of new Set(ids.map(blockOf))) {
      const block = this.#blocks.get(keyOf(at, options));
      if (block === undefined) {
        missing.add(at);
      } else {
        found.set(at, block);
      }
    }
    for (const at of missing) {
      const block = await this.#load(at, options);
      if (block !== undefined) {
        this.#blocks.set(keyOf(at, options), block);
        found.set(at, block);
      }
    }
    return found;
  }

  async #load(at: number, options: PieceOptions): Promise<Block | undefined> {
    const first = at * BLOCK_IDS;
    const length = Math.min(BLOCK_IDS, this.#components.size() - first);
    if (first < 0 || length <= 0) {
      return undefined;
    }
    try {
      return new Block(await this.#ask(Array.from({ length }, (_, i) => first + i), options));
    } catch (err) {
      if (isMeshnetError(err, 'TOKEN_INVALID')) {
        return undefined;
      }
      throw err;
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
