const BOOT_ID_BYTES = 16;

/** As a worker makes it: 8 bytes of Unix time, big endian, then 8 random ones. */
export function makeBootId(startedAtMs: number, random: Uint8Array): Uint8Array<ArrayBuffer> {
  const bootId = new Uint8Array(BOOT_ID_BYTES);
  new DataView(bootId.buffer).setBigUint64(0, BigInt(Math.floor(startedAtMs)));
  bootId.set(random.subarray(0, BOOT_ID_BYTES - 8), 8);
  return bootId;
}
