import assert from 'node:assert/strict';
import { FrameParser } from '../../src/net/frame-guard.ts';
import { KAD_PROTOCOL } from '../../src/net/protocols.ts';
import { endOf, plainNoise, rawStream } from './raw-peer.ts';
import { ECHO, rawSocket, Rig, SOON } from './rig.ts';

const name = (text: string): Buffer => Buffer.concat([Buffer.from([text.length + 1]), Buffer.from(`${text}\n`)]);
const header = name('/multistream/1.0.0');
const isFinal = (protocol: string): boolean => ['/noise', KAD_PROTOCOL].includes(protocol);

/** Whether all of it may pass, given whole and byte by byte. */
function passes(...parts: Uint8Array[]): boolean {
  const bytes = Buffer.concat(parts);
  const whole = new FrameParser(isFinal);
  const single = new FrameParser(isFinal);
  const [one, other] = [whole.take(bytes), [...bytes].every((byte) => single.take(Uint8Array.of(byte)))];
  assert.equal(one, other);
  assert.equal(whole.done, single.done);
  return one;
}

describe('net/frame-guard', () => {
  const endless = Buffer.alloc(8, 0x80);

  it('lets a negotiation pass, and whatever comes after it', () => {
    assert.ok(passes(header, name('/noise'), endless, Buffer.alloc(100, 255)));
    assert.ok(passes(header, name('/other'), name('na'), name('ls'), name('/noise'), endless));
    assert.ok(passes(Buffer.from([0]), header));
  });

  it('refuses a length that does not end, at any point of the negotiation', () => {
    assert.ok(!passes(endless));
    assert.ok(!passes(header, endless));
    assert.ok(!passes(header, name('/other'), endless));
    assert.ok(!passes(Buffer.from([0x81, 0x08]), Buffer.alloc(2000)));
  });

  it('goes on looking where length-prefixed messages follow', () => {
    const message = Buffer.concat([Buffer.from([0xac, 0x02]), Buffer.alloc(300, 0x80)]);
    assert.ok(passes(header, name(KAD_PROTOCOL), message, message));
    assert.ok(!passes(header, name(KAD_PROTOCOL), message, endless));
  });

  describe('in a host', () => {
    const rig = new Rig();
    afterEach(() => rig.stop());

    it('takes peers that negotiate their muxer after the handshake', async () => {
      const host = await rig.host();
      await host.handle(ECHO, async (stream) => {
        await stream.writeBytes(await stream.readBytes(8, SOON) ?? new Uint8Array(), SOON);
      });
      for (let i = 0; i < 5; i++) {
        const raw = await rawStream(rig, host, ECHO.id, plainNoise);
        raw.send(Uint8Array.of(1, 9));
        const answer = new Promise<number[]>((resolve) => {
          raw.addEventListener('message', ({ data }) => resolve([...data.subarray()]));
        });
        assert.deepEqual(await answer, [1, 9]);
      }
    });

    it('closes a connection that begins with such a length, without waiting for a handshake', async () => {
      const socket = await rawSocket(rig, await rig.host());
      const closed = new Promise((resolve) => socket.once('close', resolve));
      socket.resume();
      socket.write(endless);
      await closed;
    });

    it('resets a DHT stream that goes on with such a length', async () => {
      const raw = await rawStream(rig, await rig.host({ dht: 'server' }), KAD_PROTOCOL);
      raw.send(endless);
      assert.equal(await endOf(raw), 'reset');
    });
  });
});
