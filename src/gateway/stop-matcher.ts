/** What a push gave back: bytes that are certainly output, and whether a stop string has ended it. */
export interface Released {
  bytes: Uint8Array;
  stopped: boolean;
}

/**
 * Looks for stop strings in a stream of bytes, wherever it is cut. UTF-8 synchronises itself, so matching bytes finds
 * exactly what matching characters would, and a token may end inside a character.
 *
 * Of several matches the one that is complete first wins, and of those the longest: the result does not depend on how
 * the stream was cut.
 */
export class StopMatcher {
  readonly #stops: readonly string[];
  /** Latin-1: one character a byte. */
  #held = '';
  #stopped = false;

  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== '').map((stop) => Buffer.from(stop).toString('latin1'));
  }

  /** Bytes that may still turn out to begin a stop string are held back. After a stop nothing comes any more. */
  push(bytes: Uint8Array): Released {
    if (this.#stopped) {
      return { bytes: new Uint8Array(), stopped: true };
    }
    this.#held += Buffer.from(bytes).toString('latin1');
    const cut = this.#firstMatch();
    if (cut !== undefined) {
      this.#stopped = true;
      return this.#release(cut);
    }
    return this.#release(this.#held.length - this.#heldBack());
  }

  /** What was held back, when the stream ends for another reason than a stop string. */
  flush(): Uint8Array {
    return this.#stopped ? new Uint8Array() : this.#release(this.#held.length).bytes;
  }

  #release(length: number): Released {
    const bytes = Buffer.from(this.#held.slice(0, length), 'latin1');
    this.#held = this.#held.slice(length);
    return { bytes, stopped: this.#stopped };
  }

  /** Where the output ends, if a stop string is complete. */
  #firstMatch(): number | undefined {
    let start: number | undefined;
    let end = Infinity;
    for (const stop of this.#stops) {
      const at = this.#held.indexOf(stop);
      const after = at + stop.length;
      if (at >= 0 && (after < end || (after === end && at < (start ?? Infinity)))) {
        start = at;
        end = after;
      }
    }
    return start;
  }

  /** Length of the longest tail that is the beginning of a stop string. */
  #heldBack(): number {
    let longest = 0;
    for (const stop of this.#stops) {
      for (let length = Math.min(stop.length - 1, this.#held.length); length > longest; length--) {
        if (this.#held.endsWith(stop.slice(0, length))) {
          longest = length;
        }
      }
    }
    return longest;
  }
}
