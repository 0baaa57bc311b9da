import { DelayLine } from '../wan/delay-line.ts';

/** Bytes of TCP payload and packets that the line has delivered, both ways and between all hosts. */
export interface LineCount {
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

export async function openNetwork(signal: AbortSignal): Promise<Network> {
  const line = await DelayLine.open({ namespaces: 3 }, { signal });
  const host = (i: number): Host => line.namespaces[i] as Host;
  return {
    a: host(0), b: host(1), c: host(2), facts: line.context,
    setDelay: (delayMs) => line.set({ delayMs }, { signal }),
    count: async () => {
      const { pairs } = await line.counters({ signal });
      return {
        bytes: pairs.reduce((sum, { tcpPayloadBytes }) => sum + tcpPayloadBytes, 0),
        packets: pairs.reduce((sum, { packets }) => sum + packets, 0),
      };
    },
    stop: () => line.close(),
  };
}
