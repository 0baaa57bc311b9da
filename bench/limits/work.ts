import type { ModelShape, Weight } from './model-shape.ts';

const EMBEDDING = 'token_embd.weight';
const OUTPUT = 'output.weight';
const KEYS_AND_VALUES = /\.attn_[kv]\./;
/** Keys and values of our worker. */
const F16_BYTES = 2;

/** How a system holds the same model. */
export interface Held {
  /** Bytes of each weight where the system does not hold it as the file does: 4 for float32. */
  readonly weightBytes?: number | undefined;
  /** Bytes of one key or value. @default 2 */
  readonly kvBytes?: number | undefined;
}

export interface StepOf extends Held {
  /** Positions that each session holds before the step. */
  readonly context: number;
  readonly sessions: number;
}

export interface PrefillOf extends Held {
  /** Tokens of each prompt. */
  readonly context: number;
  readonly sessions: number;
  /** Rows that are computed at once: the weights are read again for each such batch. */
  readonly ubatch: number;
}

/** What has to be read and computed, whoever does it and however well. */
export interface Work {
  /** Of weights, by type. */
  readonly weightBytes: Readonly<Record<string, number>>;
  /** Of keys and values. */
  readonly kvBytes: number;
  /** All that is read. */
  readonly bytes: number;
  /** In products with weights; a multiply-add counts as two. */
  readonly matrixOps: number;
  readonly attentionOps: number;
  readonly ops: number;
}

/** One decode step: one token more for every session. */
export function decodeWork(shape: ModelShape, { context, sessions, ...held }: StepOf): Work {
  return workOf(shape, {
    held, passes: 1, rows: sessions, logits: sessions,
    // The token's own position belongs to what it looks at.
    looks: sessions * (context + 1), lastLooks: sessions * (context + 1), cells: sessions * (context + 1),
  });
}

/** All prompts of the sessions, until each has its first token. */
export function prefillWork(shape: ModelShape, { context, sessions, ubatch, ...held }: PrefillOf): Work {
  const rows = context * sessions;
  return workOf(shape, {
    held, passes: Math.ceil(rows / ubatch), rows, logits: sessions,
    looks: sessions * context * (context + 1) / 2, lastLooks: sessions * context,
    cells: cellsOf({ context, sessions, ubatch }),
  });
}

/** Cells that the batches of a prefill read, each one its sessions' up to the last row of theirs. */
function cellsOf({ context, sessions, ubatch }: PrefillOf): number {
  let cells = 0;
  const rows = context * sessions;
  for (let from = 0; from < rows; from += ubatch) {
    const to = Math.min(from + ubatch, rows);
    for (let session = Math.floor(from / context); session * context < to; session++) {
      cells += Math.min(to - session * context, context);
    }
  }
  return cells;
}

interface Counts {
  readonly held: Held;
  /** How often every weight is read. */
  readonly passes: number;
  /** Tokens that run through the layers. */
  readonly rows: number;
  /** Rows that need logits; of the last layer the others need keys and values alone. */
  readonly logits: number;
  /** Pairs of a token and a position that it looks at, in one layer. */
  readonly looks: number;
  /** In the last layer, where only rows with logits have to look. */
  readonly lastLooks: number;
  /** Positions whose keys and values are read, in one layer. */
  readonly cells: number;
}

function workOf(shape: ModelShape, { held, passes, rows, logits, looks, lastLooks, cells }: Counts): Work {
  const { nLayer, nHead, nHeadKv, keyWidth, valueWidth, tied, weights } = shape;
  const weightBytes: Record<string, number> = {};
  let matrixOps = 0;
  const read = (weight: Weight, share: number): void => {
    const [type, bytes] = held.weightBytes === undefined
      ? [weight.type, weight.bytes]
      : [`${held.weightBytes} bytes each`, weight.elements * held.weightBytes];
    weightBytes[type] = (weightBytes[type] ?? 0) + share * bytes;
  };
  for (const weight of weights) {
    const isHead = weight.name === (tied ? EMBEDDING : OUTPUT);
    if (weight.name === EMBEDDING) {
      read(weight, rows * weight.rowElements / weight.elements);
    }
    if (isHead) {
      // Only the last row of a prompt needs it, in the batch that has that row.
      read(weight, Math.min(passes, logits));
      matrixOps += 2 * weight.elements * logits;
    } else if (weight.name !== EMBEDDING) {
      read(weight, passes);
      const lastLayer = weight.name.startsWith(`blk.${nLayer - 1}.`) && !KEYS_AND_VALUES.test(weight.name);
      matrixOps += weight.elements > weight.rowElements ? 2 * weight.elements * (lastLayer ? logits : rows) : 0;
    }
  }
  const attentionOps = 2 * nHead * (keyWidth + valueWidth) * ((nLayer - 1) * looks + lastLooks);
  const kvBytes = nLayer * nHeadKv * (keyWidth + valueWidth) * cells * (held.kvBytes ?? F16_BYTES);
  const bytes = Object.values(weightBytes).reduce((sum, one) => sum + one, kvBytes);
  return { weightBytes, kvBytes, bytes, matrixOps, attentionOps, ops: matrixOps + attentionOps };
}
