import type { BenchRecord } from '../runner/record.ts';
import { barPictures } from './bar-pictures.ts';
import { concurrencyPictures } from './concurrency-pictures.ts';
import { gate1Pictures } from './gate1-pictures.ts';
import { linePictures } from './line-pictures.ts';
import type { Picture } from './picture.ts';

/** What a record is drawn as: its ratios as bars beside their bounds, and figures over delay and sessions as lines. */
export function picturesOf(record: BenchRecord): Picture[] {
  const below = subtitle(record);
  return record.bench === 'concurrency' ? concurrencyPictures(record, below) : [
    ...barPictures(record, below), ...linePictures(record, below),
    ...record.bench === 'gate1' ? gate1Pictures(record, below) : [],
  ];
}

function subtitle({ at, commit, context: { machine, threads } }: BenchRecord): string {
  const short = commit.replaceAll(/\b([0-9a-f]{7})[0-9a-f]*/g, '$1');
  return `${at.slice(0, 10)}, ${short}; ${machine.cpu}, ${machine.cores} cores; ${threads} thread${threads === 1 ? '' : 's'} a process; ` +
    'medians with 95 % intervals';
}
