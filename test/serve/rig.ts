import { createHash, generateKeyPairSync, randomBytes, sign, verify as verifySignature, type KeyObject } from 'node:crypto';
import { join } from 'node:path';
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { signAdvertisement, type AdvertisementRecord, type Sign, type Verify } from '../../src/domain/advertisement.ts';
import type { MeshnetError } from '../../src/errors.ts';
import type { Lease, LeaseEnd } from '../../src/net/admission-protocol.ts';
import {
  AdmitSchema, Health, LinkSchema, SeamEnd, type Admit, type AdvertisementSchema, type Link,
} from '../../src/proto/peer_pb.js';
import { Admission, type AdmissionInit, type AdmissionObserver } from '../../src/serve/admission.ts';
import { IncomingSeams } from '../../src/serve/incoming-seams.ts';
import { LaneTable } from '../../src/serve/lanes.ts';
import { Linker, type LinkerInit } from '../../src/serve/linker.ts';
import { SeamDialer } from '../../src/serve/seam-dialer.ts';
import { ShardService } from '../../src/serve/shard-service.ts';
import { BridgeServer } from '../../src/worker/bridge-server.ts';
import type { PacketDialer } from '../../src/worker/packet-duplex.ts';
import { WorkerProcess, type WorkerProcessInit } from '../../src/worker/process.ts';
import { makeBootId } from '../support/boot-id.ts';
import type { FakeModel, FakeWorkshop } from '../support/fake-model.ts';

export const MODEL = new Uint8Array(32).fill(6);
export const NOW_MS = 1_800_000_000_000;
export const SELF = '12D3KooWSelf';
export const GATEWAY = '12D3KooWGateway';
export const NEXT = '12D3KooWNext';
export const CERTIFICATE = Buffer.from('c0ffee', 'hex');

export const soon = (): { signal: AbortSignal } => ({ signal: AbortSignal.timeout(20_000) });

/** Signing keys of peers that exist only here. */
export class Peers {
  readonly #keys = new Map<string, { publicKey: KeyObject; privateKey: KeyObject }>();

  readonly verify: Verify = async (peerId, bytes, signature) =>
    verifySignature(null, bytes, this.#of(peerId).publicKey, signature);

  signAs(peerId: string): Sign {
    const { privateKey } = this.#of(peerId);
    return async (bytes) => new Uint8Array(sign(null, bytes, privateKey));
  }

  async advertise(
    change: Partial<Omit<MessageInitShape<typeof AdvertisementSchema>, '$typeName'>> = {}, signer?: string,
  ): Promise<AdvertisementRecord> {
    const peerId = change.peerId ?? NEXT;
    return signAdvertisement({
      peerId, modelDigest: MODEL, layerFirst: 6, layerLast: 12, nLayer: 12, engineClass: 'any',
      bootId: makeBootId(NOW_MS - 1, randomBytes(8)), sequence: 1n, addresses: ['/ip4/127.0.0.1/tcp/1'],
      seamEndpoints: ['open.example:1'], seamCertificateSha256: sha256(CERTIFICATE), expiresAtMs: BigInt(NOW_MS + 60_000),
      health: Health.UNVERIFIED, ...change,
    }, this.signAs(signer ?? peerId), NOW_MS);
  }

  #of(peerId: string): { publicKey: KeyObject; privateKey: KeyObject } {
    let pair = this.#keys.get(peerId);
    if (pair === undefined) {
      pair = generateKeyPairSync('ed25519');
      this.#keys.set(peerId, pair);
    }
    return pair;
  }
}

export function sha256(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  return new Uint8Array(createHash('sha256').update(bytes).digest());
}

/** A lease without a stream. What the stage says last is in `said`. */
export class TestLease implements Lease {
  static #count = 0;
  readonly id = ++TestLease.#count;
  readonly remotePeer: string;
  readonly over = new AbortController();
  readonly ended = Promise.withResolvers<MeshnetError | undefined>();
  /** Set when it was admitted: what a server does when the stage ends the lease. */
  admission: Admission | undefined;

  constructor(remotePeer: string = GATEWAY) {
    this.remotePeer = remotePeer;
  }

  get signal(): AbortSignal {
    return this.over.signal;
  }

  end(error?: MeshnetError): void {
    this.close('ended-here');
    this.ended.resolve(error);
  }

  close(reason: LeaseEnd): void {
    if (!this.over.signal.aborted) {
      this.over.abort();
      this.admission?.ended(this, reason);
    }
  }
}

/** Everything of a node that serves, with programs in place of workers and nothing in place of libp2p. */
export class ServeRig {
  readonly peers = new Peers();
  readonly lanes = new LaneTable();
  readonly incoming = new IncomingSeams({ lanes: this.lanes });
  readonly shards: ShardService[] = [];
  readonly bridge: BridgeServer;
  readonly #workshop: FakeWorkshop;

  constructor(workshop: FakeWorkshop, remote?: PacketDialer) {
    this.#workshop = workshop;
    const nowhere: PacketDialer = { dial: () => Promise.reject(new Error('nobody is there')) };
    const dialer = new SeamDialer({ remote: remote ?? nowhere, incoming: this.incoming }, { peerId: SELF });
    this.bridge = new BridgeServer({ dialer }, { runtimeDir: join(workshop.folder, 'bridge') });
  }

  shard(first: number, last: number, model: Partial<FakeModel> = {}, worker: Partial<WorkerProcessInit> = {}): ShardService {
    const shard = new ShardService({
      worker: new WorkerProcess({
        binary: this.#workshop.binary, runtimeDir: join(this.#workshop.folder, 'run'), model: this.#workshop.model(model),
        layers: { first, last }, listen: '127.0.0.1:0', modelDigest: MODEL, reportIntervalMs: 20, stopTimeoutMs: 500,
        backoff: { baseMs: 10, maxFailures: 3 }, ...worker,
      }),
    }, { modelDigest: MODEL, nLayer: 12 });
    this.shards.push(shard);
    return shard;
  }

  admission(init: AdmissionInit = {}, linker: LinkerInit = {}, observer?: AdmissionObserver): Admission {
    return new Admission({
      shards: this.shards,
      lanes: this.lanes,
      linker: new Linker({ bridge: this.bridge, verify: this.peers.verify }, { now: () => NOW_MS, ...linker }),
      observer,
    }, init);
  }

  async start(): Promise<void> {
    await this.bridge.start();
    for (const shard of this.shards) {
      shard.start();
    }
    await Promise.all(this.shards.map((shard) => shard.serving(soon())));
  }

  async stop(): Promise<void> {
    await Promise.all(this.shards.map((shard) => shard.stop()));
    await this.bridge.stop();
  }
}

type Change<T> = Partial<Omit<T, '$typeName' | '$unknown'>>;

/** The head of two stages, layers 0-6 of 12. */
export function admitOf(session: number, change: Change<MessageInitShape<typeof AdmitSchema>> = {}): Admit {
  return create(AdmitSchema, {
    version: 1, lane: { session: new Uint8Array(16).fill(session), epoch: 1, stage: 0 }, nStages: 2, modelDigest: MODEL,
    layerFirst: 0, layerLast: 6, positions: 100,
    seams: [{ end: SeamEnd.ENTRY, peerId: GATEWAY }, { end: SeamEnd.TO_NEXT, peerId: NEXT }], ...change,
  });
}

/** The head's dialling Link to the next stage. */
export function linkOf(
  session: number, record: AdvertisementRecord, change: Change<MessageInitShape<typeof LinkSchema>> = {},
): Link {
  return create(LinkSchema, {
    end: SeamEnd.TO_NEXT, advertisement: record.signed, seamCertificate: CERTIFICATE, ticket: randomBytes(32), dial: true,
    attempt: 1, deadlineMs: 2_000, peerLane: { session: new Uint8Array(16).fill(session), epoch: 1, stage: 1 }, ...change,
  });
}
