import assert from 'node:assert/strict';
import fc from 'fast-check';
import { isMeshnetError } from '../../src/errors.ts';
import { answer, type AnswerEnd, type AnswerPart } from '../../src/gateway/answer.ts';
import type { TokenEvent } from '../../src/gateway/backend.ts';
import { ByteText, END, idsOf } from './scripted-backend.ts';

const { signal } = new AbortController();

async function collect(events: TokenEvent[], stop: string[] = []): Promise<{ parts: AnswerPart[]; text: string; end: AnswerEnd; left: boolean }> {
  let left = false;
  const source = async function* (): AsyncGenerator<TokenEvent> {
    let done = false;
    try {
      yield* events;
      done = true;
    } finally {
      left = !done;
    }
  };
  const text = new ByteText();
  const parts: AnswerPart[] = [];
  const running = answer(source(), { vocabulary: text, stop }, { signal });
  while (true) {
    const next = await running.next();
    if (next.done === true) {
      return { parts, text: parts.map((part) => part.text).join(''), end: next.value, left };
    }
    parts.push(next.value);
  }
}

const said = (text: string, finish: NonNullable<TokenEvent['finish']> = 'end'): TokenEvent[] => [
  ...idsOf(text).map((id) => ({ ids: [id] })),
  finish === 'end' ? { ids: [END], finish } : { ids: [], finish },
];

describe('gateway/answer', () => {
  it('leaves out the end token and counts it', async () => {
    const { text, end } = await collect(said('Hi'));
    assert.equal(text, 'Hi');
    assert.deepEqual(end, { finish: 'stop', completionTokens: 3 });
  });

  it('says length when the answer was cut', async () => {
    assert.equal((await collect(said('Hi', 'max_tokens'))).end.finish, 'length');
    assert.equal((await collect(said('Hi', 'context_full'))).end.finish, 'length');
  });

  it('stops at a stop string, leaves the generation and counts the tokens up to it', async () => {
    const { text, end, left } = await collect([{ ids: idsOf('one, two, three') }], [', t']);
    assert.equal(text, 'one');
    assert.deepEqual(end, { finish: 'stop', completionTokens: 6 });
    assert.equal(left, true);
  });

  it('gives out held back text when the answer ends for another reason', async () => {
    assert.equal((await collect(said('a EN', 'max_tokens'), ['END'])).text, 'a EN');
    assert.equal((await collect(said('a EN'), ['END'])).text, 'a EN');
  });

  it('replaces a code point that never became complete', async () => {
    assert.equal((await collect([{ ids: [0x61, 0xf0, 0x9f], finish: 'max_tokens' }])).text, 'a\ufffd');
  });

  it('fails when the generation ends without a reason, or was cancelled elsewhere', async () => {
    await assert.rejects(collect([{ ids: [65] }]), (err) => isMeshnetError(err, 'STREAM_ENDED'));
    await assert.rejects(collect([{ ids: [], finish: 'cancelled' }]), (err) => isMeshnetError(err, 'CANCELLED'));
  });

  it('gives each token of the output once, with the text that it is part of', async () => {
    const ids = idsOf('né→x END');
    const logprobs = ids.map((id) => ({ logprob: -id, topIds: [id, 65], topLogprobs: [-id, -1000] }));
    const { parts, text } = await collect([{ ids: ids.slice(0, 2), logprobs: logprobs.slice(0, 2) },
      { ids: ids.slice(2), logprobs: logprobs.slice(2) }], ['END']);
    const tokens = parts.flatMap((part) => part.tokens);
    assert.equal(text, 'né→x ');
    assert.equal(Buffer.concat(tokens.map((token) => token.bytes)).toString(), text);
    assert.deepEqual(tokens.map((token) => token.logprob), idsOf(text).map((id) => -id));
    assert.deepEqual(tokens[0]?.top.map((top) => Buffer.from(top.bytes).toString()), ['n', 'A']);
  });

  it('gives the same text however tokens come in events', async () => {
    await fc.assert(fc.asyncProperty(fc.string({ unit: 'grapheme' }), fc.array(fc.nat(3)), async (text, cuts) => {
      const ids = idsOf(text);
      const events: TokenEvent[] = cuts.map((length) => ({ ids: ids.splice(0, length) }));
      const result = await collect([...events, { ids }, { ids: [END], finish: 'end' }], ['\u0000never']);
      assert.equal(result.text, text);
      assert.ok(result.parts.every((part) => part.text.isWellFormed()));
      assert.equal(result.end.completionTokens, idsOf(text).length + 1);
    }));
  });
});
