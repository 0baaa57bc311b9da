import type { Model } from '../mesh/model.ts';
import { openNetwork, type Network } from '../mesh/network.ts';
import { cellsOf } from '../mesh/systems.ts';
import { MeshSystem } from '../systems/mesh-system.ts';
import type { ShardNow } from '../systems/mesh.ts';
import { stockProgram } from '../systems/native.ts';
import { stopAll } from '../systems/stop-all.ts';
import type { Started, System } from '../systems/system.ts';
import type { SpeedLane, SystemName } from './lanes.ts';
import { HOSTS, systemOf } from './systems.ts';
import { SHORT } from './wire.ts';

export interface RigOptions {
  readonly model: Model;
  readonly say: (text: string) => void;
  readonly signal: AbortSignal;
}

/** What all lanes share: the network, and every system of any of them, started once while there is no delay. */
export class Rig {
  readonly network: Network;
  readonly systems = new Map<SystemName, System>();
  readonly started: Partial<Record<SystemName, Started>> = {};
  #shards: readonly ShardNow[] = [];

  private constructor(network: Network) {
    this.network = network;
  }

  static async start(lanes: readonly SpeedLane[], { model, say, signal }: RigOptions): Promise<Rig> {
    const names = [...new Set(lanes.flatMap(({ systems }) => systems))];
    const stock = { whole: await stockProgram('meshnet-bench-whole'), server: await stockProgram('ggml-rpc-server') };
    const sessions = Math.max(...lanes.map((lane) => lane.sessions));
    const cells = Math.max(...lanes.map((lane) => cellsOf({ ...lane, output: longestOf(lane) })));
    const rig = new Rig(await openNetwork(HOSTS, signal));
    try {
      for (const name of names) {
        say(`starting ${name}`);
        const system = systemOf(name, { network: rig.network, model, stock, cells, sessions });
        rig.systems.set(name, system);
        rig.started[name] = await system.start(signal);
        if (system instanceof MeshSystem) {
          rig.#shards = await system.shards(signal);
        }
      }
      return rig;
    } catch (err) {
      await rig.stop();
      throw err;
    }
  }

  /** Of our mesh, as it started. */
  get shards(): readonly ShardNow[] {
    return this.#shards;
  }

  async stop(): Promise<void> {
    try {
      await stopAll([...this.systems.values()]);
    } finally {
      await stopAll([this.network]);
    }
  }
}

/** Tokens of the longest answer that a lane asks for. */
function longestOf({ output, kind }: SpeedLane): number {
  return kind === 'wire' ? SHORT + output : output;
}
