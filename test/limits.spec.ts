import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { LIMITS } from '../src/domain/limits.ts';

type Key = keyof typeof LIMITS;

/** A row of SPEC.md's table by its first cell: for each of its values, who else states it. */
const ROWS: Record<string, { ts?: Key[]; native?: string[] }[]> = {
  'Packet, message on the bridge': [{ ts: ['packetBytes'], native: ['kMaxPacketBytes'] }],
  'tensor data of a frame': [{ ts: ['framePayloadBytes'], native: ['kMaxPayloadBytes'] }],
  'frames of a packed packet': [{ native: ['kMaxFramesPerPacket'] }],
  'tensors of a frame; rank; name of a tensor': [
    { ts: ['tensorsPerFrame'], native: ['kMaxTensors'] },
    { ts: ['tensorRank'], native: ['kMaxRank'] },
    { native: ['kMaxTensorNameBytes'] },
  ],
  'positions of a frame': [{ native: ['kMaxFrameTokens'] }],
  'fields of a frame, nested ones too': [{ native: ['kMaxFieldsPerFrame'] }],
  'ids of a TurnTokens': [{ ts: ['tokensPerPiece'], native: ['kMaxTurnTokens'] }],
  grammar: [{ ts: ['grammarBytes'], native: ['kMaxGrammarBytes'] }],
  "the tail's time for the grammar of a turn; more with each token": [
    { native: ['kGrammarBurstMs'] },
    { native: ['kGrammarTokenMs'] },
  ],
  'top logprobs; logit biases': [
    { ts: ['topLogprobs'], native: ['kMaxLogprobs'] },
    { ts: ['logitBias'], native: ['kMaxLogitBias'] },
  ],
  'message of an Error; details; their keys; their values': [
    { ts: ['errorMessageBytes'], native: ['kMaxErrorMessageBytes'] },
    { ts: ['errorDetails'], native: ['kMaxDetails'] },
    { native: ['kMaxDetailKeyBytes'] },
    { native: ['kMaxDetailValueBytes'] },
  ],
  'frames without credit, received': [{ native: ['kMaxExemptFramesPerSecond'] }],
  'prefill credit of a seam': [{ native: ['kMaxCreditBytes'] }],
  'stages of a route': [{ ts: ['stagesPerRoute'], native: ['kMaxStages', 'kMaxStageTimes'] }],
  'session id; ticket; digest': [
    { ts: ['sessionBytes'], native: ['kSessionBytes'] },
    { ts: ['ticketBytes'], native: ['kTicketBytes'] },
    { ts: ['digestBytes'], native: ['kDigestBytes'] },
  ],
  'seam certificate; advertisement': [
    { ts: ['seamCertificateBytes'], native: ['kMaxCertificateBytes'] },
    { ts: ['advertisementBytes'] },
  ],
  'addresses; endpoints of an advertisement': [
    { ts: ['addressesPerAdvertisement'] },
    { ts: ['endpointsPerAdvertisement'], native: ['kMaxEndpoints'] },
  ],
  'advertisements of a directory answer; the answer': [
    { ts: ['advertisementsPerReply'] },
    { ts: ['directoryReplyBytes'] },
  ],
  'directory request': [{ ts: ['directoryRequestBytes'] }],
  'message of an admission stream': [{ ts: ['admitMessageBytes'] }],
  'chunk of a header transfer; manifest; header': [
    { ts: ['headerChunkBytes'] },
    { ts: ['manifestBytes'] },
    { ts: ['headerBytes'] },
  ],
  'layers; tensors of a model': [{ ts: ['layersPerModel'] }, { ts: ['tensorsPerModel'] }],
  'life of an advertisement': [{ ts: ['advertisementLifeMs'] }],
  'admission without Link': [{ ts: ['admitHoldMs'], native: ['kDefaultHoldMs'] }],
  'lease without a word': [{ ts: ['leaseTtlMs'] }],
};

const UNITS: Record<string, number> = {
  '': 1,
  bytes: 1,
  'a second': 1,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  ms: 1,
  s: 1000,
  minutes: 60_000,
};

/** First cell → values of the table under `## 9. Limits`; bytes and milliseconds. */
function limitsOfSpec(text: string): Map<string, number[]> {
  const section = /^## 9\. Limits$(?<body>[^]*?)^## /m.exec(text)?.groups?.['body'] ?? '';
  const rows = [...section.matchAll(/^\| (?<what>[^|]+) \| (?<limit>[^|]+) \|$/gm)];
  return new Map(rows.slice(1).map(({ groups }) => [groups?.['what'] ?? '', numbers(groups?.['limit'] ?? '')]));
}

function numbers(cell: string): number[] {
  return cell.split('; ').map((text) => {
    const { value = '', unit = '' } = /^(?<value>[\d,]+)(?: (?<unit>.+))?$/.exec(text)?.groups ?? {};
    return Number(value.replaceAll(',', '')) * (UNITS[unit] ?? Number.NaN);
  });
}

/** `inline constexpr TYPE NAME = A;`, `A << B` or `A * B`. */
function constantsOf(header: string): Map<string, number> {
  const line = /^inline constexpr \w+ (?<name>k\w+) = (?:uint64_t\{)?(?<a>\d+)\}?(?: (?<op><<|\*) (?<b>\d+))?;/gm;
  return new Map(
    [...header.matchAll(line)].map(({ groups = {} }) => {
      const [a, b] = [Number(groups['a']), Number(groups['b'])];
      return [groups['name'] ?? '', groups['op'] === '<<' ? a * 2 ** b : groups['op'] === '*' ? a * b : a];
    }),
  );
}

describe('limits', () => {
  const spec = limitsOfSpec(readFileSync('proto/SPEC.md', 'utf8'));

  it('knows every row of the table in SPEC.md', () => {
    assert.deepEqual([...spec.keys()].toSorted(), Object.keys(ROWS).toSorted());
    for (const [what, values] of spec) {
      assert.equal(values.length, ROWS[what]?.length, what);
    }
  });

  it('has the same numbers in SPEC.md and src/domain/limits.ts, and leaves none out', () => {
    const stated: Partial<Record<Key, number>> = {};
    for (const [what, values] of spec) {
      values.forEach((value, i) => ROWS[what]?.[i]?.ts?.forEach((key) => (stated[key] = value)));
    }
    assert.deepEqual(stated, { ...LIMITS });
  });

  it('has the same numbers in SPEC.md and native-worker/src/bounds.h', () => {
    const constants = constantsOf(readFileSync('native-worker/src/bounds.h', 'utf8'));
    for (const [what, values] of spec) {
      values.forEach((value, i) => {
        for (const name of ROWS[what]?.[i]?.native ?? []) {
          assert.equal(constants.get(name), value, `${what}: ${name}`);
        }
      });
    }
  });

  it('reads numbers as people write them', () => {
    assert.deepEqual(numbers('16,384; 4 KiB; 3 s; 2 minutes; 8 bytes'), [16_384, 4096, 3000, 120_000, 8]);
    assert.deepEqual(numbers('7 parsecs'), [Number.NaN]);
    const header = 'inline constexpr int kA = 3;  // why\ninline constexpr size_t kB = 2 * 5;\n';
    assert.deepEqual([...constantsOf(`${header}inline constexpr uint64_t kC = uint64_t{1} << 32;`)], [
      ['kA', 3],
      ['kB', 10],
      ['kC', 2 ** 32],
    ]);
  });
});
