import assert from 'node:assert/strict';
import { chmod, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generateKeyPair, privateKeyToProtobuf } from '@libp2p/crypto/keys';
import { peerIdFromPrivateKey } from '@libp2p/peer-id';
import { generateIdentity, isPeerId, loadIdentity, verify } from '../../src/net/identity.ts';
import { rejects } from './rig.ts';

describe('net/identity', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'meshnet-identity-'));
  });
  afterEach(() => rm(folder, { recursive: true }));

  it('makes a key that only the owner may use, and is the same peer afterwards', async () => {
    const path = join(folder, 'new', 'key');
    const made = await loadIdentity(path);
    assert.equal((await stat(path)).mode & 0o777, 0o600);
    assert.equal((await stat(join(folder, 'new'))).mode & 0o777, 0o700);
    assert.deepEqual(await readdir(join(folder, 'new')), ['key']);
    assert.equal((await loadIdentity(path)).peerId, made.peerId);
    assert.ok(isPeerId(made.peerId));
  });

  it('makes one key when several start at once', async () => {
    const path = join(folder, 'key');
    const ids = await Promise.all(Array.from({ length: 8 }, async () => (await loadIdentity(path)).peerId));
    assert.equal(new Set(ids).size, 1);
    assert.deepEqual(await readdir(folder), ['key']);
  });

  for (const mode of [0o640, 0o604, 0o620]) {
    it(`refuses a key with mode ${mode.toString(8)}`, async () => {
      const path = join(folder, 'key');
      await loadIdentity(path);
      await chmod(path, mode);
      await rejects(loadIdentity(path), 'FILE_INVALID', { path, reason: 'mode', mode: `0${mode.toString(8)}` });
    });
  }

  it('refuses a file that holds no Ed25519 key, and leaves it as it is', async () => {
    const path = join(folder, 'key');
    const other = privateKeyToProtobuf(await generateKeyPair('secp256k1'));
    for (const bytes of [new Uint8Array(), Buffer.from('secret'), new Uint8Array(5000), other]) {
      await writeFile(path, bytes, { mode: 0o600 });
      await rejects(loadIdentity(path), 'FILE_INVALID', { path, reason: 'content' });
      assert.equal((await stat(path)).size, bytes.byteLength);
    }
    await rejects(loadIdentity(folder), 'FILE_INVALID', { reason: 'content' });
    await rejects(loadIdentity(join(path, 'below')), 'FILE_INVALID', { reason: 'access' });
  });

  it('signs so that the peer id alone is enough to verify', async () => {
    const [identity, other] = [await generateIdentity(), await generateIdentity()];
    const bytes = Uint8Array.of(1, 2, 3);
    const signature = await identity.sign(bytes);
    assert.equal(await verify(identity.peerId, bytes, signature), true);
    assert.equal(await verify(other.peerId, bytes, signature), false);
    assert.equal(await verify(identity.peerId, Uint8Array.of(1, 2), signature), false);
    assert.equal(await verify(identity.peerId, bytes, new Uint8Array(64)), false);
    assert.equal(await verify(identity.peerId, bytes, new Uint8Array(3)), false);
  });

  it('knows no peer ids but those of Ed25519 keys in their usual form', async () => {
    const other = peerIdFromPrivateKey(await generateKeyPair('secp256k1')).toString();
    const { peerId } = await generateIdentity();
    for (const text of ['', 'x', other, `${peerId} `, peerId.slice(1), 'z'.repeat(100_000)]) {
      assert.equal(isPeerId(text), false, text.slice(0, 60));
      assert.equal(await verify(text, new Uint8Array(), new Uint8Array(64)), false);
    }
  });
});
