/**
 * Ids that every model of the benchmarks has and none uses as a control token: SmolLM2 keeps its own below 17, the
 * generated models' vocabulary (32,000 tokens) its own, and its bytes, below 259.
 */
export const FIRST_ID = 300;
export const END_ID = 32_000;

/** Eight decode steps behind a first token. */
export const WARM_UP = { tokens: 16, output: 9 };

/** What a system does before it is measured. `seed` as for `prompts`. */
export function warmUp(seed: string, sessions: number): { readonly prompts: number[][]; readonly output: number } {
  return { prompts: prompts(seed, { sessions, tokens: WARM_UP.tokens }), output: WARM_UP.output };
}

/** Random ids, one list a session: the same for the same words and round, and for no other. */
export function prompts(seed: string, shape: { readonly sessions: number; readonly tokens: number }): number[][] {
  const random = mulberry(hash(seed));
  return Array.from({ length: shape.sessions }, () =>
    Array.from({ length: shape.tokens }, () => FIRST_ID + Math.floor(random() * (END_ID - FIRST_ID))),
  );
}

/** FNV-1a, 32 bits. */
function hash(text: string): number {
  let state = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) {
    state = Math.imul(state ^ byte, 0x01000193);
  }
  return state >>> 0;
}

/** Mulberry32: uniform in [0, 1). */
function mulberry(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
