import { toMeshnetError, type MeshnetError } from '../errors.ts';
import type { Offer } from './offer.ts';

/** A stage refused or could not be reached: which one, so that the next plan leaves it out. */
export class StageError extends Error {
  override readonly name = 'StageError';
  readonly offer: Offer;
  declare readonly cause: MeshnetError;

  constructor(offer: Offer, cause: MeshnetError) {
    super(cause.message, { cause });
    this.offer = offer;
  }
}

/** What `work` gives; what it throws becomes the fault of the stage that `of` names. */
export async function blame<T>(of: (err: MeshnetError) => Offer, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (err) {
    if (err instanceof StageError) {
      throw err;
    }
    const cause = toMeshnetError(err);
    throw new StageError(of(cause), cause);
  }
}
