/** The objects of `/v1/models`. */
import { MeshnetError } from '../errors.ts';
import type { ModelCard } from './backend.ts';

export interface ModelObject {
  id: string;
  object: 'model';
  created: number;
  owned_by: 'meshnet';
  /** The window of one session here; several names, because clients look for several. */
  context_length: number;
  max_model_len: number;
  meta: { n_ctx: number; n_layer: number };
  meshnet: { fingerprint: string; coverage: ModelCard['coverage']; privacy: string };
}

/** Said wherever a client can see it: splitting a model hides nothing from those who hold its parts. */
const PRIVACY = 'none: whoever serves layers of this model can read prompts and answers';

export function modelObject(card: ModelCard): ModelObject {
  return {
    id: card.id,
    object: 'model',
    created: card.created,
    owned_by: 'meshnet',
    context_length: card.contextLength,
    max_model_len: card.contextLength,
    meta: { n_ctx: card.contextLength, n_layer: card.nLayer },
    meshnet: { fingerprint: card.digest, coverage: card.coverage, privacy: PRIVACY },
  };
}

export function modelList(cards: readonly ModelCard[]): { object: 'list'; data: ModelObject[] } {
  return { object: 'list', data: cards.map(modelObject) };
}

/** Throws MODEL_UNKNOWN. */
export function findModel(cards: readonly ModelCard[], id: string): ModelCard {
  const card = cards.find((other) => other.id === id);
  if (card === undefined) {
    throw new MeshnetError('MODEL_UNKNOWN', 'no such model here', { details: { param: 'model', model: id.slice(0, 256) } });
  }
  return card;
}
