import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { laneId } from '../../../src/domain/lane.ts';
import type { LogitsTrace } from '../../../src/proto/worker_pb.js';
import { BIN } from './worker-route.ts';

/** A turn that a session has run to its end. */
export interface PlayedTurn {
  readonly start: number;
  readonly ids: readonly number[];
  readonly maxTokens: number;
}

/** What the workers were started with, as far as it decides bits. */
export interface ReplaySetting {
  readonly model: string;
  readonly cells: number;
  readonly sequences: number;
  readonly ubatch: number;
}

export interface Comparison {
  readonly rows: number;
  readonly logits: number;
  readonly mixedTicks: number;
  readonly different: string[];
}

interface Timeline {
  readonly turns: readonly PlayedTurn[];
  turn: number;
  sampled: number;
  readonly tokens: Map<number, number>;
}

/**
 * Runs on the whole model what the tail traced, decode by decode, and compares every row of logits by its digest and every
 * sampled token with the largest entry. `turns`: by lane id, what the sessions asked for, in order.
 */
export function replay(
  traces: readonly LogitsTrace[], turns: ReadonlyMap<string, readonly PlayedTurn[]>, setting: ReplaySetting,
  tamper: (line: string) => string = (line) => line,
): Comparison {
  const timelines = new Map<string, Timeline>([...turns].map(([id, played]) =>
    [id, { turns: played, turn: 0, sampled: 0, tokens: new Map() }]));
  const script: string[] = [];
  let mixedTicks = 0;
  for (const { rows, operations } of traces) {
    for (const { sequence, keep } of operations) {
      script.push(keep === 0 ? `clear ${sequence}` : `truncate ${sequence} ${keep}`);
    }
    let prefill = false;
    let decode = false;
    for (const row of rows) {
      const timeline = timelines.get(laneId(row.lane as NonNullable<typeof row.lane>)) as Timeline;
      const token = tokenAt(timeline, row.pos);
      const wanted = row.logitsSha256.byteLength > 0;
      script.push(`row ${token} ${row.pos} ${row.sequence} ${wanted ? 1 : 0}`);
      const isDecode = timeline.sampled > 0;
      prefill ||= !isDecode;
      decode ||= isDecode;
      if (wanted) {
        timeline.tokens.set(row.pos + 1, row.sampled);
        timeline.sampled++;
      }
    }
    mixedTicks += prefill && decode ? 1 : 0;
    script.push('run');
  }
  const results = runReplay(script.map(tamper), setting);
  const different: string[] = [];
  let logits = 0;
  for (const [i, { rows }] of traces.entries()) {
    for (const [j, row] of rows.filter(({ logitsSha256 }) => logitsSha256.byteLength > 0).entries()) {
      logits++;
      const whole = results[i];
      if (whole?.sha256[j] !== Buffer.from(row.logitsSha256).toString('hex') || whole.argmax[j] !== row.sampled) {
        different.push(`tick ${i}, sequence ${row.sequence}, position ${row.pos}`);
      }
    }
  }
  return { rows: traces.reduce((sum, { rows }) => sum + rows.length, 0), logits, mixedTicks, different };
}

/** Id that the lane ran at this position; a finished turn gives way to the next. */
function tokenAt(timeline: Timeline, pos: number): number {
  const current = timeline.turns[timeline.turn] as PlayedTurn;
  if (timeline.sampled === current.maxTokens) {
    timeline.turn++;
    timeline.sampled = 0;
  }
  const turn = timeline.turns[timeline.turn] as PlayedTurn;
  const prompt = turn.ids[pos - turn.start];
  return timeline.sampled === 0 && prompt !== undefined ? prompt : timeline.tokens.get(pos) as number;
}

function runReplay(script: readonly string[], { model, cells, sequences, ubatch }: ReplaySetting): { sha256: string[]; argmax: number[] }[] {
  const stdout = execFileSync(path.join(BIN, 'meshnet-replay'), [
    '--model', model, '--threads', '1', '--cells', String(cells), '--sequences', String(sequences), '--ubatch', String(ubatch),
  ], { input: `${script.join('\n')}\n`, encoding: 'utf8', maxBuffer: 256 * 1024 * 1024 });
  return stdout.trim().split('\n').map((line) => JSON.parse(line) as { sha256: string[]; argmax: number[] });
}
