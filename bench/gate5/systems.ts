import path from 'node:path';
import { uniformCuts } from '../../src/domain/shard.ts';
import { LineSystem } from '../systems/line-system.ts';
import { MeshSystem } from '../systems/mesh-system.ts';
import { BIN } from '../systems/native.ts';
import type { Place } from '../systems/place.ts';
import { RpcSystem } from '../systems/rpc-system.ts';
import type { System } from '../systems/system.ts';
import type { SystemName } from './lanes.ts';
import type { Model } from './model.ts';
import type { Host, Network } from './network.ts';

/** Where each of the processes of a system runs: the head's host has core 0, what it talks to core 1. */
const NEAR_CORE = 0;
const FAR_CORE = 1;
const FIRST_PORT = 50_052;

/** Positions of a compute unit: as llama.cpp's own programs have it, in the tuned ones less. */
const RPC_UBATCH: Readonly<Record<string, number>> = {
  rpc1l: 512, rpc1l_head: 512, rpc1l_ub128: 128, rpc1l_ub64: 64, rpc2: 512,
};
const LOCAL_UBATCH = 512;
/** Of our workers: a prompt in several units is worked on by both stages at once. */
export const UBATCH = 128;

export interface SystemParts {
  readonly network: Network;
  readonly model: Model;
  /** Of the unpatched tree. */
  readonly stock: { readonly whole: string; readonly server: string };
  /** Positions of all sessions of the largest lane, and those sessions. */
  readonly cells: number;
  readonly sessions: number;
}

/** One thread and one core a process. */
export function systemOf(name: SystemName, { network: { a, b, c }, model, stock, cells, sessions }: SystemParts): System {
  const common = { model: model.file, cells, sessions };
  switch (name) {
    case 'local':
      return new LineSystem({
        name, command: path.join(BIN, 'meshnet-bench-whole'), cores: [NEAR_CORE],
        args: [
          '--model', model.file, '--threads', '1', '--cells', String(cells), '--sessions', String(sessions),
          '--ubatch', String(LOCAL_UBATCH),
        ],
      });
    case 'ours':
      // A session that is over holds its place until its release has arrived, so there is room for twice as many.
      return new MeshSystem(name, {
        ...common, places: [at(a, NEAR_CORE), at(b, FAR_CORE)], ubatch: UBATCH, sessions: 2 * sessions,
      });
    case 'rpc2':
      // Client and servers take turns, so the server that shares the client's core loses nothing.
      return new RpcSystem({
        ...common, name, programs: stock, ubatch: RPC_UBATCH[name] ?? 0, client: at(a, NEAR_CORE),
        servers: [{ place: at(b, FAR_CORE), port: portOf(name) }, { place: at(c, NEAR_CORE), port: portOf(name) }],
      });
    default:
      return new RpcSystem({
        ...common, name, programs: stock, ubatch: RPC_UBATCH[name] ?? 0, client: at(a, NEAR_CORE),
        servers: [{ place: at(b, FAR_CORE), port: portOf(name) }], localLayers: uniformCuts(model.nLayer, 2)[0]?.last ?? 0,
        localOutput: name === 'rpc1l_head',
      });
  }
}

/** All RPC systems live at once, each on a port of its own. */
function portOf(name: SystemName): number {
  return FIRST_PORT + Object.keys(RPC_UBATCH).indexOf(name);
}

function at({ enter, address }: Host, core: number): Place {
  return { enter, address, core, pins: 'everything' };
}
