import { figureOf } from '../runner/figures.ts';
import type { Figure, LaneRecord } from '../runner/lane-record.ts';
import type { BarPicture } from './picture.ts';
import type { BenchRecord } from '../runner/record.ts';

const SHOWN = [
  { measure: 'decode', title: 'decode', y: 'tokens/s', logarithmic: true },
  { measure: 'prefill', title: 'prefill', y: 'tokens/s', logarithmic: true },
  { measure: 'memory_mib', title: 'peak memory', y: 'MiB', logarithmic: true },
] as const;

/** What the ratios were made of: each system's medians in the greedy lanes. */
export function gate1Pictures(record: BenchRecord, subtitle: string): BarPicture[] {
  const lanes = record.lanes.filter(({ key, rounds }) => key['sampling'] === 'greedy' && rounds.length > 0);
  const systems = [...new Set(lanes.flatMap((lane) => lane.systems))];
  return lanes.length === 0
    ? []
    : SHOWN.map(({ measure, title, y, logarithmic }) => ({
        kind: 'bars',
        name: `gate1-systems-${measure.replace('_mib', '')}`,
        title: `gate1: ${title} of each system`,
        subtitle,
        y,
        logarithmic,
        groups: lanes.map(groupOf),
        series: systems.map((system) => ({
          name: system.replace('torch_', 'Transformers '),
          values: lanes.map((lane): Figure | undefined =>
            lane.systems.includes(system) ? figureOf(lane, system, measure) : undefined,
          ),
        })),
        bounds: [],
      }));
}

function groupOf({ key, contended }: LaneRecord): string {
  const { model, context, sessions } = key;
  return [model, `${context} tokens`, `${sessions} ×`, ...(contended ? ['(disturbed)'] : [])].join(' / ');
}
