import { EventEmitter, once } from 'node:events';
import { isMeshnetError, type ErrorCode } from '../../src/errors.ts';
import type { AbortOptions } from '../../src/gateway/backend.ts';
import { UsedModel, type ModelText, type UsedModelComponents, type UsedModelInit } from '../../src/gateway/used-model.ts';
import type { IdentifiedModel } from '../../src/model/digest.ts';
import { abortError } from '../../src/net/wait.ts';

export const DIGEST = new Uint8Array(32).fill(9);
export const code = (wanted: ErrorCode) => (err: unknown): boolean => isMeshnetError(err, wanted);
export const soon = (): AbortOptions => ({ signal: AbortSignal.timeout(10_000) });

const MODEL = { digest: DIGEST, manifest: { nLayer: 12 } } as IdentifiedModel;

/** Everything around one used model, and what was done to it in order. */
export class World extends EventEmitter<{ log: [string] }> {
  readonly log: string[] = [];
  /** By a line of the log: what it throws, or `hang` until its signal. */
  readonly faults = new Map<string, Error | 'hang'>();
  hasManifest = false;
  hasHeader = false;
  nCtxTrain = 2048;
  coverage = true;

  model(init: Partial<UsedModelInit> = {}): UsedModel {
    const components: UsedModelComponents = {
      models: {
        manifest: async () => this.hasManifest ? MODEL : undefined,
        keepManifest: async () => this.#done('keep manifest', MODEL),
        headerFile: async () => this.hasHeader ? 'stored.gguf' : undefined,
        keepHeader: async () => this.#done('keep header', 'fetched.gguf'),
      },
      headers: {
        manifest: async (_digest, options) => this.#step('fetch manifest', options, new Uint8Array()),
        header: async (_model, options) => this.#step('fetch header', options, new Uint8Array()),
      },
      router: { covers: async (_digest, _nLayer, options) => this.#step('look up', options, this.coverage) },
      newText: (path) => this.#text(path),
    };
    return new UsedModel(components, { name: 'm', digest: DIGEST, positions: 4096, ...init });
  }

  /** Resolves when that line has been logged. */
  async reached(line: string): Promise<void> {
    while (!this.log.includes(line)) {
      await once(this, 'log', soon());
    }
  }

  #text(path: string): ModelText {
    const description = { nCtxTrain: this.nCtxTrain };
    return {
      start: () => { this.#done(`start ${path}`, undefined); },
      stop: async () => { this.#done('stop text', undefined); },
      ready: (options: AbortOptions) => this.#step('ready', options, description),
      description, endIds: new Set([2]),
    } as unknown as ModelText;
  }

  #done<T>(line: string, result: T): T {
    this.log.push(line);
    this.emit('log', line);
    return result;
  }

  async #step<T>(line: string, { signal }: AbortOptions, result: T): Promise<T> {
    this.#done(line, undefined);
    const fault = this.faults.get(line);
    if (fault === 'hang') {
      if (!signal.aborted) {
        await once(signal, 'abort');
      }
      throw abortError(signal, line);
    }
    if (fault !== undefined) {
      throw fault;
    }
    return result;
  }
}
