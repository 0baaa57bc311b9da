/** Who may call: host names, pages and keys. Rules only; the hooks that ask them are in `http-server.ts`. */
import { createHash, timingSafeEqual } from 'node:crypto';
import { isIP } from 'node:net';

const LOOPBACK_NAMES = ['localhost', '127.0.0.1', '[::1]'];

export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}

/**
 * Whether a Host header names this gateway. A page can make its own name resolve to the loopback (DNS rebinding), but
 * it cannot choose what the browser writes here. A missing header, as HTTP/1.0 allows, comes from no browser.
 */
export function hostAllowed(header: string | undefined, allowed: readonly string[]): boolean {
  if (header === undefined) {
    return true;
  }
  const name = header.toLowerCase().replace(/:\d{1,5}$/, '');
  return LOOPBACK_NAMES.includes(name) || allowed.some((other) => other.toLowerCase() === name);
}

/** Whether the page that an Origin header names may call. No header: no page. */
export function originAllowed(origin: string | undefined, allowed: readonly string[]): boolean {
  if (origin === undefined || allowed.includes(origin)) {
    return true;
  }
  try {
    const { protocol, hostname } = new URL(origin);
    return (protocol === 'http:' || protocol === 'https:') && LOOPBACK_NAMES.includes(hostname);
  } catch {
    return false;
  }
}

/** Whether an Authorization header carries `key`, in a time that says nothing about it. */
export function keyMatches(authorization: string | undefined, key: string): boolean {
  return timingSafeEqual(digest(tokenIn(authorization)), digest(key));
}

/**
 * Whom a request counts for: the key that it carries, otherwise the address that it comes from. Where the gateway wants a
 * key everybody carries the same one, so that only addresses tell clients apart. The key itself is not in what this gives.
 */
export function clientOf(authorization: string | undefined, address: string, wanted: string | undefined): string {
  const token = wanted === undefined ? tokenIn(authorization) : '';
  return token === '' ? `address ${networkOf(address)}` : `key ${digest(token).toString('hex', 0, 16)}`;
}

function tokenIn(authorization: string | undefined): string {
  return /^bearer +(.*)$/i.exec(authorization ?? '')?.[1]?.trim() ?? '';
}

/** One house has 2^64 addresses of IPv6, so there the network counts, its first 64 bits. */
function networkOf(address: string): string {
  const mapped = /^::ffff:([\d.]+)$/i.exec(address)?.[1];
  if (mapped !== undefined || isIP(address) !== 6) {
    return mapped ?? address;
  }
  const [before = '', after = ''] = address.split('::');
  const [head, tail] = [before, after].map((groups) => groups === '' ? [] : groups.split(':'));
  const zeros = Array.from({ length: 8 - (head?.length ?? 0) - (tail?.length ?? 0) }, () => '0');
  return `${[...head ?? [], ...zeros, ...tail ?? []].slice(0, 4).join(':')}::/64`;
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

const REQUEST_HEADERS = /^(accept|authorization|content-type|openai-[a-z-]+|user-agent|x-api-key|x-request-id|x-requested-with|x-stainless-[a-z-]+)$/;

/** Of the headers that a pre-flight asks for, those that are let through; `authorization` always by its name. */
export function allowedHeaders(requested: string | undefined): string {
  const names = (requested ?? '').toLowerCase().split(',').map((name) => name.trim()).filter((name) => REQUEST_HEADERS.test(name));
  return [...new Set(['authorization', 'content-type', ...names])].slice(0, 32).join(', ');
}
