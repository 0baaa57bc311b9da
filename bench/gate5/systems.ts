import { uniformCuts } from '../../src/domain/shard.ts';
import type { Model } from '../mesh/model.ts';
import { placeOn, type Network } from '../mesh/network.ts';
import { oneProcess, shardsAt } from '../mesh/systems.ts';
import type { Place } from '../systems/place.ts';
import { RpcSystem } from '../systems/rpc-system.ts';
import type { System } from '../systems/system.ts';
import type { SystemName } from './lanes.ts';

/** Where each of the processes of a system runs: the head's host has core 0, what it talks to core 1. */
const NEAR_CORE = 0;
const FAR_CORE = 1;
const FIRST_PORT = 50_052;

/** Positions of a compute unit: as llama.cpp's own programs have it, in the tuned ones less. */
const RPC_UBATCH: Readonly<Record<string, number>> = {
  rpc1l: 512, rpc1l_head: 512, rpc1l_ub128: 128, rpc1l_ub64: 64, rpc2: 512,
};

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
export function systemOf(name: SystemName, { network, model, stock, cells, sessions }: SystemParts): System {
  const common = { model: model.file, cells, sessions };
  const { near, far, third } = hostsOf(network);
  switch (name) {
    case 'local':
      return oneProcess(name, NEAR_CORE, common);
    case 'ours':
      return shardsAt(name, { ...common, places: [near, far] });
    case 'rpc2':
      // Client and servers take turns, so the server that shares the client's core loses nothing.
      return new RpcSystem({
        ...common, name, programs: stock, ubatch: RPC_UBATCH[name] ?? 0, client: near,
        servers: [{ place: far, port: portOf(name) }, { place: third, port: portOf(name) }],
      });
    default:
      return new RpcSystem({
        ...common, name, programs: stock, ubatch: RPC_UBATCH[name] ?? 0, client: near,
        servers: [{ place: far, port: portOf(name) }], localLayers: uniformCuts(model.nLayer, 2)[0]?.last ?? 0,
        localOutput: name === 'rpc1l_head',
      });
  }
}

/** Hosts of the network that `systemOf` takes. */
export const HOSTS = 3;

function hostsOf(network: Network): { near: Place; far: Place; third: Place } {
  return { near: placeOn(network, 0, NEAR_CORE), far: placeOn(network, 1, FAR_CORE), third: placeOn(network, 2, NEAR_CORE) };
}

/** All RPC systems live at once, each on a port of its own. */
function portOf(name: SystemName): number {
  return FIRST_PORT + Object.keys(RPC_UBATCH).indexOf(name);
}
