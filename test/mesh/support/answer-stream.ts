/** A streamed answer as it comes over HTTP, unlike what a client library makes of it. */
import { createParser } from 'eventsource-parser';
import { MODEL } from './mesh.ts';

/** Fields of a request whose answer no end token ends. */
export const ENDLESS = { logit_bias: { 2: -100 } };
/** The same for an answer that does not end by itself before something happens to it. */
export const LONG = { max_tokens: 3000, ...ENDLESS };

export interface ErrorObject {
  readonly message: string;
  readonly type: string;
  readonly param: string | null;
  readonly code: string | null;
}

export interface EndedAnswer {
  readonly text: string;
  readonly finish: string | undefined;
  /** Error objects in the stream. */
  readonly errors: ErrorObject[];
  /** Whether `[DONE]` came. */
  readonly done: boolean;
  readonly route: { readonly stages: readonly { readonly peer: string; readonly layers: readonly [number, number] }[] };
}

export interface Refusal {
  readonly status: number;
  readonly retryAfter: string | null;
  readonly error: ErrorObject;
}

/** `key`: a bearer token, by which a gateway tells its clients apart. */
export function post(
  api: string, fields: Record<string, unknown> = {}, signal: AbortSignal = AbortSignal.timeout(60_000), key?: string,
): Promise<Response> {
  return fetch(`${api}/v1/chat/completions`, {
    method: 'POST', signal, headers: { 'content-type': 'application/json', ...(key === undefined ? {} : { authorization: `Bearer ${key}` }) },
    body: JSON.stringify({
      model: MODEL, messages: [{ role: 'user', content: 'Say something long.' }], temperature: 0, max_tokens: 16, stream: true, ...fields,
    }),
  });
}

export async function refusalOf(response: Response): Promise<Refusal> {
  const { error } = await response.json() as { error: ErrorObject };
  return { status: response.status, retryAfter: response.headers.get('retry-after'), error };
}

/** Reads to the end. `onPiece` hears of every piece of text with the number of those before it. */
export async function readAnswer(response: Response, onPiece: (before: number) => void = () => undefined): Promise<EndedAnswer> {
  if (!response.ok) {
    throw new Error(`refused: ${JSON.stringify(await refusalOf(response))}`);
  }
  const errors: ErrorObject[] = [];
  let text = '';
  let finish: string | undefined;
  let done = false;
  let pieces = 0;
  const onEvent = ({ data }: { data: string }): void => {
    if (data === '[DONE]') {
      done = true;
      return;
    }
    const chunk = JSON.parse(data) as { error?: ErrorObject; choices?: { delta: { content?: string }; finish_reason: string | null }[] };
    if (chunk.error !== undefined) {
      errors.push(chunk.error);
    }
    const choice = chunk.choices?.[0];
    finish = choice?.finish_reason ?? finish;
    if (choice?.delta.content !== undefined && choice.delta.content !== '') {
      text += choice.delta.content;
      onPiece(pieces++);
    }
  };
  const parser = createParser({ onEvent });
  const decoder = new TextDecoder();
  for await (const bytes of response.body ?? []) {
    parser.feed(decoder.decode(bytes, { stream: true }));
  }
  const route = JSON.parse(response.headers.get('x-meshnet-route') ?? '{}') as EndedAnswer['route'];
  return { text, finish, errors, done, route };
}
