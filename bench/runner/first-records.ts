import { z } from 'zod';
import type { LaneRecord } from './lane-record.ts';
import { ratioOfValues, type Measures, type Round } from './rounds.ts';

/**
 * The first records of `seam` and `split` come from before the contract: their lanes have no place of their own. They
 * kept every round, so the contract's figures are made of those: medians over rounds, decode by all of its time.
 */

const Pressure = z.object({ load: z.number(), cpuAvg10: z.number().optional() });
const Quantiles = z.object({ p10: z.number(), p50: z.number(), p95: z.number() });

const Seam = z.object({
  context: z.object({ contended: z.boolean(), frames: z.int(), warmup: z.int(), pressure: z.object({ before: Pressure }) }),
  details: z.object({
    rounds: z.array(z.object({ sizes: z.array(z.object({ bytes: z.int(), tcp_us: Quantiles, seam_us: Quantiles })) })),
  }),
});

const Times = z.object({ prefillMs: z.number(), decodeMs: z.number(), decodeMeanMs: z.number() });
const Pair = z.object({
  order: z.string(), one: Times, mesh: Times, stock: Times.omit({ decodeMeanMs: true }), probe: z.number(), pressure: Pressure,
});
const Split = z.object({
  context: z.object({
    lanes: z.array(z.object({ model: z.string(), prompt: z.int(), output: z.int(), contended: z.boolean() })),
  }),
  details: z.object({ lanes: z.array(z.object({ pairs: z.array(Pair), discarded: z.array(Pair) })) }),
});

/** Of the ratios of the lanes of `split`, by their place. */
const PREFIXES = ['', 'smollm2_'];

export function lanesOfFirstRecord(record: { readonly bench: string }): LaneRecord[] {
  return record.bench === 'seam' ? seamLanes(Seam.parse(record)) : splitLanes(Split.parse(record));
}

function seamLanes({ context: { contended, frames, warmup, pressure }, details }: z.infer<typeof Seam>): LaneRecord[] {
  const rounds = details.rounds.map(({ sizes }): Round => ({
    order: ['both'], probe: 1, pressure: pressure.before, wallMs: 0, runs: { both: seamMeasures(sizes) },
  }));
  const names = details.rounds[0]?.sizes.map(({ bytes }) => `${bytes / 1024}k`) ?? [];
  const p50 = ({ runs }: Round, name: string): number => Number(runs['both']?.[`${name}_p50_us`]);
  const ratios = Object.fromEntries(names.flatMap((size) => [
    [`seam_${size}_added_ms`, ratioOfValues(rounds.map((round) => (p50(round, `seam_${size}`) - p50(round, `tcp_${size}`)) / 1000))],
    [`seam_${size}_over_tcp`, ratioOfValues(rounds.map((round) => p50(round, `seam_${size}`) / p50(round, `tcp_${size}`)))],
  ]));
  return [{ key: { engine: 'an echo', frames, warmup }, systems: ['both'], long: false, contended, rounds, discarded: [], ratios }];
}

/** What both transports gave in a round, by size and quantile; the bench itself writes it in this form, too. */
export function seamMeasures(
  sizes: readonly { readonly bytes: number; readonly tcp_us: z.infer<typeof Quantiles>; readonly seam_us: z.infer<typeof Quantiles> }[],
): Measures {
  return Object.fromEntries(sizes.flatMap(({ bytes, tcp_us: tcp, seam_us: seam }) =>
    Object.entries({ tcp, seam }).flatMap(([name, quantiles]) =>
      Object.entries(quantiles).map(([which, value]) => [`${name}_${bytes / 1024}k_${which}_us`, value]))));
}

function splitLanes({ context, details }: z.infer<typeof Split>): LaneRecord[] {
  return context.lanes.map(({ model, prompt, output, contended }, i): LaneRecord => {
    const { pairs, discarded } = details.lanes[i] ?? { pairs: [], discarded: [] };
    const ratios = {
      decode_mesh_over_one_process: ratioOfValues(pairs.map(({ one, mesh }) => one.decodeMeanMs / mesh.decodeMeanMs)),
      prefill_mesh_over_one_process: ratioOfValues(pairs.map(({ one, mesh }) => one.prefillMs / mesh.prefillMs)),
      decode_one_process_over_stock: ratioOfValues(pairs.map(({ one, stock }) => stock.decodeMs / one.decodeMeanMs)),
      prefill_one_process_over_stock: ratioOfValues(pairs.map(({ one, stock }) => stock.prefillMs / one.prefillMs)),
    };
    const round = roundOf(prompt);
    return {
      key: { model, prompt, output, sessions: 1 }, systems: ['one', 'mesh', 'stock'], long: false, contended,
      rounds: pairs.map(round), discarded: discarded.map(round),
      ratios: Object.fromEntries(Object.entries(ratios).map(([name, ratio]) => [(PREFIXES[i] ?? '') + name, ratio])),
    };
  });
}

function roundOf(prompt: number): (pair: z.infer<typeof Pair>) => Round {
  const speeds = (prefillMs: number, tokenMs: number): Measures => ({ decode: 1000 / tokenMs, prefill: prompt / prefillMs * 1000 });
  return ({ order, probe, pressure, one, mesh, stock }) => ({
    order: ['stock', ...order.split(', ')], probe, pressure,
    wallMs: 0,
    runs: {
      one: speeds(one.prefillMs, one.decodeMeanMs),
      mesh: speeds(mesh.prefillMs, mesh.decodeMeanMs),
      stock: speeds(stock.prefillMs, stock.decodeMs),
    },
  });
}
