import { MeshnetError } from '../errors.ts';

/** Deeper bodies are refused before anything walks them by recursion. */
const JSON_DEPTH = 32;

/** The object in a request body. Throws REQUEST_INVALID for whatever is none. */
export function parseJsonBody(bytes: Uint8Array): Record<string, unknown> {
  if (bytes.length === 0) {
    throw invalid('the body is empty');
  }
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (cause) {
    throw invalid('the body is not UTF-8', cause);
  }
  if (depthOf(text) > JSON_DEPTH) {
    throw new MeshnetError('REQUEST_INVALID', 'the body nests too deep', { details: { param: 'body', limit: JSON_DEPTH } });
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw invalid('the body is not JSON', cause);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw invalid('the body is not a JSON object');
  }
  return value as Record<string, unknown>;
}

/** How deep brackets nest, without parsing. Right for JSON; some number for anything else. */
export function depthOf(text: string): number {
  let depth = 0;
  let deepest = 0;
  let inString = false;
  for (let i = 0; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (inString) {
      if (char === 0x5c) {
        i++;
      } else if (char === 0x22) {
        inString = false;
      }
    } else if (char === 0x22) {
      inString = true;
    } else if (char === 0x5b || char === 0x7b) {
      deepest = Math.max(deepest, ++depth);
    } else if (char === 0x5d || char === 0x7d) {
      depth--;
    }
  }
  return deepest;
}

function invalid(message: string, cause?: unknown): MeshnetError {
  return new MeshnetError('REQUEST_INVALID', message, { cause, details: { param: 'body' } });
}
