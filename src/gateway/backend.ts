/**
 * What the gateway needs of the rest of the node. The composition root implements it from the text process and the
 * routes; the gateway knows neither.
 */
import type { RouteSummary } from '../domain/route.ts';

export interface AbortOptions {
  signal: AbortSignal;
}

/** A model that this gateway can name. */
export interface ModelCard {
  /** The name that clients use. */
  id: string;
  /** Unix seconds. */
  created: number;
  /** Positions that one session may use here: prompt and answer together. */
  contextLength: number;
  /** Model digest, hexadecimal. */
  digest: string;
  nLayer: number;
  /** Whether the providers known now cover every layer. */
  coverage: 'complete' | 'incomplete' | 'unknown';
}

export interface RenderInput {
  /** OpenAI chat messages, already checked. */
  messages: readonly unknown[];
  /** OpenAI tools; none when left out. */
  tools?: readonly unknown[];
  addGenerationPrompt: boolean;
}

export interface Rendered {
  prompt: string;
  ids: number[];
}

/** The text process of one model. Throws TURN_INVALID, GRAMMAR_INVALID, LIMIT_EXCEEDED, TEXT_FAILED, WORKER_LOST. */
export interface TextService {
  /** Messages to prompt by the chat template of the model. */
  render(input: RenderInput, options: AbortOptions): Promise<Rendered>;
  /** Plain text to ids, with the special tokens that the vocabulary puts around a text. */
  tokenize(text: string, options: AbortOptions): Promise<number[]>;
  /**
   * The bytes of each id, in the order of `ids`; concatenated they are the text, and one alone may hold part of a
   * code point. The bytes of control tokens only with `special`, otherwise they are empty.
   */
  pieces(ids: readonly number[], options: AbortOptions & { special?: boolean }): Promise<Uint8Array[]>;
  /** GBNF that admits exactly what the JSON schema (or `{}`: any JSON) allows. */
  grammarFromSchema(schemaJson: string, options: AbortOptions): Promise<string>;
  /** Ids that end a generation. */
  readonly endIds: ReadonlySet<number>;
}

export interface Sampling {
  /** 0 is greedy. */
  temperature: number;
  /** 1 is off. */
  topP: number;
  /** 0 is off. */
  topK: number;
  /** 0 is off. */
  minP: number;
  presencePenalty: number;
  frequencyPenalty: number;
  /** Unsigned 64 bits. */
  seed: bigint;
  logitBias: { token: number; bias: number }[];
}

export interface GenerationRequest {
  /** `ModelCard.id`. */
  model: string;
  ids: readonly number[];
  /** At least 1. The prompt and this many tokens fit `ModelCard.contextLength`. */
  maxTokens: number;
  sampling: Sampling;
  /** GBNF. */
  grammar?: string;
  /** Alternatives per token, 0 to 20; -1 for no logprobs at all. */
  logprobs: number;
  /** Whose next request may go on with the session of this one. Left out: nobody's. */
  client?: string;
  /** Go on after an end token. For benchmarks. */
  ignoreEnd?: boolean;
}

export interface TokenLogprobs {
  readonly logprob: number;
  /** Most likely first. */
  readonly topIds: readonly number[];
  readonly topLogprobs: readonly number[];
}

/** `end`: the last id of the event is the model's end token. */
export type FinishReason = 'end' | 'max_tokens' | 'context_full' | 'cancelled';

export interface TokenEvent {
  /** May be empty when only `finish` is told. */
  readonly ids: readonly number[];
  /** One entry an id, when the request asked for logprobs. */
  readonly logprobs?: readonly TokenLogprobs[];
  /** On the last event only. */
  readonly finish?: FinishReason;
  /** What the step cost at each stage, in their order and by their own clocks: told, not checked. */
  readonly times?: readonly { readonly queueUs: number; readonly computeUs: number; readonly serializeUs: number }[];
}

/**
 * One turn on an open route. It ends with an event that has `finish`, or it throws; an iteration that ends without
 * either is a bug of the implementation. Breaking out of it, or the signal of `generate`, cancels on every stage.
 * It is iterated once.
 */
export interface Generation extends AsyncIterable<TokenEvent> {
  readonly route: RouteSummary;
  /** Leading tokens of the prompt that every stage still held; final once there is an event. */
  readonly cachedTokens: number;
  /** Settles when the answer is over and every stage knows that it needs no room. Never rejects. */
  readonly closed: Promise<void>;
}

export interface Health {
  /** Whether this node does what it was started for: with a shard, that it serves. */
  ready: boolean;
  /** Facts for a person or a monitor: counts and states, no secrets. */
  details: Record<string, unknown>;
}

export interface Backend {
  models(): ModelCard[];
  /** Throws MODEL_UNKNOWN, NOT_SERVING. */
  text(model: string, options: AbortOptions): Promise<TextService>;
  /**
   * Resolves when every stage has admitted the session and the route is open, before the first token. Throws
   * NO_ROUTE, NO_CAPACITY, CONTEXT_FULL, MODEL_UNKNOWN, SEAM_UNREACHABLE, DEADLINE_EXCEEDED and what the stages say.
   * `details.retryAfterMs`, where there is one, becomes the `retry-after` header.
   */
  generate(request: GenerationRequest, options: AbortOptions): Promise<Generation>;
  health(): Health;
}
