import { once } from 'node:events';
import type { ClientDuplexStream, ServerDuplexStream } from '@grpc/grpc-js';
import { MeshnetError, toMeshnetError } from '../errors.ts';
import { fromAbort, fromCallError, isServiceError, toCallStatus } from './grpc-error.ts';
import type { AbortOptions, PacketDuplex } from './packet-duplex.ts';
import { Watchdog, type WatchdogLimits } from './watchdog.ts';

export interface PumpLimits extends WatchdogLimits {
  /** From the end of one direction to the end of the other. @default 10000 ms */
  readonly lingerMs?: number;
}

/** One end of a gRPC stream of whole messages. */
export interface PacketCall {
  readonly stream: ClientDuplexStream<Buffer, Buffer> | ServerDuplexStream<Buffer, Buffer>;
  /** No more messages from this end. A server ends both directions by it. */
  end(): void;
  /** Breaks the call at once. */
  abort(err: MeshnetError): void;
}

export function clientCall(stream: ClientDuplexStream<Buffer, Buffer>): PacketCall {
  return { stream, end: () => stream.end(), abort: () => stream.cancel() };
}

export function serverCall(stream: ServerDuplexStream<Buffer, Buffer>): PacketCall {
  // The status leaves with the last message; what the client still sends is nobody's then.
  stream.once('finish', () => stream.destroy());
  return {
    stream,
    end: () => stream.end(),
    abort: (err) => {
      if (!stream.destroyed && !stream.writableEnded) {
        stream.emit('error', Object.assign(new Error(err.message), toCallStatus(err)));
      }
    },
  };
}

/**
 * Carries packets between a gRPC call and a packet stream until both directions have ended, without looking into one.
 * No more than a handful of packets wait here: a slow receiver slows the sender. Never throws: gives the error that
 * ended it, or undefined when both directions ended in order.
 *
 * When one side breaks, what it sent before still reaches the other, whose stream then ends early.
 */
export async function pump(
  call: PacketCall,
  packets: PacketDuplex,
  options: AbortOptions & { limits?: PumpLimits },
): Promise<MeshnetError | undefined> {
  const { stream } = call;
  const dog = new Watchdog(options.limits);
  const late = new AbortController();
  const signal = AbortSignal.any([options.signal, dog.signal, late.signal]);
  let linger: NodeJS.Timeout | undefined;
  let ended = false;
  let fault: MeshnetError | undefined;

  const fail = (err: unknown): void => {
    if (!ended) {
      fault ??= signal.aborted ? fromAbort(signal, 'a bridged seam') : toMeshnetError(err);
    }
  };
  const breakOff = (): void => {
    const err = fromAbort(signal, 'a bridged seam');
    fail(err);
    packets.abort(err);
    call.abort(err);
  };
  const waitForOther = (): void => {
    linger ??= setTimeout(() => {
      late.abort(new MeshnetError('STREAM_ENDED', 'only one direction of a bridged seam has ended'));
    }, options.limits?.lingerMs ?? 10_000);
  };

  const outward = async (): Promise<void> => {
    try {
      for await (const packet of stream.iterator({ destroyOnReturn: false })) {
        dog.taken('up');
        await packets.write(packet as Buffer, { signal });
        dog.passed('up');
      }
    } catch (err) {
      const why = isServiceError(err) ? fromCallError(err, 'Stream') : broken(err);
      fail(why);
      call.abort(why);
    }
    dog.ended('up');
    waitForOther();
    await packets.close({ signal }).catch(fail);
  };
  const inward = async (): Promise<void> => {
    try {
      for await (const packet of packets.read()) {
        dog.taken('down');
        if (!stream.write(bufferOf(packet))) {
          await once(stream, 'drain', { signal });
        }
        dog.passed('down');
      }
      ended = fault === undefined && 'sendMetadata' in stream;
      call.end();
    } catch (err) {
      fail(err);
      call.abort(toMeshnetError(err));
    }
    dog.ended('down');
    waitForOther();
  };

  // A cancelled call ends with an error that nobody waits for any more.
  stream.on('error', () => undefined);
  if (signal.aborted) {
    breakOff();
  } else {
    signal.addEventListener('abort', breakOff, { once: true });
  }
  await Promise.all([outward(), inward()]);
  signal.removeEventListener('abort', breakOff);
  clearTimeout(linger);
  dog.stop();
  return fault;
}

function broken(cause: unknown): MeshnetError {
  return cause instanceof MeshnetError
    ? cause
    : new MeshnetError('STREAM_ENDED', 'the worker dropped a bridged seam', { cause });
}

function bufferOf(packet: Uint8Array): Buffer {
  return Buffer.from(packet.buffer, packet.byteOffset, packet.byteLength);
}
