import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { z } from 'zod';
import type { Generation, TokenEvent } from '../../src/gateway/backend.ts';
import { loadConfig, MeshnetNode } from '../../src/index.ts';

/**
 * A gateway as a line program: each line on stdin asks for sessions that run at once on routes of their own, and is
 * answered by one line. It runs where the head's host is, a namespace perhaps, so it is no part of the benchmark's process.
 */
const START_MS = 60_000;
const STOP_MS = 15_000;
/** The model's name in here. */
const MODEL = 'bench';

const Request = z.object({
  prompts: z.array(z.array(z.int()).min(1)).min(1),
  output: z.int().min(1),
  sampling: z.object({ temperature: z.number(), top_k: z.int(), top_p: z.number(), seed: z.int() }).nullable(),
});
type Request = z.infer<typeof Request>;

interface Session {
  readonly ids: number[];
  /** When each of them came. */
  readonly times: number[];
  readonly paths: string[];
  /** Of each step after the first token, stage by stage. */
  readonly stages: (readonly StageTimes[])[];
}

type StageTimes = NonNullable<TokenEvent['times']>[number];

/** Means over all steps of all sessions, in ms; nothing when a step lacks them. */
function stageMeans(steps: readonly (readonly StageTimes[])[]): { queue_ms: number; compute_ms: number; hand_over_ms: number }[] {
  const [first = []] = steps;
  if (steps.some(({ length }) => length !== first.length)) {
    return [];
  }
  return first.map((_, stage) => {
    const mean = (of: (times: StageTimes) => number): number =>
      steps.reduce((sum, times) => sum + of(times[stage] as StageTimes), 0) / steps.length / 1000;
    return {
      queue_ms: mean(({ queueUs }) => queueUs), compute_ms: mean(({ computeUs }) => computeUs),
      hand_over_ms: mean(({ serializeUs }) => serializeUs),
    };
  });
}

function generate(
  node: MeshnetNode, ids: readonly number[], { output, sampling }: Request, signal: AbortSignal,
): Promise<Generation> {
  return node.generate({
    model: MODEL, ids, maxTokens: output, logprobs: -1, ignoreEnd: true,
    sampling: {
      temperature: sampling?.temperature ?? 0, topP: sampling?.top_p ?? 1, topK: sampling?.top_k ?? 0, minP: 0,
      presencePenalty: 0, frequencyPenalty: 0, seed: BigInt(sampling?.seed ?? 1), logitBias: [],
    },
  }, { signal });
}

async function read(generation: Generation): Promise<Session> {
  const session: Session = { ids: [], times: [], paths: generation.route.stages.map(({ path }) => path), stages: [] };
  for await (const { ids, times = [] } of generation) {
    const now = performance.now();
    if (session.ids.length > 0 && ids.length > 0) {
      session.stages.push(times);
    }
    session.ids.push(...ids);
    session.times.push(...ids.map(() => now));
  }
  return session;
}

/**
 * Every route is open before the first turn begins, so that all prompts are there together, as in one process. What came
 * before the last session's first token is none of the decoding that `decode_wall_ms` is the time of.
 */
async function answer(node: MeshnetNode, request: Request, signal: AbortSignal): Promise<object> {
  const cpu = process.cpuUsage();
  const began = performance.now();
  const routes = await Promise.all(request.prompts.map((ids) => generate(node, ids, request, signal)));
  const openMs = performance.now() - began;
  const sessions = await Promise.all(routes.map(read));
  const prefilled = Math.max(...sessions.map(({ times }) => times[0] ?? Number.NaN));
  const ended = Math.max(...sessions.map(({ times }) => times.at(-1) ?? Number.NaN));
  const { user, system } = process.cpuUsage(cpu);
  return {
    prefill_ms: prefilled - began,
    open_ms: openMs,
    decode_wall_ms: ended - prefilled,
    decode_tokens: sessions.flatMap(({ times }) => times).filter((time) => time > prefilled).length,
    step_ms: sessions.flatMap(({ times }) => times.slice(1).map((time, i) => time - (times[i] ?? 0))),
    tokens: sessions.map(({ ids }) => ids),
    paths: [...new Set(sessions.map(({ paths }) => paths.join(' ')))],
    stages: stageMeans(sessions.flatMap(({ stages }) => stages)),
    peak_mib: Math.round(process.resourceUsage().maxRSS / 1024),
    cpu_s: (user + system) / 1e6,
  };
}

const { values } = parseArgs({
  options: {
    'data-dir': { type: 'string' }, 'cache-dir': { type: 'string' }, listen: { type: 'string' }, announce: { type: 'string' },
    digest: { type: 'string' },
  },
});
let addresses: readonly string[] = [];
const node = new MeshnetNode(loadConfig({
  dataDir: values['data-dir'], cacheDir: values['cache-dir'], lab: true, listen: [values.listen ?? '/ip4/127.0.0.1/tcp/0'],
  announce: values.announce === undefined ? [] : [values.announce],
  logLevel: 'warn', dhtServer: true, api: { enabled: false }, use: { [MODEL]: values.digest ?? '' },
}), { onEvent: (event) => { addresses = event.event === 'listening' ? event.addresses : addresses; } });
await node.start({ signal: AbortSignal.timeout(START_MS) });
process.stdout.write(`${JSON.stringify({ ready: true, addresses })}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  const failed = new AbortController();
  let said: object;
  try {
    said = await answer(node, Request.parse(JSON.parse(line)), failed.signal);
  } catch (err) {
    // When one session fails, the others are of no use.
    failed.abort();
    said = { error: err instanceof Error ? err.message : String(err) };
  }
  process.stdout.write(`${JSON.stringify(said)}\n`);
}
await node.stop({ signal: AbortSignal.timeout(STOP_MS) });
