import { randomBytes } from 'node:crypto';
import { link, mkdir, open, readFile, stat, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { generateKeyPair, privateKeyFromProtobuf, privateKeyToProtobuf } from '@libp2p/crypto/keys';
import type { Ed25519PrivateKey } from '@libp2p/interface';
import { peerIdFromPrivateKey, peerIdFromString } from '@libp2p/peer-id';
import { MeshnetError } from '../errors.ts';

/** The protobuf of an Ed25519 key has 68 bytes. A longer file is something else. */
const KEY_FILE_BYTES = 128;
/** An Ed25519 peer id has 52 characters; base58 of a long text costs quadratic time. */
const PEER_ID_CHARS = 64;
const SIGNATURE_BYTES = 64;
/** Anybody but the owner. */
const OTHERS = 0o077;

/** A node is its key. */
export class Identity {
  readonly peerId: string;
  /** For the host alone. */
  readonly privateKey: Ed25519PrivateKey;

  constructor(privateKey: Ed25519PrivateKey) {
    this.privateKey = privateKey;
    this.peerId = peerIdFromPrivateKey(privateKey).toString();
  }

  async sign(bytes: Uint8Array): Promise<Uint8Array> {
    return await this.privateKey.sign(bytes);
  }
}

/** A key that is nowhere on disk. */
export async function generateIdentity(): Promise<Identity> {
  return new Identity(await generateKeyPair('Ed25519'));
}

/**
 * The key in the file `path`, which is made, with its folder, when it does not exist.
 *
 * @throws {MeshnetError} FILE_INVALID with `details.reason`: 'mode' when others than the owner may use it, 'content' when
 *   it holds no Ed25519 key, 'access' when it cannot be read or made
 */
export async function loadIdentity(path: string): Promise<Identity> {
  try {
    return await readIdentity(path) ?? await createIdentity(path);
  } catch (cause) {
    throw cause instanceof MeshnetError ? cause : invalid(path, 'access', { cause });
  }
}

/** Whether `peerId` signed `bytes`. A peer id that is no Ed25519 one signs nothing. */
export async function verify(peerId: string, bytes: Uint8Array, signature: Uint8Array): Promise<boolean> {
  if (signature.byteLength !== SIGNATURE_BYTES || !isPeerId(peerId)) {
    return false;
  }
  const id = peerIdFromString(peerId);
  return id.type === 'Ed25519' && await id.publicKey.verify(bytes, signature);
}

/** Whether the text is an Ed25519 peer id in the form that is compared everywhere. */
export function isPeerId(text: string): boolean {
  if (text.length > PEER_ID_CHARS) {
    return false;
  }
  try {
    const id = peerIdFromString(text);
    return id.type === 'Ed25519' && id.toString() === text;
  } catch {
    return false;
  }
}

async function readIdentity(path: string): Promise<Identity | undefined> {
  let mode: number;
  try {
    const facts = await stat(path);
    mode = facts.mode & 0o777;
    if (!facts.isFile() || facts.size > KEY_FILE_BYTES) {
      throw invalid(path, 'content');
    }
  } catch (err) {
    if ((err as NodeJS.ErrnoException).code === 'ENOENT') {
      return undefined;
    }
    throw err;
  }
  if ((mode & OTHERS) !== 0) {
    throw invalid(path, 'mode', { mode: mode.toString(8).padStart(4, '0'), allowed: '0600' });
  }
  return new Identity(parseKey(path, await readFile(path)));
}

function parseKey(path: string, bytes: Uint8Array): Ed25519PrivateKey {
  try {
    const key = privateKeyFromProtobuf(bytes);
    if (key.type === 'Ed25519') {
      return key;
    }
  } catch (cause) {
    throw invalid(path, 'content', { cause });
  }
  throw invalid(path, 'content');
}

/** Whole under its name or not there at all, and never over a key that somebody else has just made. */
async function createIdentity(path: string): Promise<Identity> {
  const identity = await generateIdentity();
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const draft = `${path}.${randomBytes(6).toString('hex')}`;
  const file = await open(draft, 'wx', 0o600);
  try {
    await file.writeFile(privateKeyToProtobuf(identity.privateKey));
    await file.sync();
    await file.close();
    await link(draft, path);
    return identity;
  } catch (err) {
    const other = (err as NodeJS.ErrnoException).code === 'EEXIST' ? await readIdentity(path) : undefined;
    if (other === undefined) {
      throw err;
    }
    return other;
  } finally {
    await file.close().catch(() => undefined);
    await unlink(draft);
  }
}

function invalid(path: string, reason: string, facts: { cause?: unknown; [key: string]: unknown } = {}): MeshnetError {
  const { cause, ...details } = facts;
  const what = reason === 'mode'
    ? `the key ${path} may be used by others than its owner`
    : `the key ${path} cannot be used`;
  return new MeshnetError('FILE_INVALID', what, { cause, details: { path, reason, ...details } });
}
