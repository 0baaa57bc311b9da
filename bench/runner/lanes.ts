import { MeshnetError, toMeshnetError } from '../../src/errors.ts';
import { NotStoppedError, stopAll } from '../systems/stop-all.ts';
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
  /** Ends what lanes share: behind one that failed, since it may be in any state, and behind the last one. */
  readonly stop?: () => Promise<void>;
}

export interface RanLanes {
  readonly lanes: readonly LaneRecord[];
  readonly skipped: readonly Skipped[];
}

/** The lanes of a benchmark that were asked for. @throws {MeshnetError} CONFIG_INVALID when there are none */
export function askedLanes<L>(bench: string, lanes: readonly L[], wants: (lane: L) => boolean): readonly L[] {
  const wanted = lanes.filter(wants);
  if (wanted.length === 0) {
    throw new MeshnetError('CONFIG_INVALID', `no lane of ${bench} has that name`, { details: { field: '--lanes' } });
  }
  return wanted;
}

/**
 * Lane after lane. What others took an hour for is not lost with one that fails, nor by Ctrl-C, nor with what does not stop;
 * but nothing more is measured beside that. A smoke run fails with its lane, unless that is one that the machine does not
 * allow, and with what does not stop.
 */
export async function runLanes<L>({ items, smoke, say, signal, run, stop }: LanesPlan<L>): Promise<RanLanes> {
  const progress = new Progress(items, say);
  const lanes: LaneRecord[] = [];
  const skipped: Skipped[] = [];
  const left: NotStoppedError[] = [];
  const end = async (): Promise<void> => {
    try {
      await stopAll(stop === undefined ? [] : [{ stop }]);
    } catch (err) {
      if (smoke || !(err instanceof NotStoppedError)) {
        throw err;
      }
      left.push(err);
      say(err.message);
    }
  };
  try {
    for (const [i, { lane, name }] of items.entries()) {
      const steps = progress.lane(i);
      try {
        signal.throwIfAborted();
        if (left[0] !== undefined) {
          throw new MeshnetError('INTERNAL', `something of an earlier lane still runs: ${left[0].message}`);
        }
        const record = await run(lane, steps);
        lanes.push(...record === undefined ? [] : [asRecorded(record)]);
      } catch (err) {
        const { code, message } = signal.aborted ? { code: 'CANCELLED', message: 'interrupted' } : toMeshnetError(err);
        if (smoke && code !== 'CONFIG_INVALID') {
          throw err;
        }
        left.push(...err instanceof NotStoppedError ? [err] : []);
        skipped.push({ lane: name, why: `${code}: ${message}` });
        steps.say(`skipped: ${message}`);
        await end();
      }
    }
  } finally {
    await end();
  }
  return { lanes, skipped };
}
