import assert from 'node:assert/strict';
import fc from 'fast-check';
import { Utf8Assembler } from '../../src/gateway/utf8-assembler.ts';

describe('gateway/utf8-assembler', () => {
  it('holds a code point until it is complete', () => {
    const assembler = new Utf8Assembler();
    const fox = Buffer.from('🦊');
    assert.deepEqual([...fox].map((byte) => assembler.push(Uint8Array.of(byte))), ['', '', '', '🦊']);
    assert.equal(assembler.flush(), '');
  });

  it('gives one U+FFFD for what never became complete', () => {
    const assembler = new Utf8Assembler();
    assert.equal(assembler.push(Uint8Array.of(0x61, 0xf0, 0x9f)), 'a');
    assert.equal(assembler.flush(), '\ufffd');
  });

  it('keeps a byte order mark, which is text of the answer', () => {
    assert.equal(new Utf8Assembler().push(Buffer.from('\ufeffx')), '\ufeffx');
  });

  it('gives the same text however its bytes are cut, and never half a code point', () => {
    fc.assert(fc.property(fc.string({ unit: 'binary' }), fc.array(fc.nat(4), { maxLength: 60 }), (text, cuts) => {
      const whole = Buffer.from(text);
      const assembler = new Utf8Assembler();
      let out = '';
      let at = 0;
      for (const length of [...cuts, whole.length]) {
        const part = assembler.push(whole.subarray(at, at + length));
        assert.ok(part.isWellFormed());
        out += part;
        at += length;
      }
      assert.equal(out + assembler.flush(), whole.toString());
    }));
  });
});
