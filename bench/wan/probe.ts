import path from 'node:path';
import { z } from 'zod';
import { MeshnetError } from '../../src/errors.ts';
import { LineProgram } from '../systems/line-program.ts';
import { BIN } from '../systems/native.ts';
import { stopAll } from '../systems/stop-all.ts';
import type { DelayLine } from './delay-line.ts';

const PROGRAM = path.join(BIN, 'meshnet-delay-probe');
const START_MS = 30_000;
const ANSWER_MS = 120_000;

const Ready = z.object({ ready: z.literal(true) });
const Times = z.object({ us: z.array(z.number()), lost: z.int().default(0) });
const Transfer = z.object({ ms: z.number(), intact: z.boolean() });
const Refused = z.object({ error: z.string() });

export interface Echoes {
  readonly n: number;
  readonly bytes: number;
  /** Idle time before each. @default 0 */
  readonly gapUs?: number;
}

export interface ProbeInit {
  readonly from: number;
  readonly to: number;
  /** Where the client finds the server. @default the address on the line */
  readonly address?: string;
  /** Stands before both programs. */
  readonly launcher?: readonly string[];
}

/** Sends from one namespace of a line to a program in another, and tells how long it took there and back. */
export class Probe {
  readonly #server: LineProgram;
  readonly #client: LineProgram;

  private constructor(server: LineProgram, client: LineProgram) {
    this.#server = server;
    this.#client = client;
  }

  static async open(line: DelayLine, init: ProbeInit): Promise<Probe> {
    const { from, to, address = line.namespaces[to]?.address ?? '', launcher = [] } = init;
    const server = new LineProgram(...line.command(to, [...launcher, PROGRAM, '--serve', 'yes']));
    try {
      Ready.parse(await server.next({ timeoutMs: START_MS }));
      return new Probe(server, new LineProgram(...line.command(from, [...launcher, PROGRAM, '--to', address])));
    } catch (err) {
      await server.stop();
      throw err;
    }
  }

  /** UDP, one datagram after another. Microseconds, and how many came not back. */
  async datagrams({ n, bytes, gapUs = 0 }: Echoes): Promise<{ us: number[]; lost: number }> {
    return Times.parse(await this.#ask({ do: 'udp', n, bytes, gap_us: gapUs }));
  }

  /** One new TCP connection; each frame is sent back when all of it has come. Before them one of `warmBytes`, untimed. */
  async frames({ n, bytes, gapUs = 0, warmBytes }: Echoes & { warmBytes?: number | undefined }): Promise<number[]> {
    return Times.parse(await this.#ask({ do: 'frames', n, bytes, gap_us: gapUs, warm_bytes: warmBytes })).us;
  }

  /** One TCP connection, one way; until the receiver's hash of all of it has come back. */
  async bulk(bytes: number): Promise<{ ms: number; intact: boolean }> {
    return Transfer.parse(await this.#ask({ do: 'bulk', bytes }));
  }

  async close(): Promise<void> {
    await stopAll([this.#client, this.#server]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #ask(request: object): Promise<unknown> {
    const answer = await this.#client.ask<unknown>(JSON.stringify(request), { timeoutMs: ANSWER_MS });
    const refused = Refused.safeParse(answer);
    if (refused.success) {
      throw new MeshnetError('INTERNAL', `the probe failed: ${refused.data.error}`, { details: { request } });
    }
    return answer;
  }
}
