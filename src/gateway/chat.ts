import { randomBytes } from 'node:crypto';
import { MeshnetError, toMeshnetError } from '../errors.ts';
import { answer, type AnswerEnd, type AnswerPart, type TokenDetail } from './answer.ts';
import type { AbortOptions, Backend, Generation, ModelCard, TextService } from './backend.ts';
import type { ChatRequest } from './chat-request.ts';
import { chunkOf, completionOf, logprobsOf, usageChunkOf, usageOf, type AnswerHead, type Completion, type Usage } from './chat-shapes.ts';
import { eachWithin, within } from './deadline.ts';
import type { EventStream } from './event-stream.ts';
import type { GatewaySettings } from './gateway-init.ts';
import { httpErrorOf } from './http-error.ts';
import { findModel } from './model-list.ts';
import { PieceTable } from './piece-table.ts';

/** A chat whose route is open: nothing but the answer is missing. */
export interface OpenChat {
  readonly generation: Generation;
  readonly head: AnswerHead;
  readonly promptTokens: number;
  readonly parts: AsyncGenerator<AnswerPart, AnswerEnd>;
}

export interface ChatSummary {
  promptTokens: number;
  completionTokens: number;
  finish: AnswerEnd['finish'];
}

/** Chat completions on a backend, without HTTP. */
export class Chats {
  readonly #backend: Backend;
  readonly #settings: GatewaySettings;
  /** A text service that is made anew after a crash brings a new table. */
  readonly #pieces = new WeakMap<TextService, PieceTable>();

  constructor(backend: Backend, settings: GatewaySettings) {
    this.#backend = backend;
    this.#settings = settings;
  }

  /**
   * Everything that can be refused is refused here, before a client has seen a header. What comes back holds a session
   * on every stage until its parts are at their end or the signal is aborted.
   */
  async open(request: ChatRequest, options: AbortOptions): Promise<OpenChat> {
    const card = findModel(this.#backend.models(), request.model);
    const { textMs, admitMs, idleMs } = this.#settings;
    const text = await within(textMs, 'the text process', (inner) => this.#backend.text(card.id, inner), options);
    const { ids } = await within(textMs, 'the chat template', (inner) => {
      return text.render({ messages: request.messages, addGenerationPrompt: true }, inner);
    }, options);
    const maxTokens = this.#maxTokens(request, ids.length, card);
    const schema = request.answerSchema;
    const grammar = schema === undefined ? undefined : await within(textMs, 'the grammar', (inner) => {
      return text.grammarFromSchema(schema, inner);
    }, options);
    // The signal of the answer outlives the limit, and too late an answer is cancelled by the limit.
    const generation = await within(admitMs, 'admission', (inner) => this.#backend.generate({
      model: card.id,
      ids,
      maxTokens,
      sampling: request.sampling,
      logprobs: request.logprobs,
      ...(grammar === undefined ? {} : { grammar }),
    }, { signal: AbortSignal.any([options.signal, inner.signal]) }), options);
    const events = eachWithin(idleMs, 'the next token', generation, options);
    return {
      generation,
      head: {
        id: `chatcmpl-${randomBytes(12).toString('hex')}`,
        created: Math.floor(Date.now() / 1000),
        model: card.id,
        systemFingerprint: `fp_${card.digest.slice(0, 16)}`,
      },
      promptTokens: ids.length,
      parts: answer(events, { pieces: this.#piecesOf(text), endIds: text.endIds, stop: request.stop }, options),
    };
  }

  /** The whole answer at once. */
  async complete(chat: OpenChat, request: ChatRequest): Promise<{ completion: Completion; summary: ChatSummary }> {
    let content = '';
    const tokens: TokenDetail[] = [];
    const end = await forEach(chat.parts, async (part) => {
      content += part.text;
      tokens.push(...part.tokens);
    });
    const logprobs = request.logprobs >= 0 ? { logprobs: logprobsOf(tokens) } : {};
    const completion = completionOf(chat.head, { content, finish: end.finish, ...logprobs }, usageIn(chat, end));
    return { completion, summary: { promptTokens: chat.promptTokens, ...end } };
  }

  /**
   * The answer as events. What fails now can only be told in the stream: as an error object, and without the `[DONE]`
   * that would make it look whole. Throws it again for the log.
   */
  async stream(chat: OpenChat, request: ChatRequest, events: EventStream): Promise<ChatSummary> {
    const { head } = chat;
    const withUsage = request.includeUsage;
    try {
      await events.send(chunkOf(head, { delta: { role: 'assistant', content: '' } }, withUsage));
      const end = await forEach(chat.parts, async ({ text, tokens }) => {
        if (text !== '' || tokens.length > 0) {
          const logprobs = request.logprobs >= 0 ? { logprobs: logprobsOf(tokens) } : {};
          await events.send(chunkOf(head, { delta: { content: text }, ...logprobs }, withUsage));
        }
      });
      await events.send(chunkOf(head, { delta: {}, finish: end.finish }, withUsage));
      if (withUsage) {
        await events.send(usageChunkOf(head, usageIn(chat, end)));
      }
      await events.send('[DONE]');
      events.end();
      return { promptTokens: chat.promptTokens, ...end };
    } catch (err) {
      await tell(events, err);
      throw err;
    }
  }

  #maxTokens(request: ChatRequest, promptTokens: number, card: ModelCard): number {
    const room = card.contextLength - promptTokens;
    if (room < 1 || (request.maxTokens ?? 0) > room) {
      throw new MeshnetError('CONTEXT_LENGTH_EXCEEDED', undefined, {
        details: { contextLength: card.contextLength, promptTokens, maxTokens: request.maxTokens },
      });
    }
    return request.maxTokens ?? Math.min(room, this.#settings.defaultMaxTokens);
  }

  #piecesOf(text: TextService): PieceTable {
    let pieces = this.#pieces.get(text);
    if (pieces === undefined) {
      pieces = new PieceTable(text);
      this.#pieces.set(text, pieces);
    }
    return pieces;
  }
}

async function tell(events: EventStream, err: unknown): Promise<void> {
  try {
    await events.send(httpErrorOf(err).body);
    events.end();
  } catch {
    // Nobody listens any more.
    events.destroy();
  }
}

function usageIn(chat: OpenChat, end: AnswerEnd): Usage {
  return usageOf(chat.promptTokens, end.completionTokens, chat.generation.cachedTokens);
}

/** `for await` that also gives what the generator returned, and leaves it when `use` throws. */
async function forEach(parts: AsyncGenerator<AnswerPart, AnswerEnd>, use: (part: AnswerPart) => Promise<void>): Promise<AnswerEnd> {
  try {
    while (true) {
      const next = await parts.next();
      if (next.done === true) {
        return next.value;
      }
      await use(next.value);
    }
  } catch (err) {
    await parts.return({ finish: 'stop', completionTokens: 0 }).catch(() => undefined);
    throw toMeshnetError(err);
  }
}
