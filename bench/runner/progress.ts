import type { RoundsPlan } from './rounds.ts';

export interface ProgressLane {
  readonly name: string;
  /** What it costs in proportion to the others. */
  readonly work: number;
}

export type LaneProgress = Required<Pick<RoundsPlan<string>, 'say' | 'progress'>>;

/** How far a run is, for people: the share of all work that is done never falls, whatever is repeated. */
export class Progress {
  readonly #lanes: readonly ProgressLane[];
  readonly #say: (text: string) => void;
  readonly #now: () => number;
  readonly #began: number;
  #done = 0;

  constructor(lanes: readonly ProgressLane[], say: (text: string) => void, now: () => number = () => performance.now()) {
    this.#lanes = lanes;
    this.#say = say;
    this.#now = now;
    this.#began = now();
  }

  /** For `runRounds` of the lane at this place. */
  lane(index: number): LaneProgress {
    const { name } = this.#lanes[index] as ProgressLane;
    const head = `lane ${index + 1} of ${this.#lanes.length}, ${name}`;
    return {
      say: (text) => { this.#say(`${head}: ${text}`); },
      progress: (done, of) => {
        this.#reach(index, done / of);
        this.#say(`${head}: ${done} of ${of} rounds, ${Math.floor(this.#done * 100)} %${this.#left()}`);
      },
    };
  }

  #reach(index: number, share: number): void {
    const all = this.#lanes.reduce((sum, { work }) => sum + work, 0);
    const before = this.#lanes.slice(0, index).reduce((sum, { work }) => sum + work, 0);
    this.#done = Math.max(this.#done, (before + share * (this.#lanes[index]?.work ?? 0)) / all);
  }

  #left(): string {
    const passed = this.#now() - this.#began;
    const minutes = Math.ceil(passed / this.#done * (1 - this.#done) / 60_000);
    return this.#done === 0 || this.#done >= 1 ? '' : `, about ${minutes} min left`;
  }
}
