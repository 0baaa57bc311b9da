import { R6_BYTES } from '../contract.ts';
import { lawMs } from '../mesh/measures.ts';
import { number } from '../runner/figures.ts';
import { ratioOf, type Ratio, type Rounds } from '../runner/rounds.ts';
import { HALF_RPC, type Question, type SpeedLane, type SystemName } from './lanes.ts';

/** Figures of a lane, with the names that `contract.ts` judges. */
export function ratiosOf(lane: SpeedLane, rounds: Rounds<SystemName>): Record<string, Ratio> {
  if (lane.kind === 'wire') {
    return wireRatios(rounds);
  }
  return {
    ...lane.kind === 'prefill' ? prefillRatios(rounds) : decodeRatios(lane, rounds),
    'memory/ours_over_bound': ratioOf(rounds, (runs) => number(runs.ours, 'memory_over_bound')),
  };
}

function prefillRatios(rounds: Rounds<SystemName>): Record<string, Ratio> {
  const over = (names: readonly SystemName[]): Ratio => ratioOf(rounds, (runs) =>
    number(runs.ours, 'prefill') / Math.max(...names.map((name) => number(runs[name], 'prefill'))));
  // The opponent at its best in each round.
  return { 'prefill/ours_over_local': over(['local']), 'prefill/ours_over_rpc1l': over(HALF_RPC) };
}

function decodeRatios({ sessions, delay, systems }: Question, rounds: Rounds<SystemName>): Record<string, Ratio> {
  const over = (name: SystemName): Ratio =>
    ratioOf(rounds, (runs) => number(runs.ours, 'decode') / number(runs[name], 'decode'));
  const ratios = Object.fromEntries(systems.filter((name) => name !== 'ours').map((name) => [`decode/ours_over_${name}`, over(name)]));
  if (sessions === 1) {
    // The law is of one token after the other.
    ratios['token/ours_over_law'] = ratioOf(rounds, ({ ours, local }) =>
      number(ours, 'step_p50_ms') / lawMs(number(local, 'step_p50_ms'), delay));
    if (delay > 0) {
      ratios['token/ours_over_paused_law'] = ratioOf(rounds, ({ ours, local }) =>
        number(ours, 'step_p50_ms') / lawMs(number(local, 'paused_step_p50_ms'), delay));
    }
  }
  return ratios;
}

function wireRatios(rounds: Rounds<SystemName>): Record<string, Ratio> {
  const ofOurs = (name: string): Ratio => ratioOf(rounds, ({ ours }) => number(ours, name));
  const over = (name: SystemName): Ratio =>
    ratioOf(rounds, (runs) => number(runs.ours, 'line_bytes') / number(runs[name], 'line_bytes'));
  return {
    'bytes/ours_over_bound': ratioOf(rounds, ({ ours }) =>
      number(ours, 'seam_bytes') / (number(ours, 'n_embd') * R6_BYTES.perValue + R6_BYTES.besides)),
    'messages/ours_per_microbatch': ofOurs('seam_messages_per_microbatch'),
    'logits/ours_bytes': ofOurs('logits_bytes'),
    'wire/ours_over_rpc1l': over('rpc1l'),
    'wire/ours_over_rpc2': over('rpc2'),
  };
}
