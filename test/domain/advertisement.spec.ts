import assert from 'node:assert/strict';
import { generateKeyPairSync, sign as signBytes, verify as verifyBytes } from 'node:crypto';
import { create, toBinary } from '@bufbuild/protobuf';
import fc from 'fast-check';
import {
  checkAdvertisement, matches, newest, parseAdvertisement, parseEndpoint, signAdvertisement,
  type AdvertisementRecord,
} from '../../src/domain/advertisement.ts';
import { LIMITS } from '../../src/domain/limits.ts';
import { MeshnetError } from '../../src/errors.ts';
import { AdvertisementSchema, SignedAdvertisementSchema, type Advertisement } from '../../src/proto/peer_pb.js';
import { makeBootId } from '../support/boot-id.ts';

const NOW_MS = 1_800_000_000_000;
const PEER = 'somebody';
const { privateKey, publicKey } = generateKeyPairSync('ed25519');
const sign = async (bytes: Uint8Array): Promise<Uint8Array> => signBytes(null, bytes, privateKey);
const verify = async (peerId: string, bytes: Uint8Array, signature: Uint8Array): Promise<boolean> =>
  peerId === PEER && verifyBytes(null, bytes, publicKey, signature);
const check = { verify, nowMs: NOW_MS, peerId: PEER };

function fields(change: object = {}) {
  return {
    version: 1, peerId: PEER, modelDigest: new Uint8Array(32).fill(1), layerFirst: 2, layerLast: 5, nLayer: 8,
    engineClass: 'x', bootId: makeBootId(NOW_MS, new Uint8Array(8).fill(3)), sequence: 4n,
    addresses: ['/ip4/192.0.2.1/tcp/4001/p2p/abc'], seamEndpoints: ['192.0.2.1:50051'],
    seamCertificateSha256: new Uint8Array(32), expiresAtMs: BigInt(NOW_MS + 1000), ...change,
  };
}

async function reasonOf(work: Promise<unknown>): Promise<unknown> {
  const err: unknown = await work.then(() => undefined, (failure: unknown) => failure);
  assert.ok(err instanceof MeshnetError, 'expected an error');
  assert.equal(err.code, 'ADVERTISEMENT_INVALID');
  return err.details['reason'];
}

describe('domain/advertisement', () => {
  it('parses what was signed, verbatim', async () => {
    const { signed, advertisement } = await signAdvertisement(fields(), sign, NOW_MS);
    const parsed = await parseAdvertisement(signed, check);
    assert.deepEqual(parsed.advertisement, create(AdvertisementSchema, fields()));
    assert.deepEqual(advertisement, parsed.advertisement);
    assert.equal(parsed.signed, signed);
  });

  it('signs the prefix, a zero byte and the encoded advertisement', async () => {
    let given = new Uint8Array();
    const { signed } = await signAdvertisement(fields(), async (bytes) => {
      given = new Uint8Array(bytes);
      return sign(bytes);
    }, NOW_MS);
    assert.equal(Buffer.from(given.subarray(0, 25)).toString('latin1'), 'meshnet-advertisement-v1\0');
    assert.deepEqual(Buffer.from(given.subarray(25)), Buffer.from(signed.advertisement));
  });

  const bad: [string, string, object][] = [
    ['another version', 'version', { version: 2 }],
    ['a model digest of another length', 'model-digest', { modelDigest: new Uint8Array(31) }],
    ['a certificate hash of another length', 'seam-certificate', { seamCertificateSha256: new Uint8Array(20) }],
    ['endpoints without a certificate', 'seam-certificate', { seamCertificateSha256: new Uint8Array() }],
    ['an empty range', 'range', { layerFirst: 5 }],
    ['a range beyond the model', 'range', { layerLast: 9 }],
    ['more layers than a model may have', 'range', { nLayer: LIMITS.layersPerModel + 1 }],
    ['a boot id of another length', 'boot-id', { bootId: new Uint8Array(15) }],
    ['five addresses', 'addresses', { addresses: Array.from({ length: 5 }, () => '/ip4/192.0.2.1') }],
    ['an address that is no multiaddr', 'addresses', { addresses: ['http://192.0.2.1'] }],
    ['five endpoints', 'endpoints', { seamEndpoints: Array.from({ length: 5 }, () => 'a:1') }],
    ['an endpoint without a port', 'endpoints', { seamEndpoints: ['192.0.2.1'] }],
    ['a boundary of too many tensors', 'boundary', { boundaryIn: Array.from({ length: 9 }, () => ({ width: 1 })) }],
    ['a coordinate that is not finite', 'coordinate', { coordinate: [Number.NaN] }],
    ['a coordinate of too many values', 'coordinate', { coordinate: Array.from({ length: 9 }, () => 1) }],
    ['an expiry that has passed', 'expired', { expiresAtMs: BigInt(NOW_MS) }],
    ['an expiry too far ahead', 'expiry', { expiresAtMs: BigInt(NOW_MS + LIMITS.advertisementLifeMs + 1) }],
    ['more than 1 KiB', 'size', { engineClass: 'x'.repeat(1024) }],
  ];
  for (const [what, reason, change] of bad) {
    it(`refuses ${what}, when signing and when parsing`, async () => {
      assert.equal(await reasonOf(signAdvertisement(fields(change), sign, NOW_MS)), reason);
      const advertisement = toBinary(AdvertisementSchema, create(AdvertisementSchema, fields(change)));
      const signature = await sign(Buffer.concat([Buffer.from('meshnet-advertisement-v1\0'), advertisement]));
      assert.equal(await reasonOf(parseAdvertisement(create(SignedAdvertisementSchema, { advertisement, signature }), check)), reason);
    });
  }

  it('takes the longest life and no direct endpoints', async () => {
    const change = {
      expiresAtMs: BigInt(NOW_MS + LIMITS.advertisementLifeMs), seamEndpoints: [], seamCertificateSha256: new Uint8Array(),
    };
    await parseAdvertisement((await signAdvertisement(fields(change), sign, NOW_MS)).signed, check);
  });

  it('refuses another signer, another peer and a changed byte', async () => {
    const { signed } = await signAdvertisement(fields(), sign, NOW_MS);
    assert.equal(await reasonOf(parseAdvertisement(signed, { ...check, peerId: 'another' })), 'peer');
    const other = (await signAdvertisement(fields({ peerId: 'another' }), sign, NOW_MS)).signed;
    assert.equal(await reasonOf(parseAdvertisement(other, { verify, nowMs: NOW_MS })), 'signature');
    const change = (bytes: Uint8Array, at: number): Uint8Array => bytes.map((byte, i) => i === at ? byte ^ 1 : byte);
    assert.equal(await reasonOf(parseAdvertisement({ ...signed, signature: change(signed.signature, 9) }, check)), 'signature');
    assert.equal(await reasonOf(parseAdvertisement({ ...signed, signature: new Uint8Array(3) }, check)), 'signature');
    for (let at = 0; at < signed.advertisement.byteLength; at++) {
      await reasonOf(parseAdvertisement({ ...signed, advertisement: change(signed.advertisement, at) }, check));
    }
  });

  it('refuses every other sequence of bytes with the same error', async () => {
    await fc.assert(fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), async (advertisement) => {
      const signature = new Uint8Array(64);
      await reasonOf(parseAdvertisement(create(SignedAdvertisementSchema, { advertisement, signature }), check));
    }));
  });

  it('reads host and port, and nothing that is not both', () => {
    assert.deepEqual(parseEndpoint('example.org:443'), { host: 'example.org', port: 443 });
    assert.deepEqual(parseEndpoint('[2001:db8::1]:65535'), { host: '2001:db8::1', port: 65_535 });
    for (const text of ['', 'a', ':1', 'a:', 'a:0', 'a:01', 'a:65536', 'a:-1', 'a b:1', '2001:db8::1:1', '[::1]', 'a/b:1', '-a:1', 'a\n:1']) {
      assert.equal(parseEndpoint(text), undefined, text);
    }
  });

  it('orders boots by their time', () => {
    const [older, newer] = [makeBootId(999, new Uint8Array(8).fill(255)), makeBootId(1000, new Uint8Array(8))];
    assert.ok(Buffer.compare(older, newer) < 0);
    assert.equal(Buffer.from(newer).readBigUInt64BE(0), 1000n);
  });

  it('matches model and overlap', () => {
    const advertisement = create(AdvertisementSchema, fields());
    const digest = advertisement.modelDigest;
    checkAdvertisement(advertisement, NOW_MS);
    assert.ok(matches(advertisement, digest));
    assert.ok(matches(advertisement, digest, { first: 4, last: 6 }));
    assert.ok(!matches(advertisement, digest, { first: 5, last: 6 }));
    assert.ok(!matches(advertisement, new Uint8Array(32)));
  });

  it('keeps the newest boot of a shard, then the highest sequence', () => {
    const record = (change: object): AdvertisementRecord => ({
      signed: create(SignedAdvertisementSchema), advertisement: create(AdvertisementSchema, fields(change)),
    });
    const boot = (ms: number): Uint8Array => makeBootId(ms, new Uint8Array(8));
    const records = [
      record({ bootId: boot(1), sequence: 9n }), record({ bootId: boot(2), sequence: 1n }),
      record({ bootId: boot(2), sequence: 3n }), record({ bootId: boot(2), sequence: 2n }),
      record({ bootId: boot(1), sequence: 99n }), record({ layerFirst: 0, sequence: 7n }),
      record({ peerId: 'another', sequence: 8n }), record({ modelDigest: new Uint8Array(32), sequence: 5n }),
    ];
    const kept = (list: AdvertisementRecord[]): bigint[] => newest(list).map(({ advertisement }: { advertisement: Advertisement }) => advertisement.sequence);
    assert.deepEqual(kept(records), [3n, 7n, 8n, 5n]);
    assert.deepEqual(kept(records.toReversed()), [5n, 8n, 7n, 3n]);
    assert.deepEqual(newest([]), []);
  });
});
