/** What an operator may set of the gateway. */
export interface GatewayInit {
  /** @default '127.0.0.1' */
  host?: string;
  /** 0 takes any free port. @default 7070 */
  port?: number;
  /** Wanted as a bearer token on all but `/health`. Has to be set when `host` is not of the loopback. */
  key?: string;
  /** Names in the Host header that are let in besides those of the loopback. @default [] */
  allowedHosts?: readonly string[];
  /** Origins of pages that may call besides those of the loopback. @default [] */
  allowedOrigins?: readonly string[];
  /** Answers at the same time, those that wait for room not counted; more wait as for room. @default 64 */
  maxAnswers?: number;
  /** Requests that wait; 0 lets nobody wait. @default 256 */
  maxQueued?: number;
  /** The same of one client. @default 64 */
  maxQueuedPerClient?: number;
  /** Longest wait for room, ms. @default 30000 */
  queueMs?: number;
  /** The first pause between two tries for room of which nothing is heard, ms. @default 100 */
  roomRetryMs?: number;
  /** The longest such pause, ms. @default 2000 */
  roomRetryMaxMs?: number;
  /** Waiting requests that are tried for at once, when room is plenty. @default 8 */
  roomTries?: number;
  /** When a client that got no room should come back, ms. @default 5000 */
  comeBackMs?: number;
  /** Open connections. @default 1024 */
  maxConnections?: number;
  /** Tokens of an answer when the client names no number. @default 1024 */
  defaultMaxTokens?: number;
  /** Body of a request, bytes. @default 4194304 */
  bodyBytes?: number;
  /** A stream is never silent for longer, ms. @default 5000 */
  pingMs?: number;
  /** A reader that does not take what is sent within this loses its connection, ms. @default 30000 */
  slowReaderMs?: number;
  /** One call of the text process, ms. @default 15000 */
  textMs?: number;
  /** Until a route is open, the wait for room not counted, ms. @default 60000 */
  admitMs?: number;
  /** Between two tokens, the prompt's processing before the first included, ms. @default 300000 */
  idleMs?: number;
  /** A whole request, ms. @default 30000 */
  requestMs?: number;
  /** The headers of a request, ms. @default 10000 */
  headersMs?: number;
}

export const GATEWAY_DEFAULTS: Readonly<Required<Omit<GatewayInit, 'key'>>> = Object.freeze({
  host: '127.0.0.1',
  port: 7070,
  allowedHosts: [],
  allowedOrigins: [],
  maxAnswers: 64,
  maxQueued: 256,
  maxQueuedPerClient: 64,
  queueMs: 30_000,
  roomRetryMs: 100,
  roomRetryMaxMs: 2000,
  roomTries: 8,
  comeBackMs: 5000,
  maxConnections: 1024,
  defaultMaxTokens: 1024,
  bodyBytes: 4 * 1024 * 1024,
  pingMs: 5000,
  slowReaderMs: 30_000,
  textMs: 15_000,
  admitMs: 60_000,
  idleMs: 300_000,
  requestMs: 30_000,
  headersMs: 10_000,
});

export type GatewaySettings = Required<Omit<GatewayInit, 'key'>> & Pick<GatewayInit, 'key'>;
