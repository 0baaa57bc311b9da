import { toString as bytesToString } from 'uint8arrays/to-string';
import { MeshnetError, toMeshnetError } from '../errors.ts';
import { abortError } from '../net/wait.ts';
import { RouteGeneration } from '../route/generation.ts';
import type { OpenRoute } from '../route/opener.ts';
import type { Router } from '../route/router.ts';
import type {
  AbortOptions, Backend, Generation, GenerationRequest, Health, ModelCard, TextService,
} from './backend.ts';
import type { UsedModel } from './used-model.ts';
import { WarmGeneration } from './warm-generation.ts';
import type { WarmMatch, WarmSessions } from './warm-sessions.ts';

export interface MeshBackendComponents {
  readonly router: Pick<Router, 'open'>;
  readonly models: readonly UsedModel[];
  /** Sessions of earlier requests. */
  readonly warm: Pick<WarmSessions, 'take' | 'keep'>;
  readonly health: () => Health;
}

/** Where a turn runs, and what is there already. */
interface Place {
  readonly model: string;
  readonly route: OpenRoute;
  /** Turns before this one. */
  readonly turns: number;
  /** Leading ids of the prompt that every stage holds. */
  readonly cached: number;
}

/** Answers requests by routes through the mesh: the session that the same client's conversation left behind, or a new one. */
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
    const used = this.#named(request.model);
    const { init } = used;
    const { nLayer } = await used.open(options);
    const positions = request.ids.length + request.maxTokens;
    if (positions > init.positions) {
      throw new MeshnetError('CONTEXT_LENGTH_EXCEEDED', undefined, {
        details: { prompt: request.ids.length, maxTokens: request.maxTokens, limit: init.positions },
      });
    }
    const model = bytesToString(init.digest, 'hex');
    const openCold = async (): Promise<Generation> => {
      const route = await this.#components.router.open(init.digest, { nLayer, positions }, options);
      return this.#turn(request, { model, route, turns: 0, cached: 0 }, options);
    };
    const match = await this.#resumed(request, model, { ...options, positions });
    if (match === undefined) {
      return await openCold();
    }
    const { session: { route, turns }, cached } = match;
    return new WarmGeneration(this.#turn(request, { model, route, turns, cached }, options), openCold, options);
  }

  health(): Health {
    return this.#components.health();
  }

  /** A session that every stage is ready to go on with. One that cannot go on is closed: its room may be what a new one needs. */
  async #resumed(
    { client, ids }: GenerationRequest, model: string, { positions, signal }: AbortOptions & { positions: number },
  ): Promise<WarmMatch | undefined> {
    const match = client === undefined ? undefined : this.#components.warm.take({ owner: client, model, ids });
    if (match === undefined) {
      return undefined;
    }
    const { route } = match.session;
    try {
      await route.resume(positions, { signal });
      return match;
    } catch (err) {
      await route.close(toMeshnetError(err));
      if (signal.aborted) {
        throw abortError(signal, 'going on with a session');
      }
      return undefined;
    }
  }

  #turn(request: GenerationRequest, { model, route, turns, cached }: Place, { signal }: AbortOptions): RouteGeneration {
    const { client, ids, maxTokens, logprobs, sampling } = request;
    const turn = turns + 1;
    const keep = client === undefined ? {} : {
      keep: (held: readonly number[]) =>
        this.#components.warm.keep({ owner: client, model, route, turns: turn, held: [...ids.slice(0, cached), ...held] }),
    };
    return new RouteGeneration(route, {
      turn, start: cached, ids: ids.slice(cached), maxTokens, logprobs, sampling,
      grammar: request.grammar ?? '', ignoreEnd: request.ignoreEnd ?? false,
    }, { signal, ...keep });
  }

  #named(name: string): UsedModel {
    const model = this.#components.models.find(({ init }) => init.name === name);
    if (model === undefined) {
      throw new MeshnetError('MODEL_UNKNOWN', undefined, { details: { model: name } });
    }
    return model;
  }
}
