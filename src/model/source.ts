import { basename } from 'node:path';
import { MeshnetError } from '../errors.ts';

/** Where the bytes of a model come from. */
export type Source =
  | { readonly kind: 'path'; readonly path: string }
  | { readonly kind: 'http'; readonly url: string }
  | { readonly kind: 'package'; readonly name: string; readonly version: string; readonly member: string }
  | { readonly kind: 'generated'; readonly options: string };

/** What a source is asked for. */
export interface FetchJob {
  /** Where the bytes go. It may hold the beginning of them from an earlier run. */
  readonly target: string;
  /** Lower-case hex, when it is known. */
  readonly sha256?: string | undefined;
  readonly bytes?: number | undefined;
}

/** What happens while nothing arrives. */
export interface FetchNotice {
  readonly kind: 'stalled' | 'failed';
  /** Which try comes next, and how many there are; left out when the source does not try again by itself. */
  readonly attempt?: number;
  readonly attempts?: number;
}

export interface FetchOptions {
  signal: AbortSignal;
  /** Bytes so far, and in all when that is known. May go back when a source starts again. */
  onProgress: (done: number, total: number | undefined) => void;
  onNotice: (notice: FetchNotice) => void;
}

const PACKAGE = /^pypi:(?<name>[A-Za-z0-9][A-Za-z0-9._-]{0,99})@(?<version>[A-Za-z0-9][A-Za-z0-9.+!_-]{0,49})\/(?<member>.{1,255})$/;

/**
 * Reads `https://HOST/FILE`, `pypi:PACKAGE@VERSION/MEMBER`, `generated:OPTION=VALUE,…`, `base:FILE` (below `baseUrl`) or a path.
 *
 * @throws {MeshnetError} CONFIG_INVALID
 */
export function parseSource(text: string, baseUrl?: string): Source {
  if (/^https?:/i.test(text)) {
    return { kind: 'http', url: checkedUrl(text).href };
  }
  if (text.startsWith('base:')) {
    return { kind: 'http', url: belowBase(text.slice('base:'.length), baseUrl) };
  }
  if (text.startsWith('pypi:')) {
    const { name, version, member } = PACKAGE.exec(text)?.groups ?? {};
    if (name === undefined || version === undefined || member === undefined || !isSafeMember(member)) {
      throw invalid(text, 'write pypi:PACKAGE@VERSION/PATH/IN/WHEEL.gguf');
    }
    return { kind: 'package', name, version, member };
  }
  if (text.startsWith('generated:')) {
    const options = text.slice('generated:'.length);
    if (!/^([a-z-]{1,20}=[A-Za-z0-9][A-Za-z0-9_-]{0,30}(,|$)){1,16}$/.test(options) || options.endsWith(',')) {
      throw invalid(text, 'write generated:OPTION=VALUE,OPTION=VALUE');
    }
    return { kind: 'generated', options };
  }
  if (text === '' || text.includes('\0')) {
    throw invalid(text, 'a path is empty or has a zero byte');
  }
  return { kind: 'path', path: text };
}

/** A file name for the cache; never more than one path segment, whatever the source says. */
export function safeFileName(source: Source): string {
  const name = source.kind === 'http' ? decoded(basename(new URL(source.url).pathname))
    : source.kind === 'package' ? basename(source.member)
    : source.kind === 'generated' ? 'generated'
    : basename(source.path);
  const safe = name.replace(/\.gguf$/i, '').replaceAll(/[^A-Za-z0-9._-]/g, '_').replace(/^\.+/, '').slice(0, 100);
  return `${safe === '' ? 'model' : safe}.gguf`;
}

/** For error details: without the parts of a URL that may carry a secret. */
export function sourceLabel(source: Source): string {
  switch (source.kind) {
    case 'http': {
      const { origin, pathname } = new URL(source.url);
      return origin + pathname;
    }
    case 'package': return `pypi:${source.name}@${source.version}/${source.member}`;
    case 'generated': return `generated:${source.options}`;
    default: return source.path;
  }
}

/** SOURCE_UNAVAILABLE that says what to use instead. */
export function unavailable(
  source: Source,
  reason: string,
  options: { cause?: unknown; details?: Record<string, unknown> } = {},
): MeshnetError {
  const hint = 'use --model test for a generated model, or --model FILE.gguf for one that is here';
  return new MeshnetError('SOURCE_UNAVAILABLE', `${reason}; ${hint}`, {
    ...('cause' in options ? { cause: options.cause } : {}),
    details: { source: sourceLabel(source), ...options.details },
  });
}

function checkedUrl(text: string): URL {
  const url = URL.parse(text);
  if (url === null || url.username !== '' || url.password !== '' || url.hash !== '') {
    throw invalid(text.replace(/\/\/[^/]*@/, '//'), 'a URL without user, password and fragment');
  }
  return url;
}

function belowBase(file: string, baseUrl: string | undefined): string {
  if (baseUrl === undefined) {
    throw invalid(`base:${file}`, 'set the base URL of model files');
  }
  const base = checkedUrl(baseUrl.endsWith('/') ? baseUrl : `${baseUrl}/`);
  const url = URL.parse(file, base.href);
  if (url === null || url.origin !== base.origin || !url.pathname.startsWith(base.pathname)) {
    throw invalid(`base:${file}`, 'a file below the base URL');
  }
  return url.href;
}

function isSafeMember(member: string): boolean {
  return /^[\x20-\x7e]+\.gguf$/.test(member) && !member.split(/[/\\]/).some((part) => ['', '.', '..'].includes(part));
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function invalid(source: string, expected: string): MeshnetError {
  return new MeshnetError('CONFIG_INVALID', 'this is no source of a model', { details: { source, expected } });
}
