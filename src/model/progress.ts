import type { FetchNotice } from './source.ts';

const PHASES = ['plan', 'download', 'verify'] as const;
export type Phase = typeof PHASES[number];

/** Something that is worth a line while no bytes move. */
export type Notice = FetchNotice | { readonly kind: 'waiting' };

export interface ProgressEvent {
  readonly phase: Phase;
  /** Bytes over all phases; never less than in the event before. */
  readonly done: number;
  /** Of all phases; null until it is known, and never changed then. */
  readonly total: number | null;
  /** Bytes a second, over the last seconds of this phase. */
  readonly rate: number | null;
  /** Seconds to the end of all phases. */
  readonly eta: number | null;
  readonly notice?: Notice;
}

const WINDOW_MS = 5000;
const SAMPLE_MS = 100;

/** One total over the phases of getting a model: it only grows, whatever a source does underneath. */
export class Progress {
  readonly #onEvent: (event: ProgressEvent) => void;
  readonly #now: () => number;
  /** Share of each phase in the total. */
  readonly #weights = new Map<Phase, number>([['plan', 0]]);
  #samples: { at: number; done: number }[] = [];
  #phase: Phase = 'plan';
  #done = 0;
  #total: number | null = null;

  /** `now` is a monotone clock in milliseconds. */
  constructor(onEvent: (event: ProgressEvent) => void, now: () => number = () => performance.now()) {
    this.#onEvent = onEvent;
    this.#now = now;
  }

  /** What lies ahead, in bytes; undefined where a source has to say it first. Only the first complete plan counts. */
  plan(expected: { download: number | undefined; verify: number | undefined }): void {
    if (this.#total !== null) {
      return;
    }
    for (const phase of ['download', 'verify'] as const) {
      const bytes = expected[phase];
      if (bytes !== undefined) {
        this.#weights.set(phase, bytes);
      }
    }
    this.#settleTotal();
    this.#emit();
  }

  /** `done` of `total` bytes of this phase. */
  advance(phase: Phase, done: number, total: number | undefined): void {
    if (phase !== this.#phase) {
      this.#phase = phase;
      this.#samples = [];
    }
    if (total !== undefined && !this.#weights.has(phase)) {
      this.#weights.set(phase, total);
      // What is downloaded is read once more.
      if (phase === 'download' && !this.#weights.has('verify')) {
        this.#weights.set('verify', total);
      }
    }
    this.#settleTotal();
    const weight = this.#weights.get(phase);
    const share = weight === undefined ? done : weight * Math.min(1, done / Math.max(1, total ?? weight));
    const before = PHASES.slice(0, PHASES.indexOf(phase)).reduce((sum, name) => sum + (this.#weights.get(name) ?? 0), 0);
    this.#done = Math.min(Math.max(this.#done, Math.round(before + share)), this.#total ?? Infinity);
    this.#sample();
    this.#emit();
  }

  notice(notice: Notice): void {
    this.#emit(notice);
  }

  /** Everything is here and checked: `bytes`, if nothing had to be moved. */
  finish(bytes: number): void {
    this.#phase = 'verify';
    this.#total ??= Math.max(bytes, this.#done);
    this.#done = this.#total;
    this.#emit();
  }

  #settleTotal(): void {
    const [download, verify] = [this.#weights.get('download'), this.#weights.get('verify')];
    if (this.#total === null && download !== undefined && verify !== undefined) {
      this.#total = Math.max(download + verify, this.#done);
    }
  }

  #sample(): void {
    const at = this.#now();
    const last = this.#samples.at(-1);
    if (last === undefined || at - last.at >= SAMPLE_MS) {
      this.#samples.push({ at, done: this.#done });
    }
    this.#samples = this.#samples.filter((sample) => at - sample.at <= WINDOW_MS);
  }

  #emit(notice?: Notice): void {
    const [first] = this.#samples;
    const elapsed = first === undefined ? 0 : this.#now() - first.at;
    const rate = first === undefined || elapsed < SAMPLE_MS ? null : Math.round((this.#done - first.done) / elapsed * 1000);
    const left = this.#total === null ? null : this.#total - this.#done;
    const eta = left === 0 ? 0 : left !== null && rate !== null && rate > 0 ? Math.ceil(left / rate) : null;
    this.#onEvent({
      phase: this.#phase, done: this.#done, total: this.#total, rate, eta, ...(notice === undefined ? {} : { notice }),
    });
  }
}
