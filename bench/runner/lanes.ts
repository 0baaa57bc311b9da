import { toMeshnetError } from '../../src/errors.ts';
import { asRecorded, type LaneRecord } from './lane-record.ts';
import { Progress, type LaneProgress, type ProgressLane } from './progress.ts';

/** A lane that was asked for and could not be measured. */
export interface Skipped {
  readonly lane: string;
  readonly why: string;
}

export interface LaneItem<L> extends ProgressLane {
  readonly lane: L;
}

export interface LanesPlan<L> {
  readonly items: readonly LaneItem<L>[];
  readonly smoke: boolean;
  readonly say: (text: string) => void;
  readonly signal: AbortSignal;
  /** Gives nothing when there is nothing to record. */
  readonly run: (lane: L, steps: LaneProgress) => Promise<LaneRecord | undefined>;
  /** Behind a lane that failed: its systems may be in any state. */
  readonly recover?: () => Promise<void>;
}

export interface RanLanes {
  readonly lanes: readonly LaneRecord[];
  readonly skipped: readonly Skipped[];
}

/**
 * Lane after lane. What others took an hour for is not lost with one that fails, nor by Ctrl-C. A smoke run fails with its
 * lane, unless that is one that the machine does not allow.
 */
export async function runLanes<L>({ items, smoke, say, signal, run, recover }: LanesPlan<L>): Promise<RanLanes> {
  const progress = new Progress(items, say);
  const lanes: LaneRecord[] = [];
  const skipped: Skipped[] = [];
  for (const [i, { lane, name }] of items.entries()) {
    const steps = progress.lane(i);
    try {
      signal.throwIfAborted();
      const record = await run(lane, steps);
      lanes.push(...record === undefined ? [] : [asRecorded(record)]);
    } catch (err) {
      const { code, message } = signal.aborted ? { code: 'CANCELLED', message: 'interrupted' } : toMeshnetError(err);
      if (smoke && code !== 'CONFIG_INVALID') {
        throw err;
      }
      skipped.push({ lane: name, why: `${code}: ${message}` });
      steps.say(`skipped: ${message}`);
      await recover?.();
    }
  }
  return { lanes, skipped };
}
