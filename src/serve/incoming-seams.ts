import { timingSafeEqual } from 'node:crypto';
import { shortSession } from '../domain/lane.ts';
import { LIMITS } from '../domain/limits.ts';
import { MeshnetError } from '../errors.ts';
import { type BridgeOpen, SeamEnd } from '../proto/peer_pb.js';
import { carryToWorker } from '../worker/bridge-client.ts';
import type { PacketDuplex } from '../worker/packet-duplex.ts';
import type { PumpLimits } from '../worker/pump.ts';
import type { LaneTable, LeasedLane } from './lanes.ts';
import { type ServeLog, silentLog } from './log.ts';

export interface IncomingSeamsComponents {
  readonly lanes: LaneTable;
  readonly log?: ServeLog;
}

const BRIDGE_VERSION = 1;

/** Bridged seams from other nodes, handed to the worker that holds the lane. */
export class IncomingSeams {
  readonly #lanes: LaneTable;
  readonly #log: ServeLog;
  readonly #limits: PumpLimits | undefined;
  readonly #open = new Set<PacketDuplex>();

  constructor(components: IncomingSeamsComponents, init: { readonly limits?: PumpLimits } = {}) {
    this.#lanes = components.lanes;
    this.#log = components.log ?? silentLog;
    this.#limits = init.limits;
  }

  /** Bridged seams that are carried now. */
  get size(): number {
    return this.#open.size;
  }

  /**
   * Whether `peerId`, as Noise authenticated it, may open this. Gives what carries the packets, from after BridgeReady
   * to the end of the stream; it never throws.
   *
   * @throws {MeshnetError} the refusal: VERSION_UNSUPPORTED, LANE_NOT_OPEN, ROLE_INVALID, PEER_MISMATCH, TICKET_INVALID
   */
  accept(open: BridgeOpen, peerId: string): (packets: PacketDuplex) => Promise<void> {
    const lane = this.#laneOf(open);
    const seam = lane.seams.get(open.end);
    if (seam === undefined) {
      throw new MeshnetError('ROLE_INVALID', undefined, { details: { end: SeamEnd[open.end] ?? open.end } });
    }
    if (seam.peerId !== peerId) {
      throw new MeshnetError('PEER_MISMATCH', 'admission named another peer for this seam', { details: { peerId } });
    }
    if (open.ticket.byteLength !== seam.ticket.byteLength || !timingSafeEqual(open.ticket, seam.ticket)) {
      throw new MeshnetError('TICKET_INVALID');
    }
    return (packets) => this.#carry(lane, { end: open.end, peerId, ticket: seam.ticket, packets });
  }

  #laneOf(open: BridgeOpen): LeasedLane {
    if (open.version !== BRIDGE_VERSION) {
      throw new MeshnetError('VERSION_UNSUPPORTED', undefined, {
        details: { version: open.version, supported: BRIDGE_VERSION },
      });
    }
    const known = open.lane?.session.byteLength === LIMITS.sessionBytes ? this.#lanes.get(open.lane) : undefined;
    if (known === undefined) {
      throw new MeshnetError('LANE_NOT_OPEN', 'no worker here holds this lane', { details: { stage: open.lane?.stage } });
    }
    return known;
  }

  async #carry(
    lane: LeasedLane,
    seam: { end: SeamEnd; peerId: string; ticket: Uint8Array; packets: PacketDuplex },
  ): Promise<void> {
    const { ticket, peerId, packets, end } = seam;
    this.#open.add(packets);
    const fault = await carryToWorker(
      { target: lane.target, ticket, peerId, packets, limits: this.#limits },
      { signal: lane.life },
    );
    this.#open.delete(packets);
    const facts = { session: shortSession(lane.key.session), stage: lane.key.stage, end: SeamEnd[end] };
    this.#log.debug({ ...facts, code: fault?.code, details: fault?.details }, 'bridged seam ended');
  }
}
