import { MeshnetError } from '../../src/errors.ts';

/** Of a route: from the gateway to the head, and between the shards. */
const DIRECT = 'libp2p direct-grpc';
/** For people. */
export const PATHS_NOTE = `${DIRECT.replace(' ', ' to the head, ')} between the shards`;

/** @throws {MeshnetError} INTERNAL when a seam went another way than straight from worker to worker */
export function requireDirect(paths: readonly string[]): void {
  if (paths.some((path) => path !== DIRECT)) {
    throw new MeshnetError('INTERNAL', 'a route is not direct', { details: { paths } });
  }
}
