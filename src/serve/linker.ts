import type { MessageInitShape } from '@bufbuild/protobuf';
import { LRUCache } from 'lru-cache';
import type { Verify } from '../domain/advertisement.ts';
import { MeshnetError, isMeshnetError } from '../errors.ts';
import { type Link, type LinkedSchema, PathKind } from '../proto/peer_pb.js';
import type { LinkRequest, LinkRequestSchema } from '../proto/worker_pb.js';
import type { BridgeServer } from '../worker/bridge-server.ts';
import type { AbortOptions } from '../worker/packet-duplex.ts';
import type { LeasedLane } from './lanes.ts';
import { type CheckedLink, checkLink, otherEnd } from './link-check.ts';

export interface LinkerComponents {
  readonly bridge: BridgeServer;
  readonly verify: Verify;
}

export interface LinkerInit {
  /** The bridge only. @default false */
  readonly noDirect?: boolean;
  /** For a direct connection to be open. @default 3000 ms */
  readonly directTimeoutMs?: number;
  /** A pair that could not connect directly is not tried directly for this long. @default 300000 ms */
  readonly directRetryMs?: number;
  /** Limit of one Link, whatever it asks for. @default 20000 ms */
  readonly linkTimeoutMs?: number;
  /** Unix ms. @default Date.now */
  readonly now?: () => number;
}

/** Pairs whose failure is remembered. */
const REMEMBERED_PAIRS = 1024;
/** What a Link without a deadline gets. */
const DEFAULT_DEADLINE_MS = 10_000;

type LinkRequestInit = Exclude<MessageInitShape<typeof LinkRequestSchema>, LinkRequest>;
type Linked = Omit<MessageInitShape<typeof LinkedSchema>, '$typeName'>;

interface Attempt {
  readonly lane: LeasedLane;
  readonly link: Link;
  readonly checked: CheckedLink;
  /** By `performance.now()`. */
  readonly deadline: number;
}

/** Finds the path of a seam: a direct connection when that works, otherwise the bridge. */
export class Linker {
  readonly #bridge: BridgeServer;
  readonly #verify: Verify;
  readonly #init: Required<LinkerInit>;
  readonly #unreachable: LRUCache<string, true>;

  constructor(components: LinkerComponents, init: LinkerInit = {}) {
    this.#bridge = components.bridge;
    this.#verify = components.verify;
    this.#init = {
      noDirect: init.noDirect ?? false,
      directTimeoutMs: init.directTimeoutMs ?? 3_000,
      directRetryMs: init.directRetryMs ?? 300_000,
      linkTimeoutMs: init.linkTimeoutMs ?? 20_000,
      now: init.now ?? Date.now,
    };
    this.#unreachable = new LRUCache({ max: REMEMBERED_PAIRS, ttl: this.#init.directRetryMs });
  }

  /** @throws {MeshnetError} as `checkLink`; SEAM_UNREACHABLE and what the worker or the other end refused with */
  async link(lane: LeasedLane, link: Link, options: AbortOptions): Promise<Linked> {
    const checked = await checkLink(link, lane, { verify: this.#verify, nowMs: this.#init.now() });
    const wishedMs = link.deadlineMs === 0 ? DEFAULT_DEADLINE_MS : link.deadlineMs;
    const deadline = performance.now() + Math.min(wishedMs, this.#init.linkTimeoutMs);
    const attempt = { lane, link, checked, deadline };
    if (!link.dial) {
      await this.#ask(attempt, { attempt: link.attempt }, options);
      return { end: link.end, path: PathKind.UNSPECIFIED };
    }
    return (await this.#direct(attempt, options)) ?? this.#bridged(attempt, options);
  }

  /** Nothing when there is no direct path. */
  async #direct(attempt: Attempt, options: AbortOptions): Promise<Linked | undefined> {
    const { link, checked, deadline } = attempt;
    const endpoints = checked.advertisement.seamEndpoints;
    const pair = `${checked.peerId} ${endpoints.join(' ')}`;
    const possible = endpoints.length > 0 && checked.certificate.byteLength > 0 && attempt.lane.shard.direct;
    if (this.#init.noDirect || !possible || this.#unreachable.has(pair)) {
      return undefined;
    }
    // Half of the time is kept for the bridge.
    const timeoutMs = Math.min(this.#init.directTimeoutMs, (deadline - performance.now()) / 2);
    try {
      const { rttUs } = await this.#ask({ ...attempt, deadline: performance.now() + timeoutMs }, {
        direct: { endpoints, certificate: checked.certificate },
        attempt: 2 * link.attempt,
      }, options);
      return { end: link.end, path: PathKind.DIRECT_GRPC, rttUs };
    } catch (err) {
      if (options.signal.aborted || !isPathFailure(err)) {
        throw err;
      }
      this.#unreachable.set(pair, true);
      return undefined;
    }
  }

  async #bridged(attempt: Attempt, options: AbortOptions): Promise<Linked> {
    const { lane, link, checked } = attempt;
    const { peerLane } = link;
    if (peerLane === undefined) {
      throw new MeshnetError('MALFORMED', 'a Link that dials names no lane', { details: { field: 'peerLane' } });
    }
    const bridge = this.#bridge.expect({
      peerId: checked.peerId,
      addresses: checked.advertisement.addresses,
      lane: peerLane,
      end: otherEnd(link.end),
      ticket: link.ticket,
    }, { signal: lane.life });
    try {
      const { rttUs } = await this.#ask(attempt, {
        bridge: { socketPath: this.#bridge.socketPath, bridgeId: bridge.id },
        // A stream of the direct attempt that opened too late is older than this one.
        attempt: 2 * link.attempt + 1,
      }, options);
      return { end: link.end, path: bridge.path, rttUs };
    } catch (err) {
      // The node at the other end says more than a stream that did not open.
      throw isPathFailure(err) && bridge.failure !== undefined ? bridge.failure : err;
    } finally {
      bridge.forget();
    }
  }

  #ask(
    { lane, link, checked, deadline }: Attempt,
    how: Pick<LinkRequestInit, 'attempt' | 'direct' | 'bridge'>,
    options: AbortOptions,
  ): ReturnType<LeasedLane['client']['link']> {
    return lane.client.link({
      lane: lane.key,
      // The numbers of both enums are the same (peer.proto).
      role: link.end as number,
      peerCertificateSha256: checked.certificateSha256,
      peerId: checked.peerId,
      ticket: link.dial ? link.ticket : new Uint8Array(),
      timeoutMs: Math.max(1, Math.ceil(deadline - performance.now())),
      ...how,
    }, options);
  }
}

/** Nobody was reached: another path may do. Anything else was said by the other end. */
function isPathFailure(err: unknown): boolean {
  return isMeshnetError(err, 'SEAM_UNREACHABLE') || isMeshnetError(err, 'SEAM_TIMEOUT') ||
    isMeshnetError(err, 'DEADLINE_EXCEEDED') || isMeshnetError(err, 'STREAM_ENDED');
}
