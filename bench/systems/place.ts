import { pinned } from './native.ts';

/** Where the processes of one host run. */
export interface Place {
  /** Stands before every command there and becomes it: enters a namespace. */
  readonly enter: readonly string[];
  /** The same for the processes that hold weights alone: sets a limit. */
  readonly confine?: readonly string[];
  /** IPv4 address that the other hosts reach it by. */
  readonly address: string;
  readonly core: number;
  /** Whether everything runs on that core, or a worker alone. */
  readonly pins: 'everything' | 'worker';
}

/** This machine itself: a core for the worker, all of them for the rest. */
export function loopback(core: number): Place {
  return { enter: [], address: '127.0.0.1', core, pins: 'worker' };
}

/**
 * What tells a node where to listen, `port` being one of the place's own. In a namespace every port is free; its address
 * is a public one, which a node announces only when it is told to.
 */
export function listeningAt({ enter, address }: Place, port: number): string[] {
  const at = `/ip4/${address}/tcp/${enter.length === 0 ? 0 : port}`;
  return ['--listen', at, ...enter.length === 0 ? [] : ['--announce', at]];
}

/** What stands before a command there. */
export function launcherAt(place: Place): string[] {
  if (place.pins === 'worker') {
    return [...place.enter];
  }
  const [command, args] = pinned(place.core, place.enter);
  return [command, ...args];
}

/** What stands before a command that holds weights. */
export function confinedLauncherAt(place: Place): string[] {
  return [...launcherAt(place), ...place.confine ?? []];
}

/** A command as it is run there. */
export function commandAt(place: Place, command: readonly string[]): [string, string[]] {
  const [first = '', ...rest] = [...launcherAt(place), ...command];
  return [first, rest];
}
