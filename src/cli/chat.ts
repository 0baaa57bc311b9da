import { createInterface } from 'node:readline';
import type { CommandModule } from 'yargs';
import { loadConfig } from '../config.ts';
import type { RouteSummary } from '../domain/route.ts';
import { MeshnetError } from '../errors.ts';
import { ApiClient, type ChatRequest } from './api-client.ts';
import { assertCount, interruptSignal, printError, printJson, printText } from './output.ts';
import { formatRoute } from './route-text.ts';
import { apiOf } from './runtime-file.ts';

interface ChatArguments {
  model?: string;
  prompt?: string;
  api?: string;
  'data-dir'?: string;
  'max-tokens'?: number;
  temperature?: number;
  json?: boolean;
}

/** One answer, as `--json` prints it. */
export interface Answer {
  text: string;
  completion_tokens: number;
  ttft_ms: number;
  tokens_per_second: number;
  model: string;
  finish: string;
  route: RouteSummary | undefined;
}

export const chatCommand: CommandModule<object, ChatArguments> = {
  command: 'chat [model]',
  describe: 'Talk to a model through the local node',
  builder: (yargs) => yargs
    .positional('model', { type: 'string', describe: 'Name of the model; the first that the node offers when left out' })
    .option('prompt', { alias: 'p', type: 'string', describe: 'Ask once and exit; without it, a conversation' })
    .option('api', { type: 'string', describe: 'Base URL of the node, for example http://127.0.0.1:7070' })
    .option('data-dir', { type: 'string', describe: 'Data directory of the node, when it is not the usual one' })
    .option('max-tokens', { type: 'number', describe: 'Longest answer, tokens' })
    .option('temperature', { type: 'number', describe: '0 always takes the likeliest token' })
    .option('json', { type: 'boolean', describe: 'One line of JSON per answer: text, tokens, times, route' }),
  handler: async (argv) => {
    assertCount('max-tokens', argv['max-tokens']);
    const signal = interruptSignal();
    const config = loadConfig({ dataDir: argv['data-dir'] });
    const client = new ApiClient(apiOf(argv.api, config.dataDir), config.api.key);
    const model = argv.model ?? await firstModel(client, signal);
    const request = { model, maxTokens: argv['max-tokens'], temperature: argv.temperature };
    const output = { json: argv.json === true, signal };
    if (argv.prompt === undefined) {
      await converse(client, request, output);
    } else {
      await say(client, { ...request, messages: [{ role: 'user', content: argv.prompt }] }, output);
    }
  },
};

interface Output {
  readonly json: boolean;
  readonly signal: AbortSignal;
}

async function firstModel(client: ApiClient, signal: AbortSignal): Promise<string> {
  const { data } = await client.get<{ data: { id: string }[] }>('/v1/models', signal);
  const id = data[0]?.id;
  if (id === undefined) {
    throw new MeshnetError('MODEL_UNKNOWN', 'the node offers no model: it was started without --model and --use');
  }
  return id;
}

/** Until an empty line, the end of the input or Ctrl-C. */
async function converse(client: ApiClient, request: Omit<ChatRequest, 'messages'>, output: Output): Promise<void> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr, prompt: '> ' });
  // In raw mode Ctrl-C is a character and no signal.
  terminal.on('SIGINT', () => { process.kill(process.pid, 'SIGINT'); });
  output.signal.addEventListener('abort', () => { terminal.close(); }, { once: true });
  let ended = false;
  terminal.once('close', () => { ended = true; });
  const messages: { role: string; content: string }[] = [];
  terminal.prompt();
  for await (const content of terminal) {
    if (content === '') {
      break;
    }
    messages.push({ role: 'user', content });
    try {
      const { text } = await say(client, { ...request, messages }, output);
      messages.push({ role: 'assistant', content: text });
    } catch (err) {
      // Somebody sits there and may ask again; a script has to hear of it.
      if (output.signal.aborted || !process.stdin.isTTY) {
        throw err;
      }
      messages.pop();
      printError(err, output.json);
    }
    // A script has written everything, and its last lines are still to be answered.
    if (!ended) {
      terminal.prompt();
    }
  }
}

async function say(client: ApiClient, request: ChatRequest, { json, signal }: Output): Promise<Answer> {
  const answer = await ask(client, request, json ? () => undefined : printText, signal);
  if (json) {
    printJson(answer);
  } else {
    process.stdout.write('\n');
    process.stderr.write(`${formatRoute(answer.route)}\n${formatSpeed(answer)}\n`);
  }
  return answer;
}

/** Time to the first token, speed, tokens. */
export function formatSpeed({ completion_tokens, ttft_ms, tokens_per_second }: Answer): string {
  return `first token after ${ttft_ms} ms · ${tokens_per_second} tokens/s · ${completion_tokens} tokens`;
}

/** Streams one answer to `onText` and measures it. */
export async function ask(
  client: ApiClient, request: ChatRequest, onText: (text: string) => void, signal: AbortSignal,
): Promise<Answer> {
  const began = performance.now();
  const answer: Answer = {
    text: '', completion_tokens: 0, ttft_ms: 0, tokens_per_second: 0, model: request.model, finish: '', route: undefined,
  };
  let first: number | undefined;
  let last = began;
  for await (const delta of client.chat(request, (route) => { answer.route = route; }, signal)) {
    if (delta.text !== '') {
      last = performance.now();
      first ??= last;
      answer.text += delta.text;
      onText(delta.text);
    }
    answer.finish = delta.finish ?? answer.finish;
    answer.completion_tokens = delta.completionTokens ?? answer.completion_tokens;
  }
  const decodeMs = last - (first ?? last);
  answer.ttft_ms = Math.round((first ?? last) - began);
  answer.tokens_per_second = decodeMs > 0 ? Math.round((answer.completion_tokens - 1) / decodeMs * 10_000) / 10 : 0;
  return answer;
}
