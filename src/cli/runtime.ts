import { MeshnetError } from '../errors.ts';

/** What `engines` in package.json says. Older releases lack fixes of their HTTP/2 server, or cannot run libp2p at all. */
const FLOOR_22 = [22, 23, 2] as const;
const FLOOR = [24, 18, 1] as const;

/** Whether this program runs on a Node.js of that version (`v24.18.1` or `24.18.1`). */
export function isSupportedRuntime(version: string): boolean {
  const match = /^v?(\d+)\.(\d+)\.(\d+)/.exec(version);
  if (match === null) {
    return false;
  }
  const parts = match.slice(1).map(Number);
  return atLeast(parts, parts[0] === FLOOR_22[0] ? FLOOR_22 : FLOOR);
}

/**
 * Call it before anything else is imported.
 *
 * @throws {MeshnetError} RUNTIME_UNSUPPORTED
 */
export function assertRuntime(version: string = process.version): void {
  if (!isSupportedRuntime(version)) {
    throw new MeshnetError('RUNTIME_UNSUPPORTED', `Meshnet cannot run on Node.js ${version}`, {
      details: { found: version, needs: `^${FLOOR_22.join('.')} || >=${FLOOR.join('.')}` },
    });
  }
}

function atLeast(parts: readonly number[], floor: readonly number[]): boolean {
  for (const [i, wanted] of floor.entries()) {
    const part = parts[i] ?? 0;
    if (part !== wanted) {
      return part > wanted;
    }
  }
  return true;
}
