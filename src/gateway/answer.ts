import { MeshnetError } from '../errors.ts';
import type { AbortOptions, TextService, TokenEvent } from './backend.ts';
import { StopMatcher } from './stop-matcher.ts';
import { Utf8Assembler } from './utf8-assembler.ts';

/** A token with its bytes, and the alternatives that the model saw. */
export interface TokenDetail {
  readonly bytes: Uint8Array;
  readonly logprob: number;
  readonly top: readonly { readonly bytes: Uint8Array; readonly logprob: number }[];
}

/** A piece of the answer. `tokens` are those whose text is now out; only when log probabilities were asked for. */
export interface AnswerPart {
  readonly text: string;
  readonly tokens: readonly TokenDetail[];
}

export interface AnswerEnd {
  readonly finish: 'stop' | 'length';
  /** Every token that was computed up to the end, the end token and those of a stop string included. */
  readonly completionTokens: number;
}

export interface AnswerInit {
  readonly vocabulary: Pick<TextService, 'pieces' | 'endIds'>;
  readonly stop: readonly string[];
}

/**
 * The text of a generation: whole code points, without stop string and end token, and nothing held back longer than a
 * stop string is possible. Returning early, or leaving it, ends the generation.
 */
export async function* answer(
  generation: AsyncIterable<TokenEvent>,
  { vocabulary, stop }: AnswerInit,
  options: AbortOptions,
): AsyncGenerator<AnswerPart, AnswerEnd> {
  const matcher = new StopMatcher(stop);
  const assembler = new Utf8Assembler();
  /** Tokens whose bytes are not all out yet, with the offset of their first and behind their last byte. */
  const waiting: { detail: TokenDetail; start: number; end: number }[] = [];
  let produced = 0;
  let released = 0;
  let completionTokens = 0;

  const tokensOut = (cut = false): TokenDetail[] => {
    // At a cut, the token that the stop string begins in the middle of has given what it will ever give.
    const keep = waiting.findIndex(({ start, end }) => end > released && (!cut || start >= released));
    return waiting.splice(0, keep < 0 ? waiting.length : keep).map(({ detail }) => detail);
  };

  for await (const event of generation) {
    const bytes = await vocabulary.pieces(event.ids, options);
    let text = '';
    for (const [i, id] of event.ids.entries()) {
      completionTokens++;
      if (event.finish === 'end' && i === event.ids.length - 1 && vocabulary.endIds.has(id)) {
        break;
      }
      const piece = bytes[i] as Uint8Array;
      const detail = event.logprobs === undefined ? undefined : await detailOf(piece, event.logprobs[i], vocabulary, options);
      if (detail !== undefined) {
        waiting.push({ detail, start: produced, end: produced + piece.length });
      }
      produced += piece.length;
      const step = matcher.push(piece);
      released += step.bytes.length;
      text += assembler.push(step.bytes);
      if (step.stopped) {
        yield { text: text + assembler.flush(), tokens: tokensOut(true) };
        return { finish: 'stop', completionTokens };
      }
    }
    if (event.finish === 'cancelled') {
      throw new MeshnetError('CANCELLED', 'the answer was cancelled on its route');
    }
    if (event.finish !== undefined) {
      const rest = matcher.flush();
      released += rest.length;
      yield { text: text + assembler.push(rest) + assembler.flush(), tokens: tokensOut() };
      return { finish: event.finish === 'end' ? 'stop' : 'length', completionTokens };
    }
    const tokens = tokensOut();
    if (text !== '' || tokens.length > 0) {
      yield { text, tokens };
    }
  }
  throw new MeshnetError('STREAM_ENDED', 'the answer ended without a reason');
}

async function detailOf(
  bytes: Uint8Array,
  logprobs: NonNullable<TokenEvent['logprobs']>[number] | undefined,
  vocabulary: Pick<TextService, 'pieces'>,
  options: AbortOptions,
): Promise<TokenDetail | undefined> {
  if (logprobs === undefined) {
    return undefined;
  }
  const top = await vocabulary.pieces(logprobs.topIds, options);
  return {
    bytes,
    logprob: logprobs.logprob,
    top: top.map((piece, i) => ({ bytes: piece, logprob: logprobs.topLogprobs[i] ?? Number.NEGATIVE_INFINITY })),
  };
}
