import { toString as bytesToString } from 'uint8arrays/to-string';
import { MeshnetError } from '../errors.ts';
import type { IdentifiedModel } from '../model/digest.ts';
import type { Models } from '../model/models.ts';
import { abortError, within } from '../net/wait.ts';
import type { Router } from '../route/router.ts';
import type { TextProcess } from '../worker/text-process.ts';
import type { AbortOptions, ModelCard, TextService } from './backend.ts';

/** Manifest and header of a model from the peers that have them, checked (SPEC.md §2). */
export interface HeaderSource {
  manifest(digest: Uint8Array, options: AbortOptions): Promise<Uint8Array>;
  header(model: IdentifiedModel, options: AbortOptions): Promise<Uint8Array>;
}

export interface UsedModelComponents {
  readonly models: Pick<Models, 'manifest' | 'keepManifest' | 'headerFile' | 'keepHeader'>;
  readonly router: Pick<Router, 'covers'>;
  readonly headers: HeaderSource;
  /** A text process on a GGUF file, not started. */
  readonly newText: (modelPath: string) => ModelText;
}

export interface UsedModelInit {
  /** As clients say it. */
  readonly name: string;
  readonly digest: Uint8Array;
  /** Positions of one session at most. */
  readonly positions: number;
  /** A whole GGUF file of the model, when this node has one. */
  readonly path?: string;
  /** Manifest, header and the start of the text process. @default 120_000 ms */
  readonly openMs?: number;
  /** How long a known coverage is shown before it is looked up again. @default 2000 ms */
  readonly coverageMs?: number;
}

/** What is used of a text process. */
export type ModelText = TextService & Pick<TextProcess, 'start' | 'stop' | 'ready' | 'description'>;

interface Opened {
  readonly nLayer: number;
  readonly text: ModelText;
}

/** A model that clients of this node may name: its vocabulary here, its layers elsewhere. */
export class UsedModel {
  readonly init: UsedModelInit;
  readonly #components: UsedModelComponents;
  readonly #created = Math.floor(Date.now() / 1000);
  readonly #stop = new AbortController();
  #opening: Promise<Opened> | undefined;
  #opened: Opened | undefined;
  #coverage: ModelCard['coverage'] = 'unknown';
  #lookedUpAt = -Infinity;
  #lookUp: Promise<void> | undefined;

  constructor(components: UsedModelComponents, init: UsedModelInit) {
    this.#components = components;
    this.init = init;
  }

  /** What is known now; asks for news in the background. */
  card(): ModelCard {
    this.#refresh();
    const trained = this.#opened?.text.description.nCtxTrain ?? 0;
    return {
      id: this.init.name,
      created: this.#created,
      contextLength: trained > 0 ? Math.min(trained, this.init.positions) : this.init.positions,
      digest: bytesToString(this.init.digest, 'hex'),
      nLayer: this.#opened?.nLayer ?? 0,
      coverage: this.#coverage,
    };
  }

  /**
   * Vocabulary and layer count. Whoever leaves does not stop it for the others, and a failure is not remembered: the next
   * caller tries again.
   *
   * @throws {MeshnetError} NO_ROUTE when nobody has the header, DIGEST_MISMATCH, MODEL_CORRUPT, TEXT_FAILED, CANCELLED
   */
  async open({ signal }: AbortOptions): Promise<Opened> {
    if (this.#opened !== undefined) {
      return this.#opened;
    }
    if (signal.aborted) {
      throw abortError(signal, 'opening a model');
    }
    this.#opening ??= this.#open().finally(() => { this.#opening = undefined; });
    return await within(this.#opening, 'opening a model', { signal });
  }

  async stop(): Promise<void> {
    this.#stop.abort(new MeshnetError('DRAINING', 'the node stops'));
    await this.#opening?.catch(() => undefined);
    await this.#lookUp;
    await this.#opened?.text.stop();
  }

  async #open(): Promise<Opened> {
    const options = { signal: AbortSignal.any([this.#stop.signal, AbortSignal.timeout(this.init.openMs ?? 120_000)]) };
    const model = await this.#manifest(options);
    const text = this.#components.newText(this.init.path ?? await this.#headerFile(model, options));
    text.start();
    try {
      await text.ready(options);
    } catch (err) {
      await text.stop();
      throw err;
    }
    this.#opened = { nLayer: model.manifest.nLayer, text };
    return this.#opened;
  }

  async #manifest(options: AbortOptions): Promise<IdentifiedModel> {
    const { models, headers } = this.#components;
    const known = await models.manifest(this.init.digest);
    return known ?? await models.keepManifest(this.init.digest, await headers.manifest(this.init.digest, options));
  }

  async #headerFile(model: IdentifiedModel, options: AbortOptions): Promise<string> {
    const { models, headers } = this.#components;
    const known = await models.headerFile(model);
    return known ?? await models.keepHeader(model, await headers.header(model, options));
  }

  #refresh(): void {
    const now = performance.now();
    const isFresh = now - this.#lookedUpAt < (this.init.coverageMs ?? 2000);
    if (isFresh || this.#lookUp !== undefined || this.#stop.signal.aborted) {
      return;
    }
    this.#lookUp = this.#cover().finally(() => {
      this.#lookUp = undefined;
      this.#lookedUpAt = performance.now();
    });
  }

  /** Never throws: what cannot be found out now is unknown. */
  async #cover(): Promise<void> {
    const options = { signal: this.#stop.signal };
    try {
      const { nLayer } = await this.open(options);
      const complete = await this.#components.router.covers(this.init.digest, nLayer, options);
      this.#coverage = complete ? 'complete' : 'incomplete';
    } catch {
      this.#coverage = 'unknown';
    }
  }
}
