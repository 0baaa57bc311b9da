/** The objects of `/v1/completions`, the older API that editors use. */
import type { AnswerEnd, AnswerPart } from './answer.ts';
import { finiteLogprob, tokenText, type AnswerApi, type AnswerShape, type AnswerShapeOptions, type Usage } from './answer-shape.ts';

interface Logprobs {
  tokens: string[];
  token_logprobs: number[];
  top_logprobs: Record<string, number>[];
  /** Of each token in the text of the whole answer, in characters. */
  text_offset: number[];
}

class CompletionShape implements AnswerShape {
  readonly #options: AnswerShapeOptions;
  /** Characters that earlier parts had. */
  #offset = 0;

  constructor(options: AnswerShapeOptions) {
    this.#options = options;
  }

  opening(): undefined {
    return undefined;
  }

  part(part: AnswerPart): object {
    return this.#chunk(part.text, this.#logprobs(part), null);
  }

  ending(finish: AnswerEnd['finish']): object {
    return this.#chunk('', null, finish);
  }

  usageChunk(usage: Usage): object {
    return { ...this.#head(), choices: [], usage };
  }

  whole(answer: AnswerPart, finish: AnswerEnd['finish'], usage: Usage): object {
    return {
      ...this.#head(),
      choices: [{ text: answer.text, index: 0, logprobs: this.#logprobs(answer), finish_reason: finish }],
      usage,
    };
  }

  #chunk(text: string, logprobs: Logprobs | null, finish: AnswerEnd['finish'] | null): object {
    return {
      ...this.#head(),
      choices: [{ text, index: 0, logprobs, finish_reason: finish }],
      ...(this.#options.usageChunk ? { usage: null } : {}),
    };
  }

  #head(): object {
    const { id, created, model, systemFingerprint } = this.#options.head;
    return { id, object: 'text_completion', created, model, system_fingerprint: systemFingerprint };
  }

  #logprobs({ tokens }: AnswerPart): Logprobs | null {
    if (!this.#options.logprobs) {
      return null;
    }
    const out: Logprobs = { tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] };
    for (const { bytes, logprob, top } of tokens) {
      const text = tokenText(bytes);
      out.tokens.push(text);
      out.token_logprobs.push(finiteLogprob(logprob));
      out.top_logprobs.push(Object.fromEntries(top.map((other) => [tokenText(other.bytes), finiteLogprob(other.logprob)])));
      out.text_offset.push(this.#offset);
      this.#offset += text.length;
    }
    return out;
  }
}

export const completionApi: AnswerApi = { idPrefix: 'cmpl-', shape: (options) => new CompletionShape(options) };
