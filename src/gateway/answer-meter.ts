import { toMeshnetError } from '../errors.ts';
import type { TokenEvent } from './backend.ts';
import type { GatewayObserver } from './observer.ts';

type StageTimes = NonNullable<TokenEvent['times']>;

/** What is watched of a generation. */
type Events = AsyncIterable<TokenEvent> & { readonly cachedTokens?: number };

/** Times one request, from its first line to its end, and tells an observer. */
export class AnswerMeter {
  readonly #observer: GatewayObserver;
  readonly #now: () => number;
  readonly #beganAt: number;
  #opened = false;
  #ended = false;
  /** At most 0: tokens that come in bunches leave less time than their stages say they took, so the next has more. */
  #owedMs = 0;

  /** `now`: monotonic, ms. The request begins here. */
  constructor(observer: GatewayObserver, now: () => number = () => performance.now()) {
    this.#observer = observer;
    this.#now = now;
    this.#beganAt = now();
    observer.requestBegan();
  }

  /** The events of an open route, as they are. */
  watch(events: Events): AsyncGenerator<TokenEvent> {
    this.#opened = true;
    this.#observer.requestOpened();
    return this.#timed(events);
  }

  /** In order, or with what was thrown. The first word counts. */
  ended(err?: unknown): void {
    if (this.#ended) {
      return;
    }
    this.#ended = true;
    const opened = this.#opened;
    if (err === undefined) {
      this.#observer.requestEnded({ outcome: 'answered', opened });
      return;
    }
    const { code } = toMeshnetError(err);
    if (code === 'CANCELLED') {
      this.#observer.requestEnded({ outcome: 'cancelled', opened });
    } else {
      this.#observer.requestEnded({ outcome: opened ? 'failed' : 'refused', reason: code, opened });
    }
  }

  async * #timed(events: Events): AsyncGenerator<TokenEvent> {
    let lastAt: number | undefined;
    for await (const event of events) {
      if (event.ids.length > 0) {
        const now = this.#now();
        if (lastAt === undefined) {
          this.#observer.firstToken(now - this.#beganAt);
          this.#observer.promptCached(events.cachedTokens ?? 0);
        } else {
          this.#observer.moreTokens(event.ids.length, now - lastAt);
          this.#split(event.times ?? [], { ms: now - lastAt, wholeMs: now - this.#beganAt });
        }
        lastAt = now;
      }
      yield event;
    }
  }

  #split(times: StageTimes, { ms, wholeMs }: { readonly ms: number; readonly wholeMs: number }): void {
    if (times.length === 0) {
      return;
    }
    // Stages say what they like, but no part of an answer took longer than the whole of it so far.
    const told = (us: number): number => Math.min(us / 1000, wholeMs);
    const stages = times.map(({ queueUs, computeUs, serializeUs }) => ({
      queueMs: told(queueUs), computeMs: told(computeUs), handoverMs: told(serializeUs),
    }));
    const claimedMs = stages.reduce((sum, stage) => sum + stage.queueMs + stage.computeMs + stage.handoverMs, 0);
    const leftMs = this.#owedMs + ms - claimedMs;
    this.#owedMs = Math.min(0, leftMs);
    this.#observer.step({ stages, networkMs: Math.max(0, leftMs) });
  }
}
