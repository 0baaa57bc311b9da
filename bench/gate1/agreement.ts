import path from 'node:path';
import { z } from 'zod';
import { BIN, run } from '../systems/native.ts';

const HOLD_MS = 1_800_000;

const Sums = z.object({
  rows: z.int().positive(),
  /** In nats. */
  mean_kl: z.number(),
  max_kl: z.number(),
  /** Share of equal first choices. */
  top1: z.number(),
  /** Of a row: ‖difference‖ ÷ ‖centred logits‖. */
  mean_difference: z.number(),
  max_difference: z.number(),
});
const Answer = Sums.extend({ engine: z.string(), texts: z.array(Sums) });

export type Agreement = Readonly<z.infer<typeof Answer>>;

export interface AgreementOf {
  /** A GGUF, or a file of logits. */
  readonly truth: { readonly model: string } | { readonly logits: string };
  readonly model: string;
  /** `{"texts": [[id...]...]}` */
  readonly texts: string;
  /** Computed at once. @default the program's own, as in a prefill */
  readonly rows?: number;
  readonly signal: AbortSignal;
}

/** How far a model's next-token distributions are from a truth's, over the same texts. */
export async function agreement({ truth, model, texts, rows, signal }: AgreementOf): Promise<Agreement> {
  // One thread: nothing is timed, and two that wait for each other are slow beside anything else.
  const { stdout } = await run(
    path.join(BIN, 'meshnet-bench-agreement'),
    [
      ...('model' in truth ? ['--truth', truth.model] : ['--logits', truth.logits]),
      '--model',
      model,
      '--texts',
      texts,
      '--threads',
      '1',
      ...(rows === undefined ? [] : ['--rows', String(rows)]),
    ],
    { signal, timeout: HOLD_MS },
  );
  return Answer.parse(JSON.parse(stdout));
}
