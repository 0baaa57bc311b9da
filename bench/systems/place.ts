import { pinned } from './native.ts';

/** Where the processes of one host run. */
export interface Place {
  /** Stands before every command there, and becomes it: enters a namespace, pins to a core, sets a limit. */
  readonly launcher: readonly string[];
  /** IPv4 address that the other hosts reach it by. */
  readonly address: string;
  /** Where a worker is pinned once it runs; unset: the launcher has pinned everything. */
  readonly workerCore?: number;
}

/** This machine itself, a core for the worker and all of them for the rest. */
export function loopback(workerCore: number): Place {
  return { launcher: [], address: '127.0.0.1', workerCore };
}

/** A place whose processes, every one of them, run on one core. */
export function onCore(place: Omit<Place, 'workerCore'>, core: number): Place {
  const [command, args] = pinned(core, []);
  return { launcher: [...place.launcher, command, ...args], address: place.address };
}

/** A command as it is run there. */
export function commandAt({ launcher }: Place, command: readonly string[]): [string, string[]] {
  const [first = '', ...rest] = [...launcher, ...command];
  return [first, rest];
}
