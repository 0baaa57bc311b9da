import { Client, credentials } from '@grpc/grpc-js';
import type { MeshnetError } from '../errors.ts';
import { Seam } from '../proto/seam_pb.js';
import { CHANNEL_OPTIONS, type GrpcTarget, tokenMetadata } from './grpc.ts';
import type { AbortOptions, PacketDuplex } from './packet-duplex.ts';
import { clientCall, pump, type PumpLimits } from './pump.ts';

/** The listening end's ticket, and the libp2p peer that Noise authenticated. */
const TICKET_KEY = 'meshnet-ticket-bin';
const PEER_KEY = 'meshnet-peer';

export interface BridgedSeam {
  /** The worker that holds the lane. */
  readonly target: GrpcTarget;
  /** As the dialler presented it; the worker compares it. */
  readonly ticket: Uint8Array;
  readonly peerId: string;
  readonly packets: PacketDuplex;
  readonly limits?: PumpLimits;
}

/**
 * Hands a packet stream from another node to the worker that it is for, and carries it until it ends. The signal is the
 * life of the lane. Never throws: gives the error that ended it, or undefined.
 */
export async function carryToWorker(seam: BridgedSeam, options: AbortOptions): Promise<MeshnetError | undefined> {
  // A connection of its own, so that one slow seam cannot use up the window that the others share.
  const client = new Client(`unix:${seam.target.socketPath}`, credentials.createInsecure(), CHANNEL_OPTIONS);
  try {
    const metadata = tokenMetadata(seam.target.token);
    metadata.set(TICKET_KEY, Buffer.from(seam.ticket));
    metadata.set(PEER_KEY, seam.peerId);
    const path = `/${Seam.typeName}/${Seam.method.stream.name}`;
    const stream = client.makeBidiStreamRequest<Buffer, Buffer>(path, same, same, metadata);
    return await pump(clientCall(stream), seam.packets, { ...options, limits: seam.limits });
  } finally {
    client.close();
  }
}

function same(bytes: Buffer): Buffer {
  return bytes;
}
