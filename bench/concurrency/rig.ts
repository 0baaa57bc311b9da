import { SESSIONS } from '../contract.ts';
import { POSITIONS, type Model } from '../mesh/model.ts';
import { openNetwork, placeOn, type Network } from '../mesh/network.ts';
import { cellsOf, oneProcess, shardsAt } from '../mesh/systems.ts';
import { prompts, WARM_UP } from '../runner/prompts.ts';
import { median } from '../runner/statistics.ts';
import type { LineSystem } from '../systems/line-system.ts';
import type { MeshSystem } from '../systems/mesh-system.ts';
import { stopAll } from '../systems/stop-all.ts';
import type { Started } from '../systems/system.ts';
import { loadsOf, outlasting, promptOf, type ConcurrencyLane } from './lanes.ts';

/** The head's host, and the one process, have core 0; the tail's host has core 1. */
export const NEAR_CORE = 0;
const FAR_CORE = 1;

/** Tokens of each answer by which the steps of one process are measured. */
const MEASURED_OUTPUT = 17;

export interface RigOptions {
  readonly model: Model;
  readonly say: (text: string) => void;
  readonly signal: AbortSignal;
}

interface RigParts {
  readonly model: Model;
  readonly network: Network;
  readonly one: LineSystem;
  readonly mesh: MeshSystem;
}

/** What all lanes share: the network, one process and the mesh, started once while there is no delay. */
export class Rig {
  readonly parts: RigParts;
  /** One step of the one process, by its sessions: what theory starts from. */
  readonly stepMs = new Map<number, number>();
  readonly started: { one?: Started; mesh?: Started } = {};

  private constructor(parts: RigParts) {
    this.parts = parts;
  }

  static async start(lanes: readonly ConcurrencyLane[], { model, say, signal }: RigOptions): Promise<Rig> {
    const sessions = Math.max(...lanes.map(sessionsOf));
    const network = await openNetwork(2, signal);
    const places = [placeOn(network, 0, NEAR_CORE), placeOn(network, 1, FAR_CORE)];
    const rig = new Rig({
      model, network,
      one: oneProcess('one process', NEAR_CORE, { model: model.file, sessions, cells: cellsOfOne(lanes, sessions) }),
      mesh: shardsAt('mesh', {
        model: model.file, sessions, cells: Math.max(...lanes.map(cellsOfMesh)), places,
        positions: Math.max(...lanes.map((lane) => POSITIONS[lane.model])),
      }),
    });
    try {
      await rig.#start(sessions, { model, say, signal });
      return rig;
    } catch (err) {
      await rig.stop();
      throw err;
    }
  }

  async stop(): Promise<void> {
    const { one, mesh, network } = this.parts;
    try {
      await stopAll([one, mesh]);
    } finally {
      await stopAll([network]);
    }
  }

  async #start(sessions: number, { say, signal }: RigOptions): Promise<void> {
    const { one, mesh } = this.parts;
    say('starting one process and the nodes');
    this.started.one = await one.start(signal);
    this.started.mesh = await mesh.start(signal);
    say('measuring the steps of one process');
    for (const n of SESSIONS.filter((some) => some <= sessions)) {
      const job = { prompts: prompts(`steps ${n}`, { sessions: n, tokens: WARM_UP.tokens }), output: MEASURED_OUTPUT };
      this.stepMs.set(n, median((await one.run(job, signal)).stepMs));
    }
  }
}

/** At once, of any system of the lane. */
function sessionsOf(lane: ConcurrencyLane): number {
  switch (lane.kind) {
    case 'long':
      return lane.decoders.sessions + 1;
    case 'warm':
      return 1;
    default:
      return Math.max(...[...loadsOf(lane).values()].map(({ sessions }) => sessions));
  }
}

/** For the lanes and for the steps that are measured before them. */
function cellsOfOne(lanes: readonly ConcurrencyLane[], sessions: number): number {
  const asked = lanes.flatMap((lane) => lane.kind === 'grid' ? [lane.loads.one8] : []);
  return Math.max(...[...asked, { sessions, prompt: WARM_UP.tokens, output: MEASURED_OUTPUT }].map(cellsOf));
}

function cellsOfMesh(lane: ConcurrencyLane): number {
  switch (lane.kind) {
    case 'long':
      return cellsOf(outlasting(lane)) + cellsOf({ sessions: 1, prompt: lane.prompt, output: 1 });
    case 'warm':
      return cellsOf({ sessions: 1, prompt: promptOf(lane), output: 1 });
    default:
      return cellsOf(lane.loads.mesh);
  }
}
