import { z } from 'zod';
import { MeshnetError } from '../../src/errors.ts';
import type { Generation, TokenEvent } from '../../src/gateway/backend.ts';
import type { MeshnetNode } from '../../src/index.ts';

/** The model's name in here. */
export const MODEL = 'bench';

const Ids = z.array(z.int()).min(1);

/** Sessions that run at once on routes of their own. */
export const Request = z.object({
  prompts: z.array(Ids).min(1),
  output: z.int().min(1),
  sampling: z.object({ temperature: z.number(), top_k: z.int(), top_p: z.number(), seed: z.int() }).nullable(),
  /** One more session, of one token, that begins once each of the others has so many. */
  late: z.object({ prompt: Ids, after: z.int().min(1) }).optional(),
  /** How the conversation of the only prompt goes on behind its answer. */
  more: Ids.optional(),
});
export type Request = z.infer<typeof Request>;

export type GeneratingNode = Pick<MeshnetNode, 'generate'>;

interface Session {
  readonly ids: number[];
  /** When each of them came. */
  readonly times: number[];
  readonly paths: string[];
  /** Of each step after the first token, stage by stage. */
  readonly stages: (readonly StageTimes[])[];
}

type StageTimes = NonNullable<TokenEvent['times']>[number];

/**
 * Every route is open before the first turn begins, so that all prompts are there together, as in one process. What came
 * before the last session's first token is none of the decoding that `decode_wall_ms` is the time of.
 */
export async function answer(node: GeneratingNode, request: Request, signal: AbortSignal): Promise<object> {
  const cpu = process.cpuUsage();
  const began = performance.now();
  const routes = await Promise.all(request.prompts.map((ids) => generate(node, ids, request, signal)));
  const openMs = performance.now() - began;
  const sessions = await Promise.all(routes.map((route) => read(route)));
  const prefilled = Math.max(...sessions.map(({ times }) => times[0] ?? Number.NaN));
  const ended = Math.max(...sessions.map(({ times }) => times.at(-1) ?? Number.NaN));
  const { user, system } = process.cpuUsage(cpu);
  return {
    prefill_ms: prefilled - began,
    open_ms: openMs,
    decode_wall_ms: ended - prefilled,
    decode_tokens: sessions.flatMap(({ times }) => times).filter((time) => time > prefilled).length,
    step_ms: sessions.flatMap(({ times }) => times.slice(1).map((time, i) => time - (times[i] ?? 0))),
    times_ms: sessions.map(({ times }) => times.map((time) => time - began)),
    tokens: sessions.map(({ ids }) => ids),
    paths: pathsOf(sessions),
    stages: stageMeans(sessions.flatMap(({ stages }) => stages)),
    peak_mib: Math.round(process.resourceUsage().maxRSS / 1024),
    cpu_s: (user + system) / 1e6,
  };
}

/**
 * What one more session does to those that are under way. They go on until it has its first token and each of them one
 * more, so that a step which it held up is whole; the steps that ended before it began are left out.
 *
 * @throws {MeshnetError} INTERNAL when one of the others was over first
 */
export async function answerBeside(
  node: GeneratingNode, { late, ...request }: Request & Required<Pick<Request, 'late'>>, signal: AbortSignal,
): Promise<object> {
  const routes = await Promise.all(request.prompts.map((ids) => generate(node, ids, request, signal)));
  const underWay = Promise.withResolvers<void>();
  const counts = routes.map(() => 0);
  let first = Infinity;
  const others = routes.map((route, i) => read(route, ({ times }) => {
    counts[i] = times.length;
    if (counts.every((n) => n >= late.after)) {
      underWay.resolve();
    }
    return (times.at(-1) ?? 0) <= first;
  }));
  const oneMore = async (): Promise<{ began: number; session: Session }> => {
    await underWay.promise;
    const began = performance.now();
    const session = await read(await generate(node, late.prompt, { ...request, output: 1 }, signal));
    first = session.times[0] ?? Number.NaN;
    return { began, session };
  };
  const [{ began, session }, sessions] = await Promise.all([oneMore(), Promise.all(others)]);
  if (!sessions.every(({ times }) => (times.at(-1) ?? 0) > first)) {
    throw new MeshnetError('INTERNAL', 'a session was over before the late one had its first token', {
      details: { tokens: sessions.map(({ times }) => times.length), firstTokenMs: Math.round(first - began) },
    });
  }
  return {
    first_token_ms: first - began,
    step_ms: sessions.flatMap(({ times }) =>
      times.flatMap((time, i) => i > 0 && time > began ? [time - (times[i - 1] ?? 0)] : [])),
    paths: pathsOf([session, ...sessions]),
  };
}

/** Nobody goes on with a conversation but who began it. */
let conversations = 0;

/** The first token of a conversation's second turn: the first prompt, its answer and what is new. */
export async function answerTwice(
  node: GeneratingNode, { more, prompts: [prompt = []], ...request }: Request & Required<Pick<Request, 'more'>>, signal: AbortSignal,
): Promise<object> {
  const client = `conversation ${++conversations}`;
  const first = await read(await generate(node, prompt, { ...request, client }, signal));
  const began = performance.now();
  const generation = await generate(node, [...prompt, ...first.ids, ...more], { ...request, client, output: 1 }, signal);
  const second = await read(generation);
  return { first_token_ms: (second.times[0] ?? Number.NaN) - began, cached: generation.cachedTokens, paths: pathsOf([second]) };
}

function generate(
  node: GeneratingNode, ids: readonly number[], { output, sampling, client }: Omit<Request, 'prompts'> & { client?: string },
  signal: AbortSignal,
): Promise<Generation> {
  return node.generate({
    model: MODEL, ids, maxTokens: output, logprobs: -1, ignoreEnd: true, ...client === undefined ? {} : { client },
    sampling: {
      temperature: sampling?.temperature ?? 0, topP: sampling?.top_p ?? 1, topK: sampling?.top_k ?? 0, minP: 0,
      presencePenalty: 0, frequencyPenalty: 0, seed: BigInt(sampling?.seed ?? 1), logitBias: [],
    },
  }, { signal });
}

/** To its end, or until `goOn` says no. */
async function read(generation: Generation, goOn: (session: Session) => boolean = () => true): Promise<Session> {
  const session: Session = { ids: [], times: [], paths: generation.route.stages.map(({ path }) => path), stages: [] };
  for await (const { ids, times = [] } of generation) {
    const now = performance.now();
    if (session.ids.length > 0 && ids.length > 0) {
      session.stages.push(times);
    }
    session.ids.push(...ids);
    session.times.push(...ids.map(() => now));
    if (!goOn(session)) {
      break;
    }
  }
  return session;
}

function pathsOf(sessions: readonly Session[]): string[] {
  return [...new Set(sessions.map(({ paths }) => paths.join(' ')))];
}

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
