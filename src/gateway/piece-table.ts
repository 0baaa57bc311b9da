import { MeshnetError } from '../errors.ts';
import type { AbortOptions, TextService } from './backend.ts';

/** The bytes of token ids, asked for once each. As large as the vocabulary at most: a service refuses other ids. */
export class PieceTable {
  readonly #text: Pick<TextService, 'pieces'>;
  readonly #pieces = new Map<number, Uint8Array>();

  constructor(text: Pick<TextService, 'pieces'>) {
    this.#text = text;
  }

  async get(ids: readonly number[], options: AbortOptions): Promise<Uint8Array[]> {
    const missing = [...new Set(ids)].filter((id) => !this.#pieces.has(id));
    if (missing.length > 0) {
      const found = await this.#text.pieces(missing, options);
      if (found.length !== missing.length) {
        throw new MeshnetError('TEXT_FAILED', 'pieces are missing', { details: { ids: missing.length, got: found.length } });
      }
      missing.forEach((id, i) => this.#pieces.set(id, found[i] as Uint8Array));
    }
    return ids.map((id) => this.#pieces.get(id) as Uint8Array);
  }
}
