/** Turns a stream of bytes into text and never gives out half a code point. Bytes that are no UTF-8 become U+FFFD. */
export class Utf8Assembler {
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });

  push(bytes: Uint8Array): string {
    return this.#decoder.decode(bytes, { stream: true });
  }

  /** What is left at the end: a code point that never became complete is one U+FFFD. */
  flush(): string {
    return this.#decoder.decode();
  }
}
