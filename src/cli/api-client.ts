import { createParser } from 'eventsource-parser';
import type { RouteSummary } from '../domain/route.ts';
import { MeshnetError } from '../errors.ts';
import { abortError } from '../net/wait.ts';

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

/** For an answer that only looks something up. A streamed one has the limits of the gateway. */
const GET_MS = 10_000;
/** What `/health` answers with while the node does not serve yet: a status all the same. */
const UNAVAILABLE = 503;

/** The HTTP API of a node, as the commands use it. */
export class ApiClient {
  readonly #base: string;
  readonly #headers: Record<string, string>;

  constructor(base: string, key?: string) {
    this.#base = base.replace(/\/+$/, '');
    this.#headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  }

  /** @throws {MeshnetError} PEER_UNREACHABLE, DEADLINE_EXCEEDED, CANCELLED, or what the node answered */
  async get<T>(path: string, signal: AbortSignal): Promise<T> {
    return await this.#json<T>(path, signal, (status) => status < 300);
  }

  /** The status of the node, whether or not it serves. Throws as `get`. */
  async health<T>(signal: AbortSignal): Promise<T> {
    return await this.#json<T>('/health', signal, (status) => status < 300 || status === UNAVAILABLE);
  }

  /**
   * Streams one answer. `onRoute` is called as soon as the route is known.
   *
   * @throws {MeshnetError} what the node answered, before or in the stream; STREAM_ENDED when it broke off; CANCELLED
   */
  async * chat(
    request: ChatRequest, onRoute: (route: RouteSummary) => void, signal: AbortSignal,
  ): AsyncGenerator<ChatDelta> {
    const { model, messages, maxTokens, temperature, seed } = request;
    const response = await this.#fetch('/v1/chat/completions', {
      method: 'POST',
      signal,
      body: JSON.stringify({
        model, messages, stream: true, stream_options: { include_usage: true }, max_completion_tokens: maxTokens,
        temperature, seed,
      }),
    }, (status) => status < 300);
    const route = response.headers.get('x-meshnet-route');
    if (route !== null) {
      onRoute(parsed(route) as RouteSummary);
    }
    for await (const data of this.#events(response, signal)) {
      if (data === '[DONE]') {
        return;
      }
      yield deltaOf(parsed(data) as Chunk);
    }
    throw new MeshnetError('STREAM_ENDED', 'the answer ended without its last event');
  }

  async #json<T>(path: string, signal: AbortSignal, isAnswer: (status: number) => boolean): Promise<T> {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(GET_MS)]);
    const response = await this.#fetch(path, { signal: limit }, isAnswer);
    try {
      return parsed(await response.text()) as T;
    } catch (err) {
      throw broken(err, limit);
    }
  }

  async #fetch(
    path: string, init: RequestInit & { signal: AbortSignal }, isAnswer: (status: number) => boolean,
  ): Promise<Response> {
    let response: Response;
    try {
      const headers = { 'content-type': 'application/json', ...this.#headers };
      response = await fetch(this.#base + path, { ...init, headers });
    } catch (cause) {
      throw init.signal.aborted
        ? abortError(init.signal, 'the answer of the node')
        : new MeshnetError('PEER_UNREACHABLE', `no node answers at ${this.#base}`, { cause });
    }
    if (!isAnswer(response.status)) {
      const body = await response.json().catch(() => ({})) as Chunk;
      throw answeredError(response.status, body.error);
    }
    return response;
  }

  async * #events(response: Response, signal: AbortSignal): AsyncGenerator<string> {
    const ready: string[] = [];
    const parser = createParser({ onEvent: ({ data }) => { ready.push(data); } });
    const decoder = new TextDecoder();
    const chunks = (response.body ?? new ReadableStream<Uint8Array>())[Symbol.asyncIterator]();
    try {
      for (let next = await readChunk(chunks, signal); next !== undefined; next = await readChunk(chunks, signal)) {
        parser.feed(decoder.decode(next, { stream: true }));
        yield * ready.splice(0);
      }
    } finally {
      await chunks.return?.().catch(() => undefined);
    }
  }
}

async function readChunk(chunks: AsyncIterator<Uint8Array>, signal: AbortSignal): Promise<Uint8Array | undefined> {
  try {
    const next = await chunks.next();
    return next.done === true ? undefined : next.value;
  } catch (err) {
    throw broken(err, signal);
  }
}

/** What ended the reading of an answer. */
function broken(err: unknown, signal: AbortSignal): MeshnetError {
  if (signal.aborted) {
    return abortError(signal, 'the answer');
  }
  return err instanceof MeshnetError
    ? err
    : new MeshnetError('STREAM_ENDED', 'the connection to the node broke before the answer was complete', { cause: err });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new MeshnetError('REQUEST_FAILED', 'what answers there is no Meshnet node', { cause });
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
