import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createRegistry, fromBinary, fromJson, toBinary, toJson, type JsonValue } from '@bufbuild/protobuf';
import { peerIdFromString } from '@libp2p/peer-id';
import { parseAdvertisement } from '../src/domain/advertisement.ts';
import { decodeManifest, encodeManifest, modelDigest } from '../src/domain/manifest.ts';
import { SignedAdvertisementSchema, file_peer } from '../src/proto/peer_pb.js';
import { PacketSchema, file_seam, type Frame } from '../src/proto/seam_pb.js';
import { goldenFiles, type Entry } from './golden/make.ts';

const folder = join(import.meta.dirname, 'golden');
const read = (file: string): Uint8Array => Uint8Array.from(readFileSync(join(folder, file)));
const index = JSON.parse(readFileSync(join(folder, 'index.json'), 'utf8')) as (Entry & { fields: JsonValue })[];
const registry = createRegistry(file_seam, file_peer);

function frameOf(file: string): Frame {
  const [frame] = fromBinary(PacketSchema, read(file)).frames;
  assert.ok(frame);
  return frame;
}

/** The frame's own bytes: behind the tag and the length of a packet that holds nothing else. */
function rawFrame(file: string): Uint8Array {
  const packet = read(file);
  return packet.subarray(packet.findIndex((byte, at) => at > 0 && byte < 128) + 1);
}

describe('golden', () => {
  it('has every file in its index, and each is what make.ts makes', () => {
    const made = goldenFiles();
    const kept = readdirSync(folder).filter((name) => !name.endsWith('.ts'));
    assert.deepEqual(kept.toSorted(), [...made.keys()].toSorted());
    for (const [name, bytes] of made) {
      assert.deepEqual(read(name), Uint8Array.from(bytes), name);
    }
    assert.deepEqual(index.map(({ file }) => file).toSorted(), kept.filter((name) => name !== 'index.json').toSorted());
  });

  for (const { file, message, sha256, fields } of index) {
    it(`reads ${file} as index.json says, and writes the same bytes`, () => {
      const bytes = read(file);
      const schema = registry.getMessage(message);
      assert.ok(schema, message);
      assert.equal(createHash('sha256').update(bytes).digest('hex'), sha256);
      const parsed = fromBinary(schema, bytes);
      assert.deepEqual(toJson(schema, parsed, { enumAsInteger: true }), fields);
      assert.deepEqual(toBinary(schema, parsed), bytes);
      assert.deepEqual(toBinary(schema, fromJson(schema, fields)), bytes);
    });
  }

  it('holds a Close whose digest is over the frames before it', () => {
    const { close } = frameOf('close.bin');
    const hash = createHash('sha256').update(rawFrame('turn.bin')).update(rawFrame('turn-tokens.bin'));
    assert.deepEqual(close?.digest, Uint8Array.from(hash.digest()));
    assert.equal(close?.nFrames, 2n);
    assert.equal(frameOf('close.bin').seq, 3n);
  });

  it('holds a manifest in canonical encoding, and its digest is the one that Open names', () => {
    const bytes = read('manifest.bin');
    const manifest = decodeManifest(bytes);
    assert.deepEqual(encodeManifest(manifest), bytes);
    assert.deepEqual(Uint8Array.from(modelDigest(bytes)), frameOf('open.bin').open?.modelDigest);
    assert.deepEqual(manifest.tensors.map(({ chunkSha256 }) => chunkSha256.length / 32), [2, 1, 1, 1, 1, 1]);
  });

  it('holds an advertisement that its signature vouches for', async () => {
    const signed = fromBinary(SignedAdvertisementSchema, read('signed-advertisement.bin'));
    assert.deepEqual(signed.advertisement, read('advertisement.bin'));
    const { advertisement } = await parseAdvertisement(signed, {
      nowMs: 1_700_000_000_000,
      verify: async (peerId, bytes, signature) => {
        const { publicKey } = peerIdFromString(peerId);
        return publicKey !== undefined && publicKey.verify(bytes, signature);
      },
    });
    assert.deepEqual(advertisement.modelDigest, Uint8Array.from(modelDigest(read('manifest.bin'))));
  });
});
