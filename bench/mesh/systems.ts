import path from 'node:path';
import { LineSystem } from '../systems/line-system.ts';
import { MeshSystem } from '../systems/mesh-system.ts';
import { BIN } from '../systems/native.ts';
import type { Place } from '../systems/place.ts';
import type { Load } from './measures.ts';

/** Cells are counted in blocks of so many; a session gets whole ones. */
const CELL_BLOCK = 32;

/** Positions of a compute unit: in one process as llama.cpp's own programs have it. */
const WHOLE_UBATCH = 512;
/** Of our workers: a prompt in several units is worked on by both stages at once. */
export const UBATCH = 128;

export interface Capacity {
  readonly model: string;
  /** Positions of all sessions together. */
  readonly cells: number;
  readonly sessions: number;
}

/** KV cells that so many sessions take. */
export function cellsTaken({ sessions, prompt, output }: Load): number {
  return sessions * Math.ceil((prompt + output) / CELL_BLOCK) * CELL_BLOCK;
}

/** Twice what the sessions need: one that is over holds its cells until its release has arrived. */
export function cellsOf(load: Load): number {
  return 2 * cellsTaken(load);
}

/** The whole model in one process on one core. */
export function oneProcess(name: string, core: number, { model, cells, sessions }: Capacity): LineSystem {
  return new LineSystem({
    name, command: path.join(BIN, 'meshnet-bench-whole'), cores: [core],
    args: [
      '--model', model, '--threads', '1', '--cells', String(cells), '--sessions', String(sessions),
      '--ubatch', String(WHOLE_UBATCH),
    ],
  });
}

export interface ShardsOptions extends Capacity {
  /** One a shard; the gateway is beside the first. */
  readonly places: readonly Place[];
  /** Of one session at most. @default what a gateway allows by itself */
  readonly positions?: number | undefined;
}

/** Our mesh with room for twice as many sessions: one that is over holds its place until its release has arrived. */
export function shardsAt(name: string, { sessions, ...options }: ShardsOptions): MeshSystem {
  return new MeshSystem(name, { ...options, ubatch: UBATCH, sessions: 2 * sessions });
}
