import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { CommandModule } from 'yargs';
import { loadConfig } from '../config.ts';
import { uniformCuts } from '../domain/shard.ts';
import { DEFAULT_MODEL } from '../model/catalogue.ts';
import { ask, formatSpeed, type Answer } from './chat.ts';
import { ApiClient } from './api-client.ts';
import { NodeProcess } from './node-process.ts';
import { assertCount, givenUp, interruptSignal, printable, printJson, printText } from './output.ts';
import { resolveForDemo } from './pull.ts';
import { formatRoute } from './route-text.ts';

interface DemoArguments {
  model: string;
  prompt: string;
  stages: number;
  'max-tokens': number;
  keep?: boolean;
  json?: boolean;
}

/** For the shards to load and be found by the gateway. */
const MESH_READY_MS = 180_000;
const COVERAGE_POLL_MS = 250;
/** The bare question has two first tokens of nearly equal weight (0.08 apart in float32): rounding would choose the language. */
const DEFAULT_PROMPT = 'What is the capital of France? Answer in one sentence.';

export const demoCommand: CommandModule<object, DemoArguments> = {
  command: 'demo',
  describe: 'A whole mesh on this machine: one gateway without weights, and shards that split a model',
  builder: (yargs) => yargs
    .option('model', {
      type: 'string', default: DEFAULT_MODEL, describe: 'A name, a path or `test` (made here, random weights)',
    })
    .option('prompt', {
      alias: 'p', type: 'string', default: DEFAULT_PROMPT, describe: 'What to ask',
    })
    .option('stages', { type: 'number', default: 2, describe: 'Shards that the model is split over' })
    .option('max-tokens', { type: 'number', default: 128, describe: 'Longest answer, tokens' })
    .option('keep', { type: 'boolean', describe: 'Leave the mesh running until Ctrl-C' })
    .option('json', {
      type: 'boolean',
      describe: 'End with one line {text, completion_tokens, ttft_ms, tokens_per_second, model, ' +
        'route: {epoch, stages: [{peer, layers: [first, last), path}]}}',
    }),
  handler: async (argv) => {
    assertCount('max-tokens', argv['max-tokens']);
    const signal = interruptSignal();
    const say = (text: string): void => { process.stderr.write(text); };
    const { cacheDir } = loadConfig({});
    const model = await resolveForDemo(argv.model, { cacheDir, signal });
    const root = await mkdtemp(path.join(os.tmpdir(), 'meshnet-demo-'));
    const nodes: NodeProcess[] = [];
    try {
      const answer = await run(argv, { model, cacheDir, root, nodes, signal, say });
      if (argv.json === true) {
        const { text, completion_tokens, ttft_ms, tokens_per_second, route } = answer;
        printJson({ text, completion_tokens, ttft_ms, tokens_per_second, model: argv.model, route });
      }
    } finally {
      await Promise.all(nodes.map((node) => node.stop()));
      await rm(root, { recursive: true, force: true });
    }
  },
};

interface ModelList {
  data: { id: string; meshnet?: { coverage: string } }[];
}

interface DemoContext {
  model: { path: string; digest: string; nLayer: number };
  cacheDir: string;
  root: string;
  nodes: NodeProcess[];
  signal: AbortSignal;
  say: (text: string) => void;
}

async function run(argv: DemoArguments, context: DemoContext): Promise<Answer> {
  const { model, cacheDir, root, nodes, signal, say } = context;
  const cuts = uniformCuts(model.nLayer, argv.stages);
  const common = ['--lab', '--cache-dir', cacheDir, '--listen', '/ip4/127.0.0.1/tcp/0', '--log-level', 'warn'];
  const launch = async (name: string, args: readonly string[]): Promise<NodeProcess> => {
    const node = new NodeProcess([...common, '--data-dir', path.join(root, name), ...args]);
    nodes.push(node);
    await node.waitFor('listening', AbortSignal.any([signal, AbortSignal.timeout(MESH_READY_MS)]));
    return node;
  };
  say('gateway: no weights, first contact of the others\n');
  const use = `${argv.model}=${model.digest}`;
  const gateway = await launch('gateway', ['--api-port', '0', '--use', use]);
  const { addresses, api } = gateway.listening;
  const shards = await Promise.all(cuts.map(async ({ first, last }, i) => launch(`shard-${i}`, [
    '--no-api', '--bootstrap', addresses[0] ?? '', '--model', model.path,
    '--layers', `${first}-${last}`, '--worker-threads', '1', '--worker-listen', '127.0.0.1:0',
  ])));
  const ready = AbortSignal.any([signal, AbortSignal.timeout(MESH_READY_MS)]);
  await Promise.all(shards.map(async (shard, i) => {
    await shard.waitFor('serving', ready);
    say(`shard ${i}: layers ${cuts[i]?.first}-${cuts[i]?.last}, serving\n`);
  }));
  const client = new ApiClient(api ?? '');
  await covered(client, argv.model, ready);
  say(`\n> ${argv.prompt}\n`);
  const answer = await ask(client, {
    model: argv.model, messages: [{ role: 'user', content: argv.prompt }], maxTokens: argv['max-tokens'], temperature: 0,
  }, argv.json === true ? (text) => { say(printable(text)); } : printText, signal);
  say(`\n\n${formatRoute(answer.route)}\n${formatSpeed(answer)}\n`);
  if (argv.keep === true) {
    say(`\nThe mesh stays up: OpenAI API at ${api}/v1, model ${argv.model}. Ctrl-C ends it.\n`);
    await Promise.race([aborted(signal), ...nodes.map((node) => node.exited)]);
  }
  return answer;
}

/** Until the gateway knows a provider for every layer. */
async function covered(client: ApiClient, model: string, signal: AbortSignal): Promise<void> {
  for (;;) {
    const { data } = await client.get<ModelList>('/v1/models', signal);
    if (data.find(({ id }) => id === model)?.meshnet?.coverage === 'complete') {
      return;
    }
    await delay(COVERAGE_POLL_MS, undefined, { signal }).catch(() => undefined);
    if (signal.aborted) {
      throw givenUp(signal, `the gateway did not find all shards of ${model}`);
    }
  }
}

async function aborted(signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  signal.addEventListener('abort', () => { resolve(undefined); }, { once: true });
  if (!signal.aborted) {
    await promise;
  }
}
