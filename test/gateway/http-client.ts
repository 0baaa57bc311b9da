import { connect, type Socket } from 'node:net';
import { Gateway } from '../../src/gateway/gateway.ts';
import type { GatewayInit } from '../../src/gateway/gateway-init.ts';
import { CARD, type ScriptedBackend } from './scripted-backend.ts';

const silent = { debug: (): void => undefined, info: (): void => undefined, error: (): void => undefined };

/** A gateway that listens on a free port of the loopback. */
export async function listen(backend: ScriptedBackend, init: GatewayInit = {}): Promise<Gateway> {
  const gateway = new Gateway({ backend, log: silent }, { port: 0, ...init });
  await gateway.start();
  return gateway;
}

export const chatBody = (fields: Record<string, unknown> = {}): Record<string, unknown> => ({
  model: CARD.id, messages: [{ role: 'user', content: 'Hi' }], ...fields,
});

/** One POST of a JSON body. */
export function post(url: string, body: unknown, init: RequestInit = {}): Promise<Response> {
  return fetch(url, {
    method: 'POST',
    ...init,
    headers: { 'content-type': 'application/json', ...init.headers as Record<string, string> },
    body: typeof body === 'string' || body instanceof Uint8Array ? body as string : JSON.stringify(body),
  });
}

export interface ServerEvent {
  comment?: string;
  data?: string;
}

/** The events of a stream, comments included. */
export async function* eventsOf(response: Response): AsyncGenerator<ServerEvent> {
  let text = '';
  for await (const chunk of (response.body as ReadableStream<Uint8Array>).pipeThrough(new TextDecoderStream())) {
    text += chunk;
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const event = text.slice(0, end);
      text = text.slice(end + 2);
      yield event.startsWith(':') ? { comment: event.slice(1).trim() } : { data: event.replace(/^data: /, '') };
    }
  }
  if (text !== '') {
    throw new Error(`the stream ends inside an event: ${text}`);
  }
}

/** What a stream said, in whole. */
export async function readStream(response: Response): Promise<{ chunks: Record<string, never>[]; done: boolean; pings: number }> {
  const chunks: Record<string, never>[] = [];
  let done = false;
  let pings = 0;
  for await (const { data, comment } of eventsOf(response)) {
    if (comment !== undefined) {
      pings++;
    } else if (data === '[DONE]') {
      done = true;
    } else {
      chunks.push(JSON.parse(data ?? '') as Record<string, never>);
    }
  }
  return { chunks, done, pings };
}

/** A bare connection, for what fetch does not let one say. */
export async function rawConnection(url: string): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve).once('error', reject);
  });
  return socket;
}

/** Sends `text` and reads until the other side ends. */
export async function rawExchange(url: string, text: string): Promise<string> {
  const socket = await rawConnection(url);
  socket.write(text);
  let answer = '';
  for await (const chunk of socket) {
    answer += String(chunk);
  }
  return answer;
}
