/** Values for the golden files, without chance. */
import { createHash, createPublicKey, type KeyObject } from 'node:crypto';

const BLOCK = 32;
/** The public key as a peer id contains it: protobuf { type: Ed25519, data: 32 bytes } in an identity multihash. */
const PEER_ID_PREFIX = Buffer.from('002408011220', 'hex');
const BASE58 = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';

export function sha256(...parts: Uint8Array[]): Uint8Array {
  const hash = createHash('sha256');
  parts.forEach((part) => hash.update(part));
  return hash.digest();
}

/** At most 32 bytes that stand for what `what` names. */
export function bytesOf(what: string, length: number): Uint8Array {
  return sha256(Buffer.from(`meshnet golden ${what}`)).subarray(0, length);
}

/** Multiples of an eighth around 0: exact in half precision too. */
function value(i: number): number {
  return (i * 5 - 77) / 8;
}

export function floats(n: number): Uint8Array {
  const data = Buffer.alloc(4 * n);
  for (let i = 0; i < n; i += 1) {
    data.writeFloatLE(value(i), 4 * i);
  }
  return data;
}

export function halves(n: number): Uint8Array {
  const data = Buffer.alloc(2 * n);
  for (let i = 0; i < n; i += 1) {
    data.writeUInt16LE(half(value(i)), 2 * i);
  }
  return data;
}

export function quants(nBlocks: number): Uint8Array {
  const data = Buffer.alloc((2 + BLOCK) * nBlocks);
  for (let block = 0; block < nBlocks; block += 1) {
    const at = (2 + BLOCK) * block;
    data.writeUInt16LE(half(0.25 * (block + 1)), at);
    for (let i = 0; i < BLOCK; i += 1) {
      data.writeInt8(i * 8 - 127, at + 2 + i);
    }
  }
  return data;
}

/** Bits of a number that half precision holds exactly and without a subnormal. */
function half(number: number): number {
  if (number === 0) {
    return 0;
  }
  const single = Buffer.alloc(4);
  single.writeFloatBE(number);
  const bits = single.readUInt32BE();
  const exponent = ((bits >>> 23) & 0xff) - 127 + 15;
  return ((bits >>> 16) & 0x8000) | (exponent << 10) | ((bits >>> 13) & 0x3ff);
}

export function peerIdOf(privateKey: KeyObject): string {
  const spki = createPublicKey(privateKey).export({ format: 'der', type: 'spki' });
  const id = Buffer.concat([PEER_ID_PREFIX, spki.subarray(-32)]);
  let text = '';
  for (let rest = BigInt(`0x${id.toString('hex')}`); rest > 0n; rest /= 58n) {
    text = `${BASE58[Number(rest % 58n)]}${text}`;
  }
  return `1${text}`;
}
