import { LRUCache } from 'lru-cache';
import { MeshnetError } from '../errors.ts';
import type { Clock } from './clock.ts';

/** Peers whose rate is remembered; a forgotten one starts with a full bucket. */
const PEERS = 4096;

export interface RateLimitInit {
  /** Requests at once after a rest. */
  burst: number;
  perSecond: number;
  clock: Clock;
}

interface Bucket {
  tokens: number;
  atMs: number;
}

/** A token bucket for each peer. */
export class RateLimit {
  readonly #init: RateLimitInit;
  readonly #buckets = new LRUCache<string, Bucket>({ max: PEERS });

  constructor(init: RateLimitInit) {
    this.#init = init;
  }

  /** Takes one token. @throws {MeshnetError} RATE_EXCEEDED with `details.retryAfterMs` */
  take(peerId: string): void {
    const { burst, perSecond, clock } = this.#init;
    const now = clock.now();
    const bucket = this.#buckets.get(peerId) ?? { tokens: burst, atMs: now };
    bucket.tokens = Math.min(burst, bucket.tokens + (now - bucket.atMs) * perSecond / 1000);
    bucket.atMs = now;
    this.#buckets.set(peerId, bucket);
    if (bucket.tokens < 1) {
      throw new MeshnetError('RATE_EXCEEDED', 'a peer asks too often', {
        details: { burst, perSecond, retryAfterMs: Math.ceil((1 - bucket.tokens) * 1000 / perSecond) },
      });
    }
    bucket.tokens -= 1;
  }
}
