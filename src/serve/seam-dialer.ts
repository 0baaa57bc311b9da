import { create } from '@bufbuild/protobuf';
import { BridgeOpenSchema } from '../proto/peer_pb.js';
import { LaneSchema } from '../proto/seam_pb.js';
import type { AbortOptions, BridgeDestination, PacketDialer, PacketDuplex } from '../worker/packet-duplex.ts';
import { packetPair } from '../worker/packet-pair.ts';
import type { IncomingSeams } from './incoming-seams.ts';

export interface SeamDialerComponents {
  /** To other nodes. */
  readonly remote: PacketDialer;
  readonly incoming: IncomingSeams;
}

/** Bridges to other nodes over libp2p, and to a lane of this node through memory: a peer cannot dial itself. */
export class SeamDialer implements PacketDialer {
  readonly #remote: PacketDialer;
  readonly #incoming: IncomingSeams;
  readonly #peerId: string;

  constructor(components: SeamDialerComponents, init: { readonly peerId: string }) {
    this.#remote = components.remote;
    this.#incoming = components.incoming;
    this.#peerId = init.peerId;
  }

  async dial(destination: BridgeDestination, options: AbortOptions): Promise<PacketDuplex> {
    if (destination.peerId !== this.#peerId) {
      return this.#remote.dial(destination, options);
    }
    const { session, epoch, stage } = destination.lane;
    const open = create(BridgeOpenSchema, {
      version: 1,
      lane: create(LaneSchema, { session, epoch, stage }),
      end: destination.end,
      ticket: destination.ticket,
    });
    const carry = this.#incoming.accept(open, this.#peerId);
    const [near, far] = packetPair();
    void carry(far);
    return near;
  }
}
