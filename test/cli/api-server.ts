import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';

export interface Asked {
  readonly path: string;
  readonly key: string | undefined;
  readonly body: Record<string, unknown>;
}

type Answer = (response: ServerResponse, request: Asked) => void;

/** A node's API on the loopback, answered by the test. */
export class ApiServer {
  readonly asked: Asked[] = [];
  answer: Answer = (response) => { response.writeHead(404).end('{}'); };
  readonly #server: Server = createServer((request, response) => void this.#take(request, response));

  async start(): Promise<void> {
    await new Promise<void>((resolve) => { this.#server.listen(0, '127.0.0.1', resolve); });
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => { this.#server.close(resolve); });
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = request.method === 'POST' ? await json(request) as Record<string, unknown> : {};
    const asked = { path: request.url ?? '', key: request.headers.authorization, body };
    this.asked.push(asked);
    this.answer(response, asked);
  }
}

export const ROUTE = { epoch: 1, stages: [{ peer: '12D3KooWAbcdefghijkl', layers: [0, 12], path: 'local' }] };

export function event(value: object | string): string {
  return `data: ${typeof value === 'string' ? value : JSON.stringify(value)}\n\n`;
}

/** A stream of these texts, whole when nothing else is said. */
export function streamed(texts: readonly string[], end: readonly string[] = [
  event({ choices: [{ delta: {}, finish_reason: 'stop' }] }),
  event({ choices: [], usage: { completion_tokens: texts.length } }),
  event('[DONE]'),
]): Answer {
  return (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'x-meshnet-route': JSON.stringify(ROUTE) });
    for (const content of texts) {
      response.write(event({ choices: [{ delta: { content } }] }));
    }
    end.forEach((line) => response.write(line));
    response.end();
  };
}
