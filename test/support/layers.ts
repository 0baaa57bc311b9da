/** Who may import whom, and the checker that keeps it. It reads text, so that a test can hand it a violation. */

/** Lower may not import higher. Folders of one level do not import each other unless `SIBLINGS` says so. */
const LEVELS: readonly (readonly string[])[] = [
  ['errors'],
  ['proto'],
  ['domain'],
  ['config'],
  ['net', 'worker', 'model'],
  ['serve', 'route', 'gateway'],
  ['metrics'],
  ['node'],
  ['cli', 'index'],
  ['main'],
];

/** The same under `bench/`. What runs knows nothing of verdicts and pictures. */
const BENCH_LEVELS: readonly (readonly string[])[] = [
  ['systems'],
  ['runner', 'limits'],
  ['bench', 'contract'],
  ['judging', 'pictures', 'wan'],
  ['mesh'],
  ['concurrency', 'gate1', 'gate5', 'load', 'seam', 'split'],
  ['main'],
];

/** The gateway runs sessions on routes. `serve` and `route` never meet. */
const SIBLINGS = new Set(['gateway>route']);

/** An outside thing has one owner. */
const OWNERS: readonly { packages: RegExp; owner: string }[] = [
  { packages: /^(libp2p|@libp2p\/.*|@chainsafe\/.*|@multiformats\/.*)$/, owner: 'net' },
  { packages: /^@grpc\/.*$/, owner: 'worker' },
  { packages: /^(fastify|@fastify\/.*)$/, owner: 'gateway' },
  { packages: /^prom-client$/, owner: 'metrics' },
  { packages: /^@huggingface\/.*$/, owner: 'model' },
  { packages: /^(yargs|cli-progress)(\/.*)?$/, owner: 'cli' },
];

/** What pure rules may use of the platform; everything else waits, listens, reads a clock or is not repeatable. */
const PURE_MODULES = new Set(['node:crypto', 'node:buffer', 'node:util']);
const IMPURE_NAMES =
  /\b(Date\.now|new Date\(\)|performance|setTimeout|setInterval|setImmediate|fetch|process|Math\.random|console)\b/g;

/** The C++ files that may see llama.cpp, by the part of their name before the first dot, dash or underscore. */
const ENGINE_PARTS = new Set(['shard', 'lane', 'engine', 'sampler', 'text']);
const ENGINE_HEADERS =
  /^\s*#\s*include\s*[<"]((?:llama|ggml)(?:-[\w-]+)?\.h|gguf\.h|common\/[^>"]+|(?:chat|sampling|json-schema-to-grammar)\.h)[>"]/gm;

/** The sentences to print for one TypeScript file, named from the root of the checkout (`src/net/host.ts`). */
export function layerViolations(file: string, source: string): string[] {
  const layer = partOf('src', file);
  if (levelOf(LEVELS, layer) < 0) {
    return [`${file}: "${layer}" has no place in the table of layers`];
  }
  const code = withoutComments(source);
  const found: string[] = [];
  for (const specifier of importsOf(code)) {
    if (specifier.startsWith('.')) {
      const target = partOf('src', resolveFrom(file, specifier));
      if (!mayImport(layer, target)) {
        found.push(`${file}: ${layer} may not import ${target} (${specifier})`);
      }
      continue;
    }
    const owner = OWNERS.find(({ packages }) => packages.test(specifier))?.owner;
    if (owner !== undefined && owner !== layer) {
      found.push(`${file}: only ${owner} may import ${specifier}`);
    }
    if (layer === 'domain' && isPlatform(specifier) && !PURE_MODULES.has(specifier)) {
      found.push(`${file}: domain may not import ${specifier}`);
    }
  }
  if (layer === 'domain') {
    for (const [name] of withoutStrings(code).matchAll(IMPURE_NAMES)) {
      found.push(`${file}: domain may not use ${name}`);
    }
  }
  return found;
}

/** The same for a TypeScript file under `bench/`; of the product it may use everything. */
export function benchViolations(file: string, source: string): string[] {
  const part = partOf('bench', file);
  if (levelOf(BENCH_LEVELS, part) < 0) {
    return [`${file}: "${part}" has no place in the table of benchmarks`];
  }
  return importsOf(withoutComments(source)).filter((specifier) => specifier.startsWith('.')).flatMap((specifier) => {
    const target = resolveFrom(file, specifier);
    const to = partOf('bench', target);
    return target.startsWith('src/') || isBelow(BENCH_LEVELS, part, to) ? [] : [`${file}: ${part} may not import ${to} (${specifier})`];
  });
}

/** Reads a header with the engine's own parser before the engine is given the file, and needs nothing else of it. */
const HEADER_CHECK = { part: 'gguf_check', header: 'gguf.h' };

/** The same for a C++ file under `native-worker/`. */
export function engineViolations(file: string, source: string): string[] {
  const part = (file.split('/').at(-1) ?? '').split(/[._-]/)[0] ?? '';
  if (!file.startsWith('native-worker/src/') || ENGINE_PARTS.has(part)) {
    return [];
  }
  const isCheck = file.includes(`/${HEADER_CHECK.part}.`);
  return [...source.matchAll(ENGINE_HEADERS)]
    .filter(([, header]) => !(isCheck && header === HEADER_CHECK.header))
    .map(([, header]) => `${file}: ${part} may not include ${header}`);
}

function mayImport(from: string, to: string): boolean {
  return isBelow(LEVELS, from, to) || SIBLINGS.has(`${from}>${to}`);
}

/** Or the same part. */
function isBelow(levels: typeof LEVELS, from: string, to: string): boolean {
  const [a, b] = [levelOf(levels, from), levelOf(levels, to)];
  return from === to || (b >= 0 && b < a);
}

function levelOf(levels: typeof LEVELS, part: string): number {
  return levels.findIndex((names) => names.includes(part));
}

/** `src/net/host.ts` and `src/net.ts` are both `net`. */
function partOf(tree: 'src' | 'bench', file: string): string {
  const [top, second = ''] = file.split('/');
  return top === tree ? second.replace(/\.(ts|js|d\.ts)$/, '') : `outside ${tree}: ${file}`;
}

function resolveFrom(file: string, specifier: string): string {
  return new URL(specifier, `file:///${file}`).pathname.slice(1);
}

function isPlatform(specifier: string): boolean {
  return specifier.startsWith('node:');
}

function importsOf(code: string): string[] {
  const statement = /\b(?:from|import)\s*\(?\s*['"`]([^'"`]+)['"`]|\brequire\s*\(\s*['"`]([^'"`]+)['"`]/g;
  return [...code.matchAll(statement)].map(([, imported, required]) => imported ?? required ?? '');
}

function withoutComments(source: string): string {
  return source.replace(/\/\*[\s\S]*?\*\/|(?<![:'"`\\])\/\/.*$/gm, '');
}

function withoutStrings(code: string): string {
  return code.replace(/'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"/g, "''");
}
