import { EventEmitter, once } from 'node:events';
import type { GatewayMetrics, RequestEnd, StepParts } from '../../src/gateway/observer.ts';

/** Keeps what it is told, and throws at what cannot be. */
export class RecordingMetrics implements GatewayMetrics {
  readonly ends: RequestEnd[] = [];
  readonly firsts: number[] = [];
  readonly more: { count: number; ms: number }[] = [];
  readonly steps: StepParts[] = [];
  /** Of each answer with a first token. */
  readonly cached: number[] = [];
  waiting = 0;
  open = 0;
  readonly #events = new EventEmitter<{ ended: [] }>();

  requestBegan(): void {
    this.waiting++;
  }

  requestOpened(): void {
    this.waiting--;
    this.open++;
    this.#check();
  }

  requestEnded(end: RequestEnd): void {
    if (end.opened) {
      this.open--;
    } else {
      this.waiting--;
    }
    this.#check();
    if ((end.reason === undefined) !== ['answered', 'cancelled'].includes(end.outcome)) {
      throw new Error(`no reason fits ${end.outcome}: ${end.reason}`);
    }
    this.ends.push(end);
    this.#events.emit('ended');
  }

  firstToken(ms: number): void {
    this.firsts.push(ms);
  }

  moreTokens(count: number, ms: number): void {
    this.more.push({ count, ms });
  }

  promptCached(tokens: number): void {
    this.cached.push(tokens);
  }

  step(parts: StepParts): void {
    this.steps.push(parts);
  }

  async exposition(): Promise<{ contentType: string; text: string }> {
    return { contentType: 'text/plain; version=0.0.4; charset=utf-8', text: `ended ${this.ends.length}\n` };
  }

  async summary(): Promise<object> {
    return { ended: this.ends.length };
  }

  /** Resolves when so many requests have ended. */
  async ended(count: number): Promise<void> {
    while (this.ends.length < count) {
      await once(this.#events, 'ended', { signal: AbortSignal.timeout(10_000) });
    }
  }

  #check(): void {
    if (this.waiting < 0 || this.open < 0) {
      throw new Error('what has not begun has ended');
    }
  }
}
