import { MeshnetError } from '../../src/errors.ts';
import type { Place } from '../systems/place.ts';
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

/** Hosts, joined with each other by the delay line. */
export interface Network {
  readonly hosts: readonly Host[];
  /** Of the kernel and the line, for the record. */
  readonly facts: Readonly<Record<string, unknown>>;
  setDelay(oneWayMs: number): Promise<void>;
  count(): Promise<LineCount>;
  stop(): Promise<void>;
}

export async function openNetwork(hosts: number, signal: AbortSignal): Promise<Network> {
  const line = await DelayLine.open({ namespaces: hosts }, { signal });
  return {
    hosts: line.namespaces, facts: line.context,
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

/** Everything on that host on one core. */
export function placeOn({ hosts }: Pick<Network, 'hosts'>, index: number, core: number): Place {
  const host = hosts[index];
  if (host === undefined) {
    throw new MeshnetError('INTERNAL', `the network has no host ${index}`);
  }
  return { enter: host.enter, address: host.address, core, pins: 'everything' };
}
