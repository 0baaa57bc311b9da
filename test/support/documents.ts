/** What the documents claim, read out of their text: error numbers, commands and paths. */
import { existsSync, globSync } from 'node:fs';

export type CodeNumbers = Record<string, number>;

/** `ERROR_CODE_SEQ_GAP = 18;` of the enum, without its zero. */
export function codesOfProto(text: string): CodeNumbers {
  return collect(text, /^\s*ERROR_CODE_([A-Z_]+)\s*=\s*(\d+)\s*;/gm, (name) => name);
}

/** `kSeqGap = 18,` of the C++ enum, without its zero. */
export function codesOfStatus(text: string): CodeNumbers {
  const snake = (name: string): string => name.replace(/(?<=[a-z0-9])(?=[A-Z])/g, '_').toUpperCase();
  return collect(text, /^\s*k([A-Z]\w*)\s*=\s*(\d+)\s*,/gm, snake);
}

/** Rows `| 18 | SEQ_GAP | when | what to do |` of the table in SPEC.md; a row with an empty cell does not count. */
export function codesOfSpec(text: string): CodeNumbers {
  const row = /^\|\s*`?(?<number>\d+)`?\s*\|\s*`?(?<name>[A-Z][A-Z_]+)`?\s*\|\s*[^|\s][^|]*\|\s*[^|\s][^|]*\|\s*$/gm;
  const rows: CodeNumbers = {};
  for (const { groups } of text.matchAll(row)) {
    add(rows, groups?.['name'] ?? '', Number(groups?.['number']));
  }
  return rows;
}

function collect(text: string, pattern: RegExp, rename: (name: string) => string): CodeNumbers {
  const codes: CodeNumbers = {};
  for (const [, name = '', number] of text.matchAll(pattern)) {
    add(codes, rename(name), Number(number));
  }
  return codes;
}

function add(codes: CodeNumbers, name: string, number: number): void {
  if (number !== 0) {
    if (name in codes) {
      throw new RangeError(`${name} stands twice`);
    }
    codes[name] = number;
  }
}

/** Names of npm scripts that a text tells its reader to run. */
export function scriptsIn(text: string): string[] {
  const named = [...text.matchAll(/\bnpm run (?:-s |--silent )?([\w:-]+)/g)].map(([, name = '']) => name);
  return /\bnpm (?:test|t)\b/.test(text) ? [...named, 'test'] : named;
}

/** `NAME` of each `npm run SCRIPT -- NAME`; words in capitals stand for something else and do not count. */
export function argumentsOf(script: string, text: string): string[] {
  const pattern = new RegExp(`\\bnpm run (?:-s |--silent )?${script} -- ([a-z][\\w-]*)`, 'g');
  return [...text.matchAll(pattern)].map(([, name = '']) => name);
}

const FOLDERS = ['.ci', 'bench', 'bin', 'native-worker', 'patches', 'proto', 'src', 'test'];
const EXTENSIONS = /\.(?:ts|js|json|md|proto|h|cpp|cc|sh|patch|txt|toml|gbnf)$/;
/** Documents name files as their reader thinks of them: from the root, or inside one of these. */
const BASES = ['', 'src/', 'native-worker/', 'native-worker/src/'];

/** Paths in `code` and in links of a text that are not there. */
export function missingPaths(text: string): string[] {
  return pathsIn(text).filter((path) => !BASES.some((base) => isThere(base + path)));
}

export function pathsIn(text: string): string[] {
  const quoted = [...text.matchAll(/`([^`\n]+)`/g)].map(([, token = '']) => token);
  const linked = [...text.matchAll(/\]\(([^)#\s]+)[^)]*\)/g)].map(([, token = '']) => token);
  const paths = [...quoted, ...linked.filter((link) => !/^[a-z]+:/.test(link))].filter(isPath);
  return [...new Set(paths)].flatMap(expandBraces);
}

function isPath(token: string): boolean {
  if (!/^[\w.{},*@-]+(?:\/[\w.{},*@-]+)*\/?$/.test(token)) {
    return false;
  }
  return EXTENSIONS.test(token) || (token.includes('/') && FOLDERS.includes(token.split('/')[0] ?? ''));
}

function expandBraces(path: string): string[] {
  const [whole, choices] = /\{([^{}]*)\}/.exec(path) ?? [];
  if (whole === undefined || choices === undefined) {
    return [path];
  }
  return choices.split(',').flatMap((choice) => expandBraces(path.replace(whole, choice)));
}

function isThere(path: string): boolean {
  return path.includes('*') ? globSync(path).length > 0 : existsSync(path);
}

export interface MetricRow {
  readonly name: string;
  readonly type: string;
  readonly labels: string;
  readonly help: string;
}

/** Rows `| name | type | labels | meaning |` of a table of metrics, whose names stand in backquotes. */
export function metricRows(text: string): MetricRow[] {
  const row = /^\| `(?<name>\w+)` \| (?<type>\w+) \| (?<labels>[^|]+) \| (?<help>[^|]+) \|$/gm;
  return [...text.matchAll(row)].map(({ groups = {} }) => ({
    name: groups['name'] ?? '', type: groups['type'] ?? '', labels: groups['labels'] ?? '', help: groups['help'] ?? '',
  }));
}
