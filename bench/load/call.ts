import { EventEmitter, once } from 'node:events';
import http, { type ClientRequest, type IncomingMessage } from 'node:http';
import { createParser } from 'eventsource-parser';
import { z } from 'zod';
import { MeshnetError } from '../../src/errors.ts';

export interface Ask {
  readonly model: string;
  /** Token ids. */
  readonly prompt: readonly number[];
  /** Tokens of the answer. */
  readonly output: number;
  /** @default true */
  readonly stream?: boolean;
  /** Whom the gateway counts it for. */
  readonly client: string;
}

/** How a call ended. */
export interface CallEnd {
  /** 0: nothing came. */
  readonly status: number;
  /** Seconds. */
  readonly retryAfter: number | undefined;
  readonly error: { readonly type: string; readonly code: string | null } | undefined;
  /** The answer came to its end. */
  readonly whole: boolean;
  /** When. */
  readonly at: number;
}

/** The end token of our models: without it every answer is as long as was asked. */
const NO_END = { 2: -100 };

const Answer = z.object({
  error: z.object({ type: z.string(), code: z.string().nullable() }).optional(),
  choices: z.array(z.object({
    finish_reason: z.string().nullable(),
    logprobs: z.object({ tokens: z.array(z.string()) }).nullish(),
  })).optional(),
});

const Route = z.object({ stages: z.array(z.object({ peer: z.string() })) });

/** One request for an answer over HTTP, on a connection of its own, and everything that came of it. */
export class Call {
  /** When each token came; of an answer that is not streamed, when it came. */
  readonly times: number[] = [];
  /** Never rejects. */
  readonly ended: Promise<CallEnd>;
  readonly #request: ClientRequest;
  readonly #news = new EventEmitter<{ news: [] }>();
  readonly #end = Promise.withResolvers<CallEnd>();
  #response: IncomingMessage | undefined;
  #error: CallEnd['error'];
  /** A reason came, and of a stream its last line. */
  #finished = false;
  #done = false;
  #over: CallEnd | undefined;

  constructor(api: string, { model, prompt, output, stream = true, client }: Ask, signal: AbortSignal) {
    this.ended = this.#end.promise;
    const body = JSON.stringify({
      // Log probabilities make every token tell that it is there, whatever its text is.
      model, prompt, max_tokens: output, temperature: 0, logit_bias: NO_END, logprobs: 0, stream,
    });
    this.#request = http.request(`${api}/v1/completions`, {
      method: 'POST', agent: false, signal,
      headers: {
        'content-type': 'application/json', 'content-length': Buffer.byteLength(body), authorization: `Bearer ${client}`,
      },
    });
    this.#request.on('response', (response) => { this.#onResponse(response); });
    this.#request.on('error', () => { this.#finish(); });
    this.#request.on('close', () => {
      // What was read of a response may still be on its way to us; it has an end of its own.
      if (this.#response === undefined) {
        this.#finish();
      }
    });
    this.#request.end(body);
  }

  get end(): CallEnd | undefined {
    return this.#over;
  }

  /** Peers of its route, from the head on, once it is open. @throws {MeshnetError} REQUEST_FAILED when it is refused */
  async opened(signal: AbortSignal): Promise<string[]> {
    await this.#until(() => this.#response !== undefined, signal);
    const header = this.#response?.headers['x-meshnet-route'];
    if (typeof header !== 'string') {
      throw this.#failed(await this.ended);
    }
    return Route.parse(JSON.parse(header)).stages.map(({ peer }) => peer);
  }

  /** Until so many tokens have come. @throws {MeshnetError} REQUEST_FAILED when it ends before */
  async reaches(tokens: number, signal: AbortSignal): Promise<void> {
    await this.#until(() => this.times.length >= tokens, signal);
  }

  /** Closes the connection at once. */
  leave(): void {
    this.#request.destroy();
  }

  async #until(reached: () => boolean, signal: AbortSignal): Promise<void> {
    while (!reached()) {
      if (this.#over !== undefined) {
        throw this.#failed(this.#over);
      }
      await once(this.#news, 'news', { signal });
    }
  }

  #failed({ status, error }: CallEnd): MeshnetError {
    return new MeshnetError('REQUEST_FAILED', 'a call ended early', {
      details: { status, code: error?.code, tokens: this.times.length },
    });
  }

  #onResponse(response: IncomingMessage): void {
    this.#response = response;
    const isStream = response.headers['content-type']?.startsWith('text/event-stream') === true;
    let body = '';
    const parser = createParser({ onEvent: ({ data }) => { this.#take(data); } });
    response.setEncoding('utf8');
    response.on('data', (text: string) => {
      if (isStream) {
        parser.feed(text);
      } else {
        body += text;
      }
    });
    response.on('end', () => {
      if (!isStream) {
        this.#take(body);
        this.#done = true;
      }
      this.#finish();
    });
    response.on('error', () => { this.#finish(); });
    response.on('close', () => { this.#finish(); });
    this.#news.emit('news');
  }

  /** What cannot be read is nothing: the answer is then not whole. */
  #take(text: string): void {
    if (text === '[DONE]') {
      this.#done = true;
      return;
    }
    const { error, choices: [choice] = [] } = Answer.safeParse(parsed(text)).data ?? {};
    const now = performance.now();
    this.#error ??= error;
    this.#finished ||= (choice?.finish_reason ?? null) !== null;
    this.times.push(...(choice?.logprobs?.tokens ?? []).map(() => now));
    this.#news.emit('news');
  }

  #finish(): void {
    if (this.#over === undefined) {
      const retryAfter = this.#response?.headers['retry-after'];
      this.#over = {
        status: this.#response?.statusCode ?? 0,
        retryAfter: retryAfter === undefined ? undefined : Number(retryAfter),
        error: this.#error,
        whole: this.#finished && this.#done && this.#error === undefined,
        at: performance.now(),
      };
      this.#end.resolve(this.#over);
      this.#news.emit('news');
    }
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
