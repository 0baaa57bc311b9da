import { open, type FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import { MeshnetError } from '../../src/errors.ts';
import { LineProgram } from '../systems/line-program.ts';
import { BIN, run } from '../systems/native.ts';
import { CountersAnswer, type Counters, type PairCounters } from './counters.ts';

const PROGRAM = path.join(BIN, 'meshnet-delay-line');
/** Making eight namespaces takes some tens of milliseconds on a quiet machine. */
const OPEN_MS = 30_000;
const ANSWER_MS = 10_000;
/** Longer than the program itself waits for those that it kills. */
const SWEEP_MS = 30_000;

/** A namespace of the line. Its loopback is its own and never crosses the line. */
export interface DelayNamespace {
  readonly index: number;
  /** IPv4; the others reach it by this one. */
  readonly address: string;
  /** Stands before a command that shall run inside and becomes it; the command is killed when this process dies. */
  readonly enter: readonly string[];
}

export interface LinkSettings {
  /** How long every packet is held, each way. */
  readonly delayMs?: number;
  /** Of IP packets, each way between each two namespaces; 0 is no limit. */
  readonly rateMbit?: number;
  /** What may wait for the rate; more is dropped and counted. */
  readonly queueBytes?: number;
}

export interface DelayLineInit extends LinkSettings {
  /** 2 to 8. @default 2 */
  readonly namespaces?: number;
  /** @default 1500 */
  readonly mtu?: number;
  /** The core that the line itself runs on; any without it. */
  readonly core?: number;
  /** Set in every namespace, beside `SYSCTLS`. */
  readonly sysctls?: Readonly<Record<string, string>>;
}

/** No connection learns from one before it, or lanes would not be independent. */
const SYSCTLS: Readonly<Record<string, string>> = { 'net.ipv4.tcp_no_metrics_save': '1' };

const Ready = z.object({
  ready: z.literal(true),
  namespaces: z.array(z.object({ address: z.ipv4(), fd: z.int() })),
  mtu: z.int(),
  priority: z.enum(['fifo', 'nice', 'normal']),
  sysctls: z.record(z.string(), z.string()),
});
const Refused = z.object({ error: z.string() });

/**
 * Network namespaces, each with an address, between which every packet is held for a time. They have no name in the file
 * system: the kernel takes them away with this object, or with this process however it ends.
 */
export class DelayLine {
  readonly namespaces: readonly DelayNamespace[];
  /** For the record: what the connections inside depend on. */
  readonly context: { readonly mtu: number; readonly priority: string; readonly sysctls: Readonly<Record<string, string>> };
  readonly #program: LineProgram;
  /** As long as we hold them, their numbers are nobody else's, even when the line's process has died. */
  readonly #handles: readonly FileHandle[];
  #turn: Promise<unknown> = Promise.resolve();
  #closed: Promise<void> | undefined;

  private constructor(program: LineProgram, handles: readonly FileHandle[], ready: z.infer<typeof Ready>) {
    this.#program = program;
    this.#handles = handles;
    this.context = { mtu: ready.mtu, priority: ready.priority, sysctls: ready.sysctls };
    this.namespaces = ready.namespaces.map(({ address }, index) => ({
      index, address, enter: ['nsenter', `--net=${this.#paths[index]}`, '--', 'setpriv', '--pdeathsig', 'KILL', '--'],
    }));
  }

  /** Why there can be no line on this machine; nothing when there can. */
  static async unavailable(): Promise<string | undefined> {
    try {
      await run(PROGRAM, ['--check'], { timeout: OPEN_MS });
      await run('nsenter', ['--net=/proc/self/ns/net', '--', 'setpriv', '--pdeathsig', 'KILL', '--', 'true'], { timeout: OPEN_MS });
      return undefined;
    } catch (err) {
      const { stderr = '', message } = err as Error & { stderr?: string };
      return `no delay line: ${stderr.trim() || message}`;
    }
  }

  /** @throws MeshnetError INTERNAL with what was refused, DEADLINE_EXCEEDED */
  static async open(init: DelayLineInit, { signal }: { signal: AbortSignal }): Promise<DelayLine> {
    const program = new LineProgram(PROGRAM, [
      '--namespaces', String(init.namespaces ?? 2), '--mtu', String(init.mtu ?? 1500),
      ...init.core === undefined ? [] : ['--core', String(init.core)],
      ...Object.entries(linkFields(init)).flatMap(([name, value]) => [`--${name.replace('_', '-')}`, String(value)]),
      ...Object.entries({ ...SYSCTLS, ...init.sysctls }).flatMap(([name, value]) => ['--sysctl', `${name}=${value}`]),
    ]);
    const handles: FileHandle[] = [];
    try {
      const ready = Ready.parse(await program.next({ timeoutMs: OPEN_MS, signal }));
      for (const { fd } of ready.namespaces) {
        handles.push(await open(`/proc/${program.pid}/fd/${fd}`));
      }
      return new DelayLine(program, handles, ready);
    } catch (err) {
      await program.stop();
      await Promise.all(handles.map((handle) => handle.close()));
      throw err;
    }
  }

  /** The process that holds the packets. */
  get pid(): number {
    return this.#program.pid;
  }

  /** A command as it is run inside a namespace. */
  command(namespace: number, argv: readonly string[]): [string, string[]] {
    const [first = '', ...rest] = [...this.#at(namespace).enter, ...argv];
    return [first, rest];
  }

  /**
   * From the next packet on; `from` and `to` choose directions, all without them. What is under way keeps its time, and
   * none overtakes another.
   */
  async set(settings: LinkSettings & { from?: number; to?: number }, { signal }: { signal?: AbortSignal } = {}): Promise<void> {
    const { from, to } = settings;
    await this.#ask({ do: 'set', ...linkFields(settings), from, to }, signal);
  }

  async counters({ signal }: { signal?: AbortSignal } = {}): Promise<Counters> {
    return CountersAnswer.parse(await this.#ask({ do: 'counters' }, signal));
  }

  /** Counts from zero again. */
  async reset({ signal }: { signal?: AbortSignal } = {}): Promise<void> {
    await this.#ask({ do: 'reset' }, signal);
  }

  /** One direction of the counters. */
  async pair(from: number, to: number, options: { signal?: AbortSignal } = {}): Promise<PairCounters> {
    const found = (await this.counters(options)).pairs.find((pair) => pair.from === from && pair.to === to);
    if (found === undefined) {
      throw new MeshnetError('INTERNAL', 'the delay line has no such direction', { details: { from, to } });
    }
    return found;
  }

  /** Kills what runs inside and takes the namespaces away. @throws MeshnetError INTERNAL when something would not die */
  async close(): Promise<void> {
    this.#closed ??= this.#close();
    await this.#closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  get #paths(): string[] {
    return this.#handles.map(({ fd }) => `/proc/${process.pid}/fd/${fd}`);
  }

  #at(index: number): DelayNamespace {
    const found = this.namespaces[index];
    if (found === undefined || this.#closed !== undefined) {
      throw new MeshnetError('INTERNAL', 'the delay line is closed or has no such namespace', { details: { index } });
    }
    return found;
  }

  /** One question at a time: answers come in the order of the questions. */
  async #ask(request: object, signal?: AbortSignal): Promise<unknown> {
    const turn = this.#turn.then(() => this.#program.ask(JSON.stringify(request), { timeoutMs: ANSWER_MS, signal }));
    this.#turn = turn.catch(() => undefined);
    const answer = await turn;
    const refused = Refused.safeParse(answer);
    if (refused.success) {
      throw new MeshnetError('INTERNAL', `the delay line refused: ${refused.data.error}`, { details: { request } });
    }
    return answer;
  }

  async #close(): Promise<void> {
    try {
      await this.#program.stop();
      // The program has swept already, unless it was killed.
      await run(PROGRAM, this.#paths.flatMap((name) => ['--sweep', name]), { timeout: SWEEP_MS });
    } catch (err) {
      throw new MeshnetError('INTERNAL', 'something still runs in the namespaces of a delay line', { cause: err });
    } finally {
      await Promise.all(this.#handles.map((handle) => handle.close()));
    }
  }
}

function linkFields({ delayMs, rateMbit, queueBytes }: LinkSettings): Record<string, number> {
  return {
    ...delayMs === undefined ? {} : { delay_us: Math.round(delayMs * 1000) },
    ...rateMbit === undefined ? {} : { rate_bps: Math.round(rateMbit * 1e6) },
    ...queueBytes === undefined ? {} : { queue_bytes: queueBytes },
  };
}
