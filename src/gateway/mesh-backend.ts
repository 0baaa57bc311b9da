import { MeshnetError } from '../errors.ts';
import { RouteGeneration } from '../route/generation.ts';
import type { Router } from '../route/router.ts';
import type {
  AbortOptions, Backend, Generation, GenerationRequest, Health, ModelCard, TextService,
} from './backend.ts';
import type { UsedModel } from './used-model.ts';

export interface MeshBackendComponents {
  readonly router: Pick<Router, 'open'>;
  readonly models: readonly UsedModel[];
  readonly health: () => Health;
}

/** Answers requests by routes through the mesh. One session per request. */
export class MeshBackend implements Backend {
  readonly #components: MeshBackendComponents;

  constructor(components: MeshBackendComponents) {
    this.#components = components;
  }

  models(): ModelCard[] {
    return this.#components.models.map((model) => model.card());
  }

  async text(model: string, options: AbortOptions): Promise<TextService> {
    return (await this.#named(model).open(options)).text;
  }

  async generate(request: GenerationRequest, options: AbortOptions): Promise<Generation> {
    const model = this.#named(request.model);
    const { nLayer } = await model.open(options);
    const positions = request.ids.length + request.maxTokens;
    if (positions > model.init.positions) {
      throw new MeshnetError('CONTEXT_LENGTH_EXCEEDED', undefined, {
        details: { prompt: request.ids.length, maxTokens: request.maxTokens, limit: model.init.positions },
      });
    }
    const route = await this.#components.router.open(model.init.digest, { nLayer, positions }, options);
    const { sampling } = request;
    return new RouteGeneration(route, {
      turn: 1, start: 0, ids: request.ids, maxTokens: request.maxTokens, logprobs: request.logprobs, sampling,
      grammar: request.grammar ?? '', ignoreEnd: request.ignoreEnd ?? false,
    }, options);
  }

  health(): Health {
    return this.#components.health();
  }

  #named(name: string): UsedModel {
    const model = this.#components.models.find(({ init }) => init.name === name);
    if (model === undefined) {
      throw new MeshnetError('MODEL_UNKNOWN', undefined, { details: { model: name } });
    }
    return model;
  }
}
