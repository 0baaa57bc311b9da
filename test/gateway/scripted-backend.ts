import { once } from 'node:events';
import { MeshnetError, type ErrorCode } from '../../src/errors.ts';
import type {
  AbortOptions, Backend, Generation, GenerationRequest, Health, ModelCard, RenderInput, TextService, TokenEvent,
} from '../../src/gateway/backend.ts';

/** The end token of every scripted model. */
export const END = 256;
/** A token of `LONG_BYTES` letters. */
export const LONG = 257;
export const LONG_BYTES = 64 * 1024;

export const CARD: ModelCard = {
  id: 'acme/tiny-1',
  created: 1_700_000_000,
  contextLength: 512,
  digest: 'ab'.repeat(32),
  nLayer: 4,
  coverage: 'complete',
};

/** One token a byte: the hardest case for text that may never be cut inside a character. */
export class ByteText implements TextService {
  readonly endIds: ReadonlySet<number> = new Set([END]);
  readonly rendered: RenderInput[] = [];
  readonly schemas: string[] = [];

  async render(input: RenderInput): Promise<{ prompt: string; ids: number[] }> {
    this.rendered.push(input);
    const prompt = JSON.stringify(input.messages);
    return { prompt, ids: [...Buffer.from(prompt)] };
  }

  async tokenize(text: string): Promise<number[]> {
    return idsOf(text);
  }

  async pieces(ids: readonly number[]): Promise<Uint8Array[]> {
    const unknown = ids.find((id) => id > LONG);
    if (unknown !== undefined) {
      throw new MeshnetError('TOKEN_INVALID', undefined, { details: { id: unknown } });
    }
    return ids.map((id) => id < END ? Uint8Array.of(id) : Buffer.alloc(id === LONG ? LONG_BYTES : 0, 'x'));
  }

  async grammarFromSchema(schemaJson: string): Promise<string> {
    this.schemas.push(schemaJson);
    return `root ::= "${schemaJson.length}"`;
  }
}

export const idsOf = (text: string): number[] => [...Buffer.from(text)];

/** `text` one token an event, then the end token. */
export async function* speak(text: string): AsyncGenerator<TokenEvent> {
  for (const id of idsOf(text)) {
    yield { ids: [id] };
  }
  yield { ids: [END], finish: 'end' };
}

/** Never ends by itself, but as soon as the signal does. */
export function untilAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    const stop = (): void => reject(signal.reason as Error);
    if (signal.aborted) {
      stop();
    } else {
      signal.addEventListener('abort', stop, { once: true });
    }
  });
}

type Script = (request: GenerationRequest, signal: AbortSignal) => AsyncIterable<TokenEvent>;

/** A backend whose answers are written in the test. What must happen once, or in order, throws when it does not. */
export class ScriptedBackend implements Backend {
  readonly texts = new ByteText();
  readonly requests: GenerationRequest[] = [];
  /** Those of them that were admitted. */
  readonly opened: GenerationRequest[] = [];
  /** Thrown in place of admission. */
  refusal: MeshnetError | undefined;
  /** Awaited before admission. */
  admission: (signal: AbortSignal) => Promise<void> = async () => undefined;
  script: Script = () => speak('Hello.');
  ready = true;
  cards: ModelCard[] = [CARD];
  cachedTokens = 0;
  /** Generations at once; one more is refused for want of room. */
  sequences = Number.POSITIVE_INFINITY;
  /** Generations that are not over. */
  running = 0;
  /** Generations that were left before their finish. */
  cancelled = 0;
  #events = new EventTarget();

  models(): ModelCard[] {
    return this.cards;
  }

  health(): Health {
    return { ready: this.ready, details: { models: this.cards.length } };
  }

  async text(model: string): Promise<TextService> {
    if (!this.cards.some(({ id }) => id === model)) {
      throw new MeshnetError('MODEL_UNKNOWN');
    }
    return this.texts;
  }

  async generate(request: GenerationRequest, { signal }: AbortOptions): Promise<Generation> {
    signal.throwIfAborted();
    this.requests.push(request);
    try {
      await this.admission(signal);
    } catch (err) {
      this.#leave();
      throw err;
    }
    if (this.refusal !== undefined) {
      throw this.refusal;
    }
    if (this.running >= this.sequences) {
      throw refusal('NO_CAPACITY', { availablePositions: 96, availableSequences: 0, retryAfterMs: 1000 });
    }
    this.running++;
    this.opened.push(request);
    const { promise: closed, resolve: close } = Promise.withResolvers<void>();
    signal.addEventListener('abort', () => this.#events.dispatchEvent(new Event('abort')), { once: true });
    return {
      route: { epoch: 1, stages: [{ peer: 'peerA', layers: [0, 2], path: 'direct-grpc' }, { peer: 'peerB', layers: [2, 4], path: 'relay' }] },
      cachedTokens: this.cachedTokens,
      closed,
      [Symbol.asyncIterator]: () => this.#run(request, signal, close),
    };
  }

  async* #run(request: GenerationRequest, signal: AbortSignal, close: () => void): AsyncGenerator<TokenEvent> {
    let finished = false;
    try {
      for await (const event of this.script(request, signal)) {
        if (finished) {
          throw new Error('the script goes on after its finish');
        }
        finished = event.finish !== undefined;
        yield event;
      }
    } finally {
      this.running--;
      if (!finished) {
        this.#leave();
      }
      close();
    }
  }

  /** Resolves when a generation has been left early. */
  async left(): Promise<void> {
    if (this.cancelled === 0) {
      await once(this.#events, 'left');
    }
  }

  #leave(): void {
    this.cancelled++;
    this.#events.dispatchEvent(new Event('left'));
  }
}

export function refusal(code: ErrorCode, details: Record<string, unknown> = {}): MeshnetError {
  return new MeshnetError(code, undefined, { details });
}
