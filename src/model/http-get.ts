/** One bounded GET: redirects are counted, and every address is checked before anything is sent to it. */
import { lookup, type LookupAddress, type LookupOptions } from 'node:dns';
import { request as requestPlain, type IncomingMessage, type RequestOptions } from 'node:http';
import { request as requestTls } from 'node:https';
import { BlockList, isIP } from 'node:net';
import { MeshnetError } from '../errors.ts';

const MAX_REDIRECTS = 5;
const REDIRECTS = [301, 302, 303, 307, 308];

export interface GetOptions {
  signal: AbortSignal;
  headers: Record<string, string>;
  /** Loopback, and plain HTTP to it, for a URL that names it itself. A redirect never leads there. */
  allowLoopback: boolean;
  /** Until the status line is here, milliseconds. */
  headersTimeoutMs: number;
}

/** The address or scheme is one that a download must not use. */
export class ForbiddenAddressError extends Error {
  override readonly name = 'ForbiddenAddressError';
}

/**
 * Sends a GET and follows redirects. The caller consumes or destroys the answer.
 *
 * @throws {ForbiddenAddressError}
 * @throws {MeshnetError} DEADLINE_EXCEEDED; what the network throws otherwise
 */
export async function get(url: string, options: GetOptions): Promise<IncomingMessage> {
  const first = new URL(url);
  const loopback = options.allowLoopback && isLoopbackName(first.hostname);
  let next = first;
  for (let hops = 0; ; hops++) {
    assertScheme(next, loopback);
    const answer = await send(next, loopback, options);
    const { location } = answer.headers;
    if (!REDIRECTS.includes(answer.statusCode ?? 0) || location === undefined) {
      return answer;
    }
    answer.destroy();
    const target = URL.parse(location, next.href);
    if (hops === MAX_REDIRECTS || target === null) {
      throw new ForbiddenAddressError(`more than ${MAX_REDIRECTS} redirects, or one that leads nowhere`);
    }
    next = target;
  }
}

function assertScheme(url: URL, loopback: boolean): void {
  if (url.username !== '' || url.password !== '' || (url.protocol !== 'https:' && !(loopback && url.protocol === 'http:'))) {
    throw new ForbiddenAddressError(`${url.protocol}//${url.host} is not HTTPS`);
  }
  const host = url.hostname.replace(/^\[|\]$/g, '');
  // A literal address never comes to `lookup`.
  if (isIP(host) !== 0 && !isAllowed(host, loopback)) {
    throw new ForbiddenAddressError(`${host} is a private address`);
  }
}

function send(url: URL, loopback: boolean, { signal, headers, headersTimeoutMs }: GetOptions): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const settings: RequestOptions = {
    signal,
    headers: { 'accept-encoding': 'identity', 'user-agent': 'meshnet', ...headers },
    lookup: (hostname, lookupOptions, callback) => checkedLookup(hostname, lookupOptions, loopback, callback),
    // One connection a request: nothing is left open when the download ends.
    agent: false,
  };
  const request = url.protocol === 'https:' ? requestTls(url, settings) : requestPlain(url, settings);
  const timer = setTimeout(() => {
    request.destroy(new MeshnetError('DEADLINE_EXCEEDED', 'the server does not answer', {
      details: { host: url.host, timeoutMs: headersTimeoutMs },
    }));
  }, headersTimeoutMs);
  request.once('response', resolve);
  request.on('error', reject);
  request.end();
  return promise.finally(() => clearTimeout(timer));
}

type LookupCallback = (err: NodeJS.ErrnoException | null, address: string | LookupAddress[], family?: number) => void;

function checkedLookup(hostname: string, options: LookupOptions, loopback: boolean, callback: LookupCallback): void {
  lookup(hostname, { ...options, all: true }, (err, addresses) => {
    const forbidden = addresses?.find(({ address }) => !isAllowed(address, loopback));
    const [first] = addresses ?? [];
    if (err !== null || first === undefined) {
      callback(err ?? new Error(`${hostname} has no address`), []);
    } else if (forbidden !== undefined) {
      callback(new ForbiddenAddressError(`${hostname} has the private address ${forbidden.address}`), []);
    } else if (options.all === true) {
      callback(null, addresses);
    } else {
      callback(null, first.address, first.family);
    }
  });
}

function isLoopbackName(hostname: string): boolean {
  const host = hostname.replace(/^\[|\]$/g, '');
  return host === 'localhost' || (isIP(host) !== 0 && matches(LOOPBACK, host));
}

function isAllowed(address: string, loopback: boolean): boolean {
  return loopback ? matches(LOOPBACK, address) : !matches(PRIVATE, address);
}

function matches(addresses: BlockList, address: string): boolean {
  return addresses.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');
}

const LOOPBACK = blockList([['127.0.0.0', 8]], [['::1', 128]]);
/** Everything that is not a public unicast address. */
const PRIVATE = blockList(
  [
    ['0.0.0.0', 8], ['10.0.0.0', 8], ['100.64.0.0', 10], ['127.0.0.0', 8], ['169.254.0.0', 16], ['172.16.0.0', 12],
    ['192.0.0.0', 24], ['192.0.2.0', 24], ['192.168.0.0', 16], ['198.18.0.0', 15], ['198.51.100.0', 24],
    ['203.0.113.0', 24], ['224.0.0.0', 4], ['240.0.0.0', 4],
  ],
  [['::', 127], ['64:ff9b::', 96], ['100::', 64], ['2001:db8::', 32], ['2002::', 16], ['fc00::', 7], ['fe80::', 10], ['ff00::', 8]],
);

function blockList(ipv4: readonly (readonly [string, number])[], ipv6: readonly (readonly [string, number])[]): BlockList {
  const list = new BlockList();
  ipv4.forEach(([network, prefix]) => list.addSubnet(network, prefix, 'ipv4'));
  ipv6.forEach(([network, prefix]) => list.addSubnet(network, prefix, 'ipv6'));
  return list;
}
