import { createParser } from 'eventsource-parser';
import type { RouteSummary } from '../domain/route.ts';
import { MeshnetError } from '../errors.ts';
import { givenUp } from './output.ts';

export interface ChatRequest {
  readonly model: string;
  readonly messages: readonly { readonly role: string; readonly content: string }[];
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
}

/** What one chunk of a streamed answer brought. */
export interface ChatDelta {
  readonly text: string;
  readonly finish?: string;
  readonly completionTokens?: number;
}

interface Chunk {
  choices?: { delta?: { content?: string | null }; finish_reason?: string | null }[];
  usage?: { completion_tokens: number } | null;
  error?: { message: string; code: string | null };
}

/** The HTTP API of a node, as the commands use it. */
export class ApiClient {
  readonly #base: string;
  readonly #headers: Record<string, string>;

  constructor(base: string, key?: string) {
    this.#base = base.replace(/\/+$/, '');
    this.#headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  }

  /** @throws {MeshnetError} PEER_UNREACHABLE, or what the node answered */
  async get<T>(path: string, signal: AbortSignal): Promise<T> {
    const response = await this.#fetch(path, { signal });
    return await response.json() as T;
  }

  /**
   * Streams one answer. `onRoute` is called as soon as the route is known.
   *
   * @throws {MeshnetError} what the node answered, before or in the stream
   */
  async * chat(request: ChatRequest, onRoute: (route: RouteSummary) => void, signal: AbortSignal): AsyncGenerator<ChatDelta> {
    const response = await this.#fetch('/v1/chat/completions', {
      method: 'POST',
      signal,
      body: JSON.stringify({
        model: request.model, messages: request.messages, stream: true, stream_options: { include_usage: true },
        ...(request.maxTokens === undefined ? {} : { max_completion_tokens: request.maxTokens }),
        ...(request.temperature === undefined ? {} : { temperature: request.temperature }),
        ...(request.seed === undefined ? {} : { seed: request.seed }),
      }),
    });
    const route = response.headers.get('x-meshnet-route');
    if (route !== null) {
      onRoute(JSON.parse(route) as RouteSummary);
    }
    for await (const data of eventsOf(response, signal)) {
      if (data === '[DONE]') {
        return;
      }
      yield deltaOf(JSON.parse(data) as Chunk);
    }
    throw new MeshnetError('STREAM_ENDED', 'the answer ended without its last event');
  }

  async #fetch(path: string, init: RequestInit): Promise<Response> {
    let response: Response;
    try {
      response = await fetch(this.#base + path, { ...init, headers: { 'content-type': 'application/json', ...this.#headers } });
    } catch (cause) {
      throw init.signal?.aborted === true
        ? givenUp(init.signal, `the node at ${this.#base} does not answer`, cause)
        : new MeshnetError('PEER_UNREACHABLE', `no node answers at ${this.#base}`, { cause });
    }
    if (!response.ok) {
      const body = await response.json().catch(() => ({})) as Chunk;
      throw answeredError(response.status, body.error);
    }
    return response;
  }
}

async function * eventsOf(response: Response, signal: AbortSignal): AsyncGenerator<string> {
  const ready: string[] = [];
  const parser = createParser({ onEvent: ({ data }) => { ready.push(data); } });
  const decoder = new TextDecoder();
  try {
    for await (const bytes of response.body ?? []) {
      parser.feed(decoder.decode(bytes, { stream: true }));
      yield * ready.splice(0);
    }
  } catch (cause) {
    throw signal.aborted
      ? givenUp(signal, 'the answer did not end in time', cause)
      : new MeshnetError('STREAM_ENDED', 'the connection to the node broke in mid-answer', { cause });
  }
}

function deltaOf(chunk: Chunk): ChatDelta {
  if (chunk.error !== undefined) {
    throw answeredError(200, chunk.error);
  }
  const choice = chunk.choices?.[0];
  return {
    text: choice?.delta?.content ?? '',
    ...(choice?.finish_reason == null ? {} : { finish: choice.finish_reason }),
    ...(chunk.usage == null ? {} : { completionTokens: chunk.usage.completion_tokens }),
  };
}

function answeredError(status: number, error: Chunk['error']): MeshnetError {
  return new MeshnetError('REQUEST_FAILED', error?.message ?? `the node answered ${status}`, {
    details: { status, code: error?.code ?? undefined },
  });
}
