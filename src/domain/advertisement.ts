import { create, fromBinary, toBinary, type MessageInitShape } from '@bufbuild/protobuf';
import { MeshnetError } from '../errors.ts';
import {
  AdvertisementSchema, SignedAdvertisementSchema, type Advertisement, type SignedAdvertisement,
} from '../proto/peer_pb.js';
import { LIMITS } from './limits.ts';
import { rangesOverlap, type LayerRange } from './shard.ts';

const ADVERTISEMENT_VERSION = 1;

const SIGNING_PREFIX = new TextEncoder().encode('meshnet-advertisement-v1\0');
const SIGNATURE_BYTES = 64;
const BOOT_ID_BYTES = 16;
/** Tensors of a boundary bundle. */
const BOUNDARY_TENSORS = LIMITS.tensorsPerFrame;
/** Dimensions of a network coordinate. */
const COORDINATE_VALUES = 8;

/** What was signed and what it says. Only `parseAdvertisement` and `signAdvertisement` make one. */
export interface AdvertisementRecord {
  /** As it is passed on, verbatim. */
  readonly signed: SignedAdvertisement;
  readonly advertisement: Advertisement;
}

/** The rules that need a key, given by who has one. */
export type Sign = (bytes: Uint8Array) => Promise<Uint8Array>;
export type Verify = (peerId: string, bytes: Uint8Array, signature: Uint8Array) => Promise<boolean>;

export interface AdvertisementCheck {
  readonly verify: Verify;
  /** Unix time. */
  readonly nowMs: number;
  /** The peer that it has to be of: who sent it, or whom admission named. */
  readonly peerId?: string;
}

/**
 * Checks and signs what this node says of one of its shards.
 *
 * @throws {MeshnetError} ADVERTISEMENT_INVALID, as a receiver would
 */
export async function signAdvertisement(
  init: MessageInitShape<typeof AdvertisementSchema>, sign: Sign, nowMs: number,
): Promise<AdvertisementRecord> {
  const advertisement = create(AdvertisementSchema, { version: ADVERTISEMENT_VERSION, ...init });
  checkAdvertisement(advertisement, nowMs);
  const bytes = toBinary(AdvertisementSchema, advertisement);
  checkSize(bytes);
  const signature = await sign(signedBytes(bytes));
  return { signed: create(SignedAdvertisementSchema, { advertisement: bytes, signature }), advertisement };
}

/**
 * What a peer says, when it holds against every rule.
 *
 * @throws {MeshnetError} ADVERTISEMENT_INVALID with `details.reason`
 */
export async function parseAdvertisement(
  signed: SignedAdvertisement, { verify, nowMs, peerId }: AdvertisementCheck,
): Promise<AdvertisementRecord> {
  checkSize(signed.advertisement);
  if (signed.signature.byteLength !== SIGNATURE_BYTES) {
    throw invalid('signature', { bytes: signed.signature.byteLength });
  }
  let advertisement: Advertisement;
  try {
    advertisement = fromBinary(AdvertisementSchema, signed.advertisement, { readUnknownFields: false });
  } catch (cause) {
    throw invalid('encoding', { cause });
  }
  checkAdvertisement(advertisement, nowMs);
  if (peerId !== undefined && advertisement.peerId !== peerId) {
    throw invalid('peer', { expected: peerId, actual: advertisement.peerId });
  }
  if (!await verify(advertisement.peerId, signedBytes(signed.advertisement), signed.signature)) {
    throw invalid('signature', { peerId: advertisement.peerId });
  }
  return { signed, advertisement };
}

/** Every rule but the signature's. @throws {MeshnetError} ADVERTISEMENT_INVALID with `details.reason` */
export function checkAdvertisement(ad: Advertisement, nowMs: number): void {
  const { layerFirst, layerLast, nLayer } = ad;
  if (ad.version !== ADVERTISEMENT_VERSION) {
    throw invalid('version', { version: ad.version });
  }
  if (ad.modelDigest.byteLength !== LIMITS.digestBytes) {
    throw invalid('model-digest', { bytes: ad.modelDigest.byteLength });
  }
  // A node whose workers take no direct connections has no seam certificate.
  if (![0, LIMITS.digestBytes].includes(ad.seamCertificateSha256.byteLength)) {
    throw invalid('seam-certificate', { bytes: ad.seamCertificateSha256.byteLength });
  }
  if (ad.seamEndpoints.length > 0 && ad.seamCertificateSha256.byteLength === 0) {
    throw invalid('seam-certificate', { bytes: 0 });
  }
  if (layerFirst >= layerLast || layerLast > nLayer || nLayer > LIMITS.layersPerModel) {
    throw invalid('range', { layerFirst, layerLast, nLayer });
  }
  if (ad.bootId.byteLength !== BOOT_ID_BYTES) {
    throw invalid('boot-id', { bytes: ad.bootId.byteLength });
  }
  checkCount('addresses', ad.addresses.length, LIMITS.addressesPerAdvertisement);
  checkCount('endpoints', ad.seamEndpoints.length, LIMITS.endpointsPerAdvertisement);
  checkCount('boundary', ad.boundaryIn.length, BOUNDARY_TENSORS);
  checkCount('boundary', ad.boundaryOut.length, BOUNDARY_TENSORS);
  checkCount('coordinate', ad.coordinate.length, COORDINATE_VALUES);
  if (!ad.coordinate.every(Number.isFinite)) {
    throw invalid('coordinate', {});
  }
  const address = ad.addresses.find((text) => !/^(\/[a-z0-9-]+(\/[^/\s]+)?)+$/.test(text));
  if (address !== undefined) {
    throw invalid('addresses', { address });
  }
  const endpoint = ad.seamEndpoints.find((text) => parseEndpoint(text) === undefined);
  if (endpoint !== undefined) {
    throw invalid('endpoints', { endpoint });
  }
  const expiresAtMs = Number(ad.expiresAtMs);
  if (expiresAtMs <= nowMs) {
    throw invalid('expired', { expiresAtMs, nowMs });
  }
  if (expiresAtMs > nowMs + LIMITS.advertisementLifeMs) {
    throw invalid('expiry', { expiresAtMs, nowMs, limitMs: LIMITS.advertisementLifeMs });
  }
}

/** `host:port` or `[v6]:port`, taken apart; nothing when it is neither. */
export function parseEndpoint(text: string): { host: string; port: number } | undefined {
  const match = /^(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)):([1-9]\d{0,4})$/i.exec(text);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  return host === undefined || port > 65_535 ? undefined : { host, port };
}

function rangeOf(ad: Advertisement): LayerRange {
  return { first: ad.layerFirst, last: ad.layerLast };
}

/** Whether it is of this model and has a layer of this range, or of any when none is given. */
export function matches(ad: Advertisement, modelDigest: Uint8Array, range?: LayerRange): boolean {
  return Buffer.compare(ad.modelDigest, modelDigest) === 0 && (range === undefined || rangesOverlap(rangeOf(ad), range));
}

/**
 * The one record that counts of each (peer, model, range), in the order in which these first appeared: of the newest
 * boot, then with the highest sequence.
 */
export function newest(records: Iterable<AdvertisementRecord>): AdvertisementRecord[] {
  const best = new Map<string, AdvertisementRecord>();
  for (const record of records) {
    const { peerId, modelDigest, layerFirst, layerLast } = record.advertisement;
    const key = `${peerId}/${Buffer.from(modelDigest).toString('hex')}/${layerFirst}-${layerLast}`;
    const known = best.get(key);
    if (known === undefined || isNewer(record.advertisement, known.advertisement)) {
      best.set(key, record);
    }
  }
  return [...best.values()];
}

/** Boots of one millisecond are ordered by their random part, so that everybody keeps the same one. */
function isNewer(a: Advertisement, b: Advertisement): boolean {
  const boots = Buffer.compare(a.bootId, b.bootId);
  return boots > 0 || (boots === 0 && a.sequence > b.sequence);
}

function signedBytes(advertisement: Uint8Array): Uint8Array {
  return Buffer.concat([SIGNING_PREFIX, advertisement]);
}

function checkSize(bytes: Uint8Array): void {
  if (bytes.byteLength > LIMITS.advertisementBytes) {
    throw invalid('size', { bytes: bytes.byteLength, limit: LIMITS.advertisementBytes });
  }
}

function checkCount(reason: string, count: number, limit: number): void {
  if (count > limit) {
    throw invalid(reason, { count, limit });
  }
}

function invalid(reason: string, facts: { cause?: unknown; [key: string]: unknown }): MeshnetError {
  const { cause, ...details } = facts;
  return new MeshnetError('ADVERTISEMENT_INVALID', `an advertisement is not valid: ${reason}`, {
    cause, details: { reason, ...details },
  });
}
