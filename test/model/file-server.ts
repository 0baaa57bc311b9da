import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** How one answer goes wrong. Requests take them in order; later ones are answered rightly. */
export interface Fault {
  status?: number;
  headers?: Record<string, string>;
  /** Break the connection after so many bytes of the body, as soon as the client has told `received` of them. */
  cutAfter?: number;
  /** Send so many bytes of the body, then nothing. */
  stallAfter?: number;
  /** Never answer. */
  silent?: boolean;
  /** Send other bytes, in place of the file. */
  body?: Buffer;
  /** Answer a range with another one. */
  shift?: number;
  /** Say nothing about the length. */
  chunked?: boolean;
}

/** A real HTTP server on the loopback with one file, ranges, an ETag, and faults on request. */
export class FileServer {
  readonly requests: { range: string | undefined; ifRange: string | undefined }[] = [];
  faults: Fault[] = [];
  file: Buffer;
  etag: string | undefined = '"v1"';
  lastModified: string | undefined;
  ranges = true;
  #cut: { at: number; response: ServerResponse } | undefined;
  readonly #server: Server;

  constructor(file: Buffer) {
    this.file = file;
    this.#server = createServer((request, response) => this.#answer(request, response));
  }

  async start(): Promise<void> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get base(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  url(name = 'model.gguf'): string {
    return `${this.base}/${name}`;
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const { range, 'if-range': ifRange } = request.headers;
    this.requests.push({ range, ifRange: typeof ifRange === 'string' ? ifRange : undefined });
    const fault = this.faults.shift() ?? {};
    if (fault.silent === true) {
      return;
    }
    if (fault.status !== undefined) {
      response.writeHead(fault.status, fault.headers).end();
      return;
    }
    const file = fault.body ?? this.file;
    const start = this.#startOf(range, ifRange);
    if (start !== undefined && start >= file.length) {
      response.writeHead(416).end();
      return;
    }
    const body = file.subarray(start ?? 0);
    const from = (start ?? 0) + (fault.shift ?? 0);
    response.writeHead(start === undefined ? 200 : 206, {
      ...(fault.chunked === true ? {} : { 'content-length': body.length }),
      ...(this.etag === undefined ? {} : { etag: this.etag }),
      ...(this.lastModified === undefined ? {} : { 'last-modified': this.lastModified }),
      ...(start === undefined ? {} : { 'content-range': `bytes ${from}-${file.length - 1}/${file.length}` }),
      ...fault.headers,
    });
    const end = fault.cutAfter ?? fault.stallAfter;
    if (end === undefined) {
      response.end(body);
      return;
    }
    if (fault.cutAfter !== undefined) {
      this.#cut = { at: (start ?? 0) + end, response };
    }
    response.write(body.subarray(0, end));
  }

  /** What a client has in hand: a connection that broke earlier would lose what is still in its buffers. */
  received(bytes: number): void {
    if (this.#cut !== undefined && bytes >= this.#cut.at) {
      this.#cut.response.socket?.destroy();
      this.#cut = undefined;
    }
  }

  #startOf(range: string | undefined, ifRange: string | string[] | undefined): number | undefined {
    const match = /^bytes=(\d+)-$/.exec(range ?? '');
    const isSame = ifRange === undefined || ifRange === this.etag || ifRange === this.lastModified;
    return this.ranges && match !== null && isSame ? Number(match[1]) : undefined;
  }
}
