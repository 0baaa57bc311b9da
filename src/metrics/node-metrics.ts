import type { ErrorCode } from '../errors.ts';
import { OUTCOMES, type GatewayMetrics, type RequestEnd, type StepParts } from '../gateway/observer.ts';
import type { AdmissionObserver } from '../serve/admission.ts';
import type { ShardStatus } from '../serve/shard-status.ts';
import { reasonOf, RING } from './catalogue.ts';
import { Instruments, setCounter, type Labelled } from './instruments.ts';
import { quantilesMs, seamMs, sumBy, type ActivitySummary } from './summary.ts';

export interface NodeMetricsComponents {
  /** What this node serves, as its worker reported last; asked at each look. */
  readonly shard: () => ShardStatus | undefined;
  /** Sessions of its gateway that rest. @default none */
  readonly warm?: () => number;
}

/** The metrics of one node: told by its gateway and its admission, and read from its shard. */
export class NodeMetrics implements GatewayMetrics, AdmissionObserver {
  readonly #shard: NodeMetricsComponents['shard'];
  readonly #warm: () => number;
  readonly #instruments = new Instruments();
  readonly #requests = this.#instruments.counter('meshnet_requests_total');
  readonly #refusals = this.#instruments.counter('meshnet_refusals_total');
  readonly #failures = this.#instruments.counter('meshnet_failures_total');
  readonly #sessions = this.#instruments.gauge('meshnet_sessions_active');
  readonly #warmSessions = this.#instruments.gauge('meshnet_warm_sessions');
  readonly #cached = this.#instruments.counter('meshnet_cached_tokens_total');
  readonly #queues = this.#instruments.gauge('meshnet_queue_depth');
  readonly #firstToken = this.#instruments.histogram('meshnet_time_to_first_token_seconds');
  readonly #perToken = this.#instruments.histogram('meshnet_time_per_output_token_seconds');
  readonly #seam = this.#instruments.histogram('meshnet_seam_seconds');
  readonly #cellsUsed = this.#instruments.gauge('meshnet_kv_cells_used');
  readonly #cells = this.#instruments.gauge('meshnet_kv_cells_capacity');
  readonly #sequencesUsed = this.#instruments.gauge('meshnet_sequence_ids_used');
  readonly #sequences = this.#instruments.gauge('meshnet_sequence_ids_capacity');
  readonly #batch = this.#instruments.gauge('meshnet_batch_size');
  readonly #tick = this.#instruments.gauge('meshnet_tick_seconds');
  readonly #ticks = this.#instruments.counter('meshnet_ticks_total');
  readonly #positions = this.#instruments.counter('meshnet_positions_total');
  readonly #bytes = this.#instruments.counter('meshnet_seam_bytes_total');
  readonly #packets = this.#instruments.counter('meshnet_seam_packets_total');
  readonly #workerRefusals = this.#instruments.counter('meshnet_worker_refusals_total');
  /** Requests without a route, and with one. */
  #waiting = 0;
  #open = 0;

  constructor({ shard, warm = () => 0 }: NodeMetricsComponents) {
    this.#shard = shard;
    this.#warm = warm;
    // A series that is there from the start shows its first step too.
    for (const outcome of OUTCOMES) {
      this.#requests.inc({ outcome }, 0);
    }
  }

  requestBegan(): void {
    this.#waiting++;
  }

  requestOpened(): void {
    this.#waiting--;
    this.#open++;
  }

  requestEnded({ outcome, reason, opened }: RequestEnd): void {
    if (opened) {
      this.#open--;
    } else {
      this.#waiting--;
    }
    this.#requests.inc({ outcome });
    if (reason === undefined) {
      return;
    }
    if (opened) {
      this.#failures.inc({ reason: reasonOf(reason) });
    } else {
      this.#refusals.inc({ by: 'gateway', reason: reasonOf(reason) });
    }
  }

  sessionRefused(reason: ErrorCode): void {
    this.#refusals.inc({ by: 'admission', reason: reasonOf(reason) });
  }

  firstToken(ms: number): void {
    this.#firstToken.observe(ms / 1000);
  }

  moreTokens(count: number, ms: number): void {
    for (let i = 0; i < count; i++) {
      this.#perToken.observe(ms / count / 1000);
    }
  }

  promptCached(tokens: number): void {
    this.#cached.inc(tokens);
  }

  step({ stages, networkMs }: StepParts): void {
    for (const [i, { queueMs, computeMs, handoverMs }] of stages.entries()) {
      const stage = String(i);
      this.#seam.observe({ stage, part: 'queue' }, queueMs / 1000);
      this.#seam.observe({ stage, part: 'compute' }, computeMs / 1000);
      this.#seam.observe({ stage, part: 'handover' }, handoverMs / 1000);
    }
    this.#seam.observe({ stage: RING, part: 'network' }, networkMs / 1000);
  }

  async exposition(): Promise<{ contentType: string; text: string }> {
    this.#setNow();
    return { contentType: this.#instruments.contentType, text: await this.#instruments.text() };
  }

  async summary(): Promise<ActivitySummary> {
    const [requests, refusals, firstToken, perToken, seam] = await Promise.all([
      this.#requests.get(), this.#refusals.get(), this.#firstToken.get(), this.#perToken.get(), this.#seam.get(),
    ]);
    const ended = sumBy('outcome', requests.values);
    const { answered = 0, refused = 0, failed = 0, cancelled = 0 } = ended;
    return {
      requests: { answered, refused, failed, cancelled, waiting: this.#waiting, open: this.#open },
      firstToken: quantilesMs(firstToken.values),
      perToken: quantilesMs(perToken.values),
      seam: seamMs(seam.values),
      refusals: sumBy('reason', refusals.values),
    };
  }

  /** What is not told but looked at. Without a shard, or before its worker's first report: 0. */
  #setNow(): void {
    const shard = this.#shard();
    this.#sessions.set({ role: 'gateway' }, this.#open);
    this.#sessions.set({ role: 'shard' }, shard?.lanes ?? 0);
    this.#warmSessions.set(this.#warm());
    this.#queues.set({ queue: 'requests' }, this.#waiting);
    this.#queues.set({ queue: 'engine' }, shard?.queueDepth ?? 0);
    this.#cellsUsed.set(shard?.cellsUsed ?? 0);
    this.#cells.set(shard?.cellsTotal ?? 0);
    this.#sequencesUsed.set(shard?.sequencesUsed ?? 0);
    this.#sequences.set(shard?.sequencesTotal ?? 0);
    this.#batch.set(shard?.batchSize ?? 0);
    this.#tick.set({ phase: 'decode' }, (shard?.tickUs.decode ?? 0) / 1e6);
    this.#tick.set({ phase: 'prefill' }, (shard?.tickUs.prefill ?? 0) / 1e6);
    setCounter(this.#ticks, [{ labels: {}, value: shard?.ticks ?? 0 }]);
    setCounter(this.#positions, [
      { labels: { phase: 'decode' }, value: shard?.decoded ?? 0 },
      { labels: { phase: 'prefill' }, value: shard?.prefilled ?? 0 },
    ]);
    setCounter(this.#bytes, bothWays(shard?.traffic.bytesIn, shard?.traffic.bytesOut));
    setCounter(this.#packets, bothWays(shard?.traffic.packetsIn, shard?.traffic.packetsOut));
    setCounter(this.#workerRefusals, Object.entries(shard?.refusals ?? {}).map(([code, value]) =>
      ({ labels: { reason: reasonOf(code as ErrorCode) }, value })));
  }
}

function bothWays(inwards = 0, outwards = 0): Labelled[] {
  return [{ labels: { direction: 'in' }, value: inwards }, { labels: { direction: 'out' }, value: outwards }];
}
