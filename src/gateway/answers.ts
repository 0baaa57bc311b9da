import { randomBytes } from 'node:crypto';
import { isMeshnetError, MeshnetError, toMeshnetError } from '../errors.ts';
import { AnswerBuffer } from './answer-buffer.ts';
import { answer, type AnswerEnd, type AnswerPart, type TokenDetail } from './answer.ts';
import type { AnswerMeter } from './answer-meter.ts';
import type { AnswerRequest, Prompt } from './answer-request.ts';
import { usageOf, type AnswerApi, type AnswerShape, type Usage } from './answer-shape.ts';
import type { AbortOptions, Backend, Generation, GenerationRequest, ModelCard, TextService } from './backend.ts';
import { eachWithin, within } from './deadline.ts';
import type { EventStream } from './event-stream.ts';
import type { GatewaySettings } from './gateway-init.ts';
import { httpErrorOf } from './http-error.ts';
import { findModel } from './model-list.ts';
import type { WaitingRoom } from './waiting-room.ts';

/** Parts of an answer that a reader who was behind gets in one event. */
const UNITED_PARTS = 16;

/** An answer whose route is open: nothing but the answer is missing. */
export interface OpenAnswer {
  readonly generation: Generation;
  readonly promptTokens: number;
  /** That the answer has at most. */
  readonly maxTokens: number;
  readonly shape: AnswerShape;
  readonly parts: AsyncGenerator<AnswerPart, AnswerEnd>;
  /** Asked for at once: a generation that nobody has begun to read cannot be left either. */
  readonly first: Promise<IteratorResult<AnswerPart, AnswerEnd>>;
}

export interface AnswerSummary {
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly finish: AnswerEnd['finish'];
}

export interface AnswersComponents {
  readonly backend: Backend;
  /** Where requests wait whose route has no room. */
  readonly room: WaitingRoom;
}

/** Answers of a backend in the objects of an API, without HTTP. */
export class Answers {
  readonly #backend: Backend;
  readonly #room: WaitingRoom;
  readonly #settings: GatewaySettings;

  constructor({ backend, room }: AnswersComponents, settings: GatewaySettings) {
    this.#backend = backend;
    this.#room = room;
    this.#settings = settings;
  }

  /**
   * Everything that can be refused is refused here, before a client has seen a header; who finds no room waits for it here,
   * as long as the settings allow. What comes back holds a session on every stage until its parts are at their end or the
   * signal is aborted. `client`: whom the request counts for.
   */
  async open(
    api: AnswerApi, request: AnswerRequest, { client, signal, meter }: AbortOptions & { client: string; meter: AnswerMeter },
  ): Promise<OpenAnswer> {
    const options = { signal };
    findModel(this.#backend.models(), request.model);
    const { textMs, admitMs, idleMs } = this.#settings;
    const text = await within(admitMs, 'opening the model', (inner) => this.#backend.text(request.model, inner), options);
    // Only now all of it is known.
    const card = findModel(this.#backend.models(), request.model);
    const ids = await within(textMs, 'reading the prompt', (inner) => idsOf(request.prompt, text, inner), options);
    const maxTokens = this.#maxTokens(request, ids.length, card);
    const biased = request.sampling.logitBias.map(({ token }) => token);
    await within(textMs, 'checking tokens', (inner) => checkIds(biased, 'logit_bias', text, inner), options);
    const schema = request.answerSchema;
    const grammar = schema === undefined ? undefined : await within(textMs, 'the grammar', (inner) => {
      return text.grammarFromSchema(schema, inner);
    }, options);
    const wanted: GenerationRequest = {
      model: card.id,
      ids,
      maxTokens,
      sampling: request.sampling,
      logprobs: request.logprobs,
      client,
      ...(grammar === undefined ? {} : { grammar }),
    };
    const wish = { client, line: card.id, positions: ids.length + maxTokens };
    // The signal of the answer outlives the limit, and too late an answer is cancelled by the limit.
    const generation = await this.#room.enter(wish, (attempt) => within(admitMs, 'admission', (inner) => {
      return this.#generate(wanted, { signal: AbortSignal.any([attempt.signal, inner.signal]) });
    }, attempt), options);
    const events = eachWithin(idleMs, 'the next token', meter.watch(generation), options);
    const head = {
      id: api.idPrefix + randomBytes(12).toString('hex'),
      created: Math.floor(Date.now() / 1000),
      model: card.id,
      systemFingerprint: `fp_${card.digest.slice(0, 16)}`,
    };
    const parts = answer(events, { vocabulary: text, stop: request.stop }, options);
    const first = parts.next();
    // Whoever reads the answer gets it; until then nobody else has to.
    first.catch(() => undefined);
    const shape = api.shape({ head, logprobs: request.logprobs >= 0, usageChunk: request.stream && request.includeUsage });
    return { generation, promptTokens: ids.length, maxTokens, shape, parts, first };
  }

  /** The whole answer at once. */
  async complete(open: OpenAnswer): Promise<{ body: object; summary: AnswerSummary }> {
    let text = '';
    const tokens: TokenDetail[] = [];
    const end = await forEach(open, async (part) => {
      text += part.text;
      tokens.push(...part.tokens);
    });
    return { body: open.shape.whole({ text, tokens }, end.finish, usageIn(open, end)), summary: { promptTokens: open.promptTokens, ...end } };
  }

  /**
   * The answer as events. The reader never holds up the mesh: what it has not taken yet waits here, which is as much as the
   * answer has tokens. What fails now can only be told in the stream: as an error object, and without the `[DONE]` that
   * would make it look whole. Throws it again for the log.
   */
  async stream(open: OpenAnswer, request: AnswerRequest, events: EventStream): Promise<AnswerSummary> {
    const { shape } = open;
    // One part a token, and one for what the finish lets go.
    const buffer = new AnswerBuffer(open.maxTokens + 1);
    const filled = fill(buffer, open, events);
    filled.catch(() => undefined);
    try {
      const opening = shape.opening();
      let behind = opening !== undefined && await events.send(opening);
      for (;;) {
        const part = await buffer.take(behind ? UNITED_PARTS : 1);
        if (part === undefined) {
          break;
        }
        behind = await events.send(shape.part(part));
      }
      const end = await filled;
      await events.send(shape.ending(end.finish));
      if (request.includeUsage) {
        await events.send(shape.usageChunk(usageIn(open, end)));
      }
      await events.send('[DONE]');
      events.end();
      return { promptTokens: open.promptTokens, ...end };
    } catch (err) {
      leave(open.parts);
      await tell(events, err);
      throw err;
    }
  }

  /** A route that opens although nobody waits for it any more is given back. */
  async #generate(request: GenerationRequest, options: AbortOptions): Promise<Generation> {
    const generation = await this.#backend.generate(request, options);
    if (options.signal.aborted) {
      const iterator = generation[Symbol.asyncIterator]();
      iterator.next().catch(() => undefined);
      iterator.return?.().catch(() => undefined);
    }
    return generation;
  }

  #maxTokens(request: AnswerRequest, promptTokens: number, card: ModelCard): number {
    const room = card.contextLength - promptTokens;
    if (room < 1 || (request.maxTokens ?? 0) > room) {
      throw new MeshnetError('CONTEXT_LENGTH_EXCEEDED', undefined, {
        details: { contextLength: card.contextLength, promptTokens, maxTokens: request.maxTokens },
      });
    }
    return request.maxTokens ?? Math.min(room, this.#settings.defaultMaxTokens);
  }
}

async function idsOf(prompt: Prompt, text: TextService, options: AbortOptions): Promise<readonly number[]> {
  if ('ids' in prompt) {
    await checkIds(prompt.ids, 'prompt', text, options);
    return prompt.ids;
  }
  if ('text' in prompt) {
    return await text.tokenize(prompt.text, options);
  }
  return (await text.render({ messages: prompt.messages, addGenerationPrompt: true }, options)).ids;
}

/** Throws REQUEST_INVALID for an id outside the vocabulary, which the text process knows. */
async function checkIds(ids: readonly number[], param: string, text: TextService, options: AbortOptions): Promise<void> {
  if (ids.length === 0) {
    return;
  }
  try {
    await text.pieces(ids, options);
  } catch (err) {
    throw isMeshnetError(err, 'TOKEN_INVALID')
      ? new MeshnetError('REQUEST_INVALID', err.message, { cause: err, details: { ...err.details, param } })
      : err;
  }
}

async function tell(events: EventStream, err: unknown): Promise<void> {
  try {
    await events.send(httpErrorOf(err).body);
    events.end();
  } catch (gone) {
    // Nobody listens any more.
    events.cut(toMeshnetError(gone));
  }
}

function usageIn(open: OpenAnswer, end: AnswerEnd): Usage {
  return usageOf(open.promptTokens, end.completionTokens, open.generation.cachedTokens);
}

/** As fast as the parts come. */
async function fill(buffer: AnswerBuffer, open: OpenAnswer, events: EventStream): Promise<AnswerEnd> {
  try {
    const end = await forEach(open, async (part) => {
      if (part.text !== '' || part.tokens.length > 0) {
        buffer.push(part);
      }
    });
    buffer.end();
    return end;
  } catch (err) {
    buffer.fail(err);
    if (isMeshnetError(err, 'READER_TOO_SLOW')) {
      events.cut(err);
    }
    throw err;
  }
}

/** `for await` that also gives what the generator returned, and leaves it when `use` throws. */
async function forEach({ first, parts }: OpenAnswer, use: (part: AnswerPart) => Promise<void>): Promise<AnswerEnd> {
  try {
    let next = await first;
    while (next.done !== true) {
      await use(next.value);
      next = await parts.next();
    }
    return next.value;
  } catch (err) {
    leave(parts);
    throw toMeshnetError(err);
  }
}

/** Does not wait: a generator that is waiting itself leaves when its signal ends. */
function leave(parts: AsyncGenerator<AnswerPart, AnswerEnd>): void {
  parts.return({ finish: 'stop', completionTokens: 0 }).catch(() => undefined);
}
