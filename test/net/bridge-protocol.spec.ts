import assert from 'node:assert/strict';
import { LIMITS } from '../../src/domain/limits.ts';
import { MeshnetError } from '../../src/errors.ts';
import { Bridge, type BridgeHandler, type PacketStream } from '../../src/net/bridge-protocol.ts';
import type { Host } from '../../src/net/host.ts';
import { PathKind, SeamEnd, type BridgeOpen } from '../../src/proto/peer_pb.js';
import { collect, rejects, Rig, SOON, targetOf } from './rig.ts';

const lane = { session: new Uint8Array(16).fill(1), epoch: 2, stage: 3 };
const ticket = new Uint8Array(32).fill(8);
const soon = () => ({ signal: AbortSignal.timeout(SOON.timeoutMs) });

describe('net/bridge-protocol', () => {
  const rig = new Rig();
  let near: Host;
  let far: Host;
  let bridge: Bridge;

  beforeEach(async () => {
    [far, near] = [await rig.host(), await rig.host()];
    bridge = new Bridge({ host: near });
  });
  afterEach(() => rig.stop());

  /** A seam whose far end the test holds too. */
  async function seam(): Promise<{ dialled: PacketStream; accepted: PacketStream; open: BridgeOpen; from: string }> {
    const got = Promise.withResolvers<{ accepted: PacketStream; open: BridgeOpen; from: string }>();
    await new Bridge({ host: far }).handle((open, from) => async (accepted) => got.resolve({ accepted, open, from }));
    const dialled = await bridge.dial({ ...targetOf(far), lane, end: SeamEnd.ENTRY, ticket }, soon());
    return { dialled, ...await got.promise };
  }

  it('hands lane, end, ticket and the authenticated peer to the listener, then carries packets', async () => {
    const { dialled, accepted, open, from } = await seam();
    assert.equal(from, near.peerId);
    assert.deepEqual([[...open.lane?.session ?? []], open.lane?.epoch, open.lane?.stage], [[...lane.session], 2, 3]);
    assert.deepEqual([open.end, [...open.ticket], open.version], [SeamEnd.ENTRY, [...ticket], 1]);
    assert.deepEqual([dialled.path, accepted.path], [PathKind.LIBP2P, PathKind.LIBP2P]);
    await dialled.write(Uint8Array.of(1), soon());
    await dialled.write(Uint8Array.of(2), soon());
    await dialled.close(soon());
    await accepted.write(Uint8Array.of(3), soon());
    await accepted.close(soon());
    const bytes = async (stream: PacketStream) => (await collect(stream.read())).map((packet) => [...packet]);
    assert.deepEqual(await bytes(accepted), [[1], [2]]);
    assert.deepEqual(await bytes(dialled), [[3]]);
  });

  it('slows the sender down when nobody takes the packets', async () => {
    const { dialled, accepted } = await seam();
    let written = 0;
    const writing = (async () => {
      for (let i = 0; i < 16; i++) {
        await dialled.write(new Uint8Array(LIMITS.packetBytes).fill(i), { signal: AbortSignal.timeout(20_000) });
        written++;
      }
      await dialled.close(soon());
    })();
    let read = 0;
    for await (const packet of accepted.read()) {
      assert.equal(packet[0], read++);
      assert.ok(written - read <= 4, `${written - read} packets ahead of the reader`);
    }
    await writing;
    assert.equal(read, 16);
  });

  it('gives the dialler the refusal', async () => {
    await new Bridge({ host: far }).handle(() => {
      throw new MeshnetError('TICKET_INVALID', 'no', { details: { end: 1 } });
    });
    await rejects(bridge.dial({ ...targetOf(far), lane, end: SeamEnd.LOOP, ticket }, soon()), 'TICKET_INVALID', { end: '1' });
  });

  it('refuses an open without a lane or with an unknown end before anybody is asked', async () => {
    let asked = 0;
    const handler: BridgeHandler = () => {
      asked++;
      return async () => undefined;
    };
    await new Bridge({ host: far }).handle(handler);
    const target = targetOf(far);
    await rejects(bridge.dial({ ...target, lane: { ...lane, session: new Uint8Array(2) }, end: SeamEnd.LOOP, ticket }, soon()), 'MALFORMED');
    await rejects(bridge.dial({ ...target, lane, end: SeamEnd.UNSPECIFIED, ticket }, soon()), 'MALFORMED');
    await rejects(bridge.dial({ ...target, lane: { ...lane, stage: 99 }, end: SeamEnd.LOOP, ticket }, soon()), 'LIMIT_EXCEEDED');
    assert.equal(asked, 0);
  });

  it('says that a node which is away or has no bridge cannot be reached', async () => {
    await rejects(bridge.dial({ ...targetOf(far), lane, end: SeamEnd.LOOP, ticket }, soon()), 'SEAM_UNREACHABLE', { reason: 'protocol' });
    const target = targetOf(far);
    await far.stop(SOON);
    await rejects(bridge.dial({ ...target, lane, end: SeamEnd.LOOP, ticket }, soon()), 'SEAM_UNREACHABLE');
  });

  it('stops waiting for a silent listener at the signal', async () => {
    await new Bridge({ host: far }).handle(() => new Promise(() => undefined));
    const dialling = bridge.dial({ ...targetOf(far), lane, end: SeamEnd.LOOP, ticket }, { signal: AbortSignal.timeout(60) });
    await rejects(dialling, 'DEADLINE_EXCEEDED');
  });

  it('tells both ends of a reset and of a reader that leaves', async () => {
    const first = await seam();
    first.dialled.abort(new Error('worker gone'));
    await rejects(collect(first.accepted.read()), 'STREAM_ENDED');
    await rejects(collect(first.dialled.read()), 'INTERNAL');
    const second = await seam();
    await second.dialled.write(Uint8Array.of(1), soon());
    const reading = second.accepted.read()[Symbol.asyncIterator]();
    assert.equal((await reading.next()).done, false);
    await reading.return?.();
    await rejects(collect(second.dialled.read()), 'STREAM_ENDED', { reason: 'reset' });
  });

  it('refuses a packet that is longer than any may be', async () => {
    const { dialled } = await seam();
    await rejects(dialled.write(new Uint8Array(LIMITS.packetBytes + 1), soon()), 'FRAME_TOO_LARGE');
  });
});
