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
  /** Answers at the same time; more are told to come back. @default 64 */
  maxAnswers?: number;
  /** Open connections. @default 1024 */
  maxConnections?: number;
  /** Tokens of an answer when the client names no number. @default 1024 */
  defaultMaxTokens?: number;
  /** Body of a request, bytes. @default 4194304 */
  bodyBytes?: number;
  /** A stream is never silent for longer, ms. @default 5000 */
  pingMs?: number;
  /** A reader that takes nothing for this long loses its answer, ms. @default 30000 */
  slowReaderMs?: number;
  /** One call of the text process, ms. @default 15000 */
  textMs?: number;
  /** Until a route is open, ms. @default 60000 */
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
