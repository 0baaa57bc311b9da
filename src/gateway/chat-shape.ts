/** The objects of `/v1/chat/completions`, exactly as clients parse them. */
import type { AnswerEnd, AnswerPart, TokenDetail } from './answer.ts';
import { finiteLogprob, tokenText, type AnswerApi, type AnswerShape, type AnswerShapeOptions, type Usage } from './answer-shape.ts';

interface Logprob {
  token: string;
  logprob: number;
  bytes: number[];
}

interface Logprobs {
  content: (Logprob & { top_logprobs: Logprob[] })[];
  refusal: null;
}

class ChatShape implements AnswerShape {
  readonly #options: AnswerShapeOptions;

  constructor(options: AnswerShapeOptions) {
    this.#options = options;
  }

  opening(): object {
    return this.#chunk({ role: 'assistant', content: '' });
  }

  part(part: AnswerPart): object {
    return this.#chunk({ content: part.text }, this.#logprobs(part));
  }

  ending(finish: AnswerEnd['finish']): object {
    return this.#chunk({}, null, finish);
  }

  usageChunk(usage: Usage): object {
    return { ...this.#head('chat.completion.chunk'), choices: [], usage };
  }

  whole(answer: AnswerPart, finish: AnswerEnd['finish'], usage: Usage): object {
    const message = { role: 'assistant', content: answer.text, refusal: null };
    return {
      ...this.#head('chat.completion'),
      choices: [{ index: 0, message, logprobs: this.#logprobs(answer), finish_reason: finish }],
      usage,
    };
  }

  #chunk(delta: { role?: string; content?: string }, logprobs: Logprobs | null = null, finish: AnswerEnd['finish'] | null = null): object {
    return {
      ...this.#head('chat.completion.chunk'),
      choices: [{ index: 0, delta, logprobs, finish_reason: finish }],
      ...(this.#options.usageChunk ? { usage: null } : {}),
    };
  }

  #head(object: string): object {
    const { id, created, model, systemFingerprint } = this.#options.head;
    return { id, object, created, model, system_fingerprint: systemFingerprint };
  }

  #logprobs({ tokens }: AnswerPart): Logprobs | null {
    return this.#options.logprobs ? { content: tokens.map(logprobsOf), refusal: null } : null;
  }
}

function logprobsOf({ bytes, logprob, top }: TokenDetail): Logprobs['content'][number] {
  return {
    ...logprobOf(bytes, logprob),
    top_logprobs: top.map((other) => logprobOf(other.bytes, other.logprob)),
  };
}

function logprobOf(bytes: Uint8Array, logprob: number): Logprob {
  return { token: tokenText(bytes), logprob: finiteLogprob(logprob), bytes: [...bytes] };
}

export const chatApi: AnswerApi = { idPrefix: 'chatcmpl-', shape: (options) => new ChatShape(options) };
