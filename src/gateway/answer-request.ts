import type { Sampling } from './backend.ts';

/** What the model continues. */
export type Prompt =
  /** As a chat template reads them. */
  | { readonly messages: readonly Record<string, unknown>[] }
  | { readonly text: string }
  | { readonly ids: readonly number[] };

/** A request that has been understood: everything in it can be done, if the model and the mesh allow it. */
export interface AnswerRequest {
  readonly model: string;
  readonly prompt: Prompt;
  /** What the client named; undefined for as much as is usual. */
  readonly maxTokens: number | undefined;
  readonly sampling: Sampling;
  readonly stop: readonly string[];
  /** JSON schema that the answer has to keep; `{}` for any object. */
  readonly answerSchema: string | undefined;
  /** Alternatives per token; -1 for no logprobs. */
  readonly logprobs: number;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  /** Fields that this version does not know. */
  readonly unknownFields: readonly string[];
}
