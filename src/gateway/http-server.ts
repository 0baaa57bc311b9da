/** The HTTP side that every route shares: limits, who may call, request ids, and errors in the shape of the API. */
import { randomBytes } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import Fastify, { type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { isMeshnetError, MeshnetError } from '../errors.ts';
import { allowedHeaders, hostAllowed, keyMatches, originAllowed } from './access.ts';
import type { GatewaySettings } from './gateway-init.ts';
import { httpErrorOf } from './http-error.ts';
import { limitSending } from './send-limit.ts';

/** What the gateway needs of a log; a pino logger is one. */
export interface GatewayLog {
  debug(facts: object, message: string): void;
  info(facts: object, message: string): void;
  error(facts: object, message: string): void;
}

const REQUEST_ID = /^[\w.:-]{1,128}$/;
/** Answers on one connection before it is closed, with notice, so that no client keeps one for ever. */
const REQUESTS_PER_SOCKET = 1000;
/** How often node looks for connections that are past their deadlines, ms. */
const CONNECTION_CHECK_MS = 1000;
const KEEP_ALIVE_MS = 75_000;
/** Longest model name in a path, percent-encoded. */
const PATH_PARAM_CHARACTERS = 1024;

export function createHttpServer(settings: GatewaySettings, log: GatewayLog): FastifyInstance {
  const app = Fastify({
    logger: false,
    bodyLimit: settings.bodyBytes,
    requestTimeout: settings.requestMs,
    keepAliveTimeout: KEEP_ALIVE_MS,
    maxRequestsPerSocket: REQUESTS_PER_SOCKET,
    forceCloseConnections: true,
    routerOptions: { ignoreTrailingSlash: true, ignoreDuplicateSlashes: true, maxParamLength: PATH_PARAM_CHARACTERS },
    http: { connectionsCheckingInterval: CONNECTION_CHECK_MS, headersTimeout: settings.headersMs },
    genReqId: requestId,
    clientErrorHandler: refuseConnection,
    frameworkErrors: (err, request, reply) => {
      void sendError(err, request, reply, log);
    },
  });
  app.server.maxConnections = settings.maxConnections;

  // The handler decides what a body is, so that a wrong type is refused like any other fault of a body.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));

  app.addHook('onRequest', async (request, reply) => {
    void reply.header('x-request-id', request.id);
    const { headers } = request;
    if (!hostAllowed(headers.host, settings.allowedHosts)) {
      throw new MeshnetError('FORBIDDEN', 'this gateway is not called by that name', { details: { host: headers.host } });
    }
    void reply.header('vary', 'origin');
    if (!originAllowed(headers.origin, settings.allowedOrigins)) {
      throw new MeshnetError('FORBIDDEN', 'pages of that origin are not let in', { details: { origin: headers.origin } });
    }
    if (headers.origin !== undefined) {
      void reply.headers({
        'access-control-allow-origin': headers.origin,
        'access-control-expose-headers': 'x-request-id, x-meshnet-route, retry-after, openai-processing-ms',
      });
    }
    if (request.method === 'OPTIONS') {
      return reply.code(204).headers({
        'access-control-allow-methods': 'GET, HEAD, POST, OPTIONS',
        'access-control-allow-headers': allowedHeaders(headers['access-control-request-headers']),
        'access-control-max-age': '600',
      }).send();
    }
    if (settings.key !== undefined && !isOpen(request.url) && !keyMatches(headers.authorization, settings.key)) {
      throw new MeshnetError('UNAUTHORIZED', 'the key is missing or wrong');
    }
    return undefined;
  });
  app.addHook('onSend', async (_request, reply) => {
    limitSending(reply.raw, settings.slowReaderMs);
  });
  app.setErrorHandler((err: FastifyError, request, reply) => sendError(err, request, reply, log));
  app.setNotFoundHandler((request) => {
    throw new MeshnetError('PATH_UNKNOWN', 'nothing answers here', {
      details: { method: request.method, path: request.url.slice(0, 200) },
    });
  });
  return app;
}

/** `/health` says nothing that a stranger may not know. */
function isOpen(url: string): boolean {
  return /^\/+(v1\/+)?health\/*($|\?)/.test(url);
}

function requestId(request: { headers: IncomingMessage['headers'] }): string {
  const given = request.headers['x-request-id'];
  return typeof given === 'string' && REQUEST_ID.test(given) ? given : `req_${randomBytes(12).toString('hex')}`;
}

async function sendError(err: FastifyError, request: FastifyRequest, reply: FastifyReply, log: GatewayLog): Promise<void> {
  const error = typedError(err);
  const { status, retryAfter, body } = httpErrorOf(error);
  if (status === 500) {
    log.error({ request: request.id, code: error.code, err }, 'request failed');
  } else {
    log.debug({ request: request.id, code: error.code, status }, 'request refused');
  }
  if (retryAfter !== undefined) {
    void reply.header('retry-after', retryAfter);
  }
  if (status === 401) {
    void reply.header('www-authenticate', 'Bearer');
  }
  await reply.code(status).send(body);
}

/** Fastify's own refusals are faults of the request; anything else that is not ours is a fault of the program. */
function typedError(err: FastifyError): MeshnetError {
  if (isMeshnetError(err)) {
    return err;
  }
  const status = err.statusCode ?? 500;
  if (status === 413) {
    return new MeshnetError('BODY_TOO_LARGE', undefined, { cause: err });
  }
  if (status >= 400 && status < 500) {
    return new MeshnetError('REQUEST_INVALID', err.message, { cause: err, details: { param: 'body' } });
  }
  return new MeshnetError('INTERNAL', 'the request failed', { cause: err });
}

const CONNECTION_STATUS: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: '431 Request Header Fields Too Large',
  ERR_HTTP_REQUEST_TIMEOUT: '408 Request Timeout',
};

/** Bytes that are no HTTP, or that came too slowly. */
function refuseConnection(err: NodeJS.ErrnoException, socket: Socket): void {
  if (err.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const { body } = httpErrorOf(new MeshnetError('REQUEST_INVALID', 'this is no HTTP request', { details: { reason: err.code } }));
  const text = JSON.stringify(body);
  socket.end(`HTTP/1.1 ${CONNECTION_STATUS[err.code ?? ''] ?? '400 Bad Request'}\r\ncontent-type: application/json\r\n`
    + `content-length: ${Buffer.byteLength(text)}\r\nconnection: close\r\n\r\n${text}`);
}
