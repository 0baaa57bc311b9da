import { MeshnetError } from '../errors.ts';
import type { ControlClient } from '../worker/control-client.ts';
import type { AbortOptions } from '../worker/packet-duplex.ts';

/**
 * A worker's NO_CAPACITY with what the session required and what the worker has, by its own word a moment later: whoever
 * was refused can tell a session that is too long from a shard with too many.
 */
export async function withRoom(
  refusal: MeshnetError, { client, positions }: { client: Pick<ControlClient, 'describe'>; positions: number }, options: AbortOptions,
): Promise<MeshnetError> {
  try {
    const { budget } = await client.describe(options);
    return new MeshnetError(refusal.code, refusal.message, {
      cause: refusal,
      details: {
        ...refusal.details,
        requiredPositions: positions, availablePositions: budget?.cellsFree,
        requiredSequences: 1, availableSequences: budget?.sequencesFree,
      },
    });
  } catch {
    // It could say no, and now says nothing: the no is the news.
    return refusal;
  }
}
