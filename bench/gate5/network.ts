/** Bytes and packets that the line has delivered, both ways and between all hosts. */
export interface LineCount {
  /** TCP payload. */
  readonly bytes: number;
  readonly packets: number;
}

export interface Host {
  /** Stands before a command and becomes it there. */
  readonly enter: readonly string[];
  readonly address: string;
}

/** Three hosts, joined with each other by the delay line. */
export interface Network {
  readonly a: Host;
  readonly b: Host;
  readonly c: Host;
  /** Of the kernel and the line, for the record. */
  readonly facts: Readonly<Record<string, unknown>>;
  setDelay(oneWayMs: number): Promise<void>;
  count(): Promise<LineCount>;
  stop(): Promise<void>;
}
