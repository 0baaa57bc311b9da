import { spawn, type ChildProcess } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { setTimeout } from 'node:timers/promises';
import { MeshnetError } from '../../src/errors.ts';
import { cpuSeconds } from './cpu-time.ts';
import { LineSystem } from './line-system.ts';
import { pssMiB } from './native.ts';
import { commandAt, type Place } from './place.ts';
import { stopAll } from './stop-all.ts';
import type { Job, JobResult, Started, System } from './system.ts';

const LISTEN_MS = 30_000;
const LOOK_EVERY_MS = 50;
const STOP_MS = 5000;
/** As in /proc/net/tcp. */
const LISTENING = '0A';
const COMPLAINT_CHARS = 2000;

export interface RpcOptions {
  readonly name: string;
  /** The client, which has the gateway's part, and in front of it perhaps some layers. */
  readonly client: Place;
  /** One RPC server each; `port` is free there. */
  readonly servers: readonly { readonly place: Place; readonly port: number }[];
  /** Of the unpatched tree. */
  readonly programs: { readonly whole: string; readonly server: string };
  readonly model: string;
  /** Layers that stay in the client; unset: none. */
  readonly localLayers?: number;
  /** Whether the output head stays there too, so that no logits come back. @default false, as in llama.cpp */
  readonly localOutput?: boolean;
  readonly cells: number;
  readonly sessions: number;
  readonly ubatch: number;
}

/** llama.cpp with its layers in RPC servers. */
export class RpcSystem implements System {
  readonly name: string;
  readonly #options: RpcOptions;
  readonly #client: LineSystem;
  readonly #servers: RpcServer[] = [];

  constructor(options: RpcOptions) {
    const { name, client, servers, programs, model, localLayers, localOutput = false, cells, sessions, ubatch } = options;
    this.name = name;
    this.#options = options;
    const [command, args] = commandAt(client, [
      programs.whole, '--model', model, '--threads', '1', '--cells', String(cells), '--sessions', String(sessions),
      '--ubatch', String(ubatch), '--rpc', servers.map(({ place, port }) => `${place.address}:${port}`).join(','),
      ...localLayers === undefined ? [] : ['--rpc-layers', `local:${localLayers}`],
      ...localOutput ? ['--rpc-output', 'local'] : [],
    ]);
    this.#client = new LineSystem({ name, command, args, cores: [client.core] });
  }

  async start(signal: AbortSignal): Promise<Started> {
    const began = performance.now();
    try {
      for (const { place, port } of this.#options.servers) {
        const server = new RpcServer(commandAt(place, [
          this.#options.programs.server, '--host', place.address, '--port', String(port), '--threads', '1',
        ]));
        this.#servers.push(server);
        await server.listening(port, signal);
      }
      return { ...await this.#client.start(signal), startMs: performance.now() - began };
    } catch (err) {
      await this.stop();
      throw err;
    }
  }

  async run(job: Job, signal: AbortSignal): Promise<JobResult> {
    const pids = [this.#client.pid, ...this.#servers.map(({ pid }) => pid)];
    const cpuBefore = await cpuSeconds(pids);
    const result = await this.#client.run(job, signal);
    return {
      ...result,
      memoryMiB: await Promise.all(pids.map((pid) => pssMiB(pid))),
      cpuS: await cpuSeconds(pids) - cpuBefore,
    };
  }

  async stop(): Promise<void> {
    await stopAll([this.#client, ...this.#servers.splice(0)]);
  }
}

/** One server, which serves until it is stopped. */
class RpcServer {
  readonly #child: ChildProcess;
  readonly #closed: Promise<void>;
  #over = false;
  #complaint = '';

  constructor([command, args]: [string, string[]]) {
    this.#child = spawn(command, args, { stdio: ['ignore', 'ignore', 'pipe'] });
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#complaint = (this.#complaint + text).slice(-COMPLAINT_CHARS);
    });
    this.#child.once('error', (err) => { this.#complaint += err.message; });
    this.#closed = new Promise((resolve) => {
      this.#child.once('close', () => {
        this.#over = true;
        resolve();
      });
    });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** It says nothing when it listens, so the kernel is asked, in the server's own network namespace. */
  async listening(port: number, signal: AbortSignal): Promise<void> {
    const deadline = performance.now() + LISTEN_MS;
    while (!await listens(this.pid, port)) {
      if (this.#over) {
        throw new MeshnetError('INTERNAL', `an RPC server ended early: ${this.#complaint}`);
      }
      if (performance.now() > deadline) {
        throw new MeshnetError('DEADLINE_EXCEEDED', `an RPC server does not listen within ${LISTEN_MS} ms: ${this.#complaint}`);
      }
      await setTimeout(LOOK_EVERY_MS, undefined, { signal });
    }
  }

  async stop(): Promise<void> {
    this.#child.kill('SIGTERM');
    const force = globalThis.setTimeout(() => { this.#child.kill('SIGKILL'); }, STOP_MS);
    await this.#closed;
    clearTimeout(force);
  }
}

/** Whether something in the network namespace of a process listens on the port: proc(5), `/proc/net/tcp`. */
async function listens(pid: number, port: number): Promise<boolean> {
  const table = await readFile(`/proc/${pid}/net/tcp`, 'utf8').catch(() => '');
  const end = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  return table.split('\n').slice(1).some((line) => {
    const [, local = '', , state] = line.trim().split(/\s+/);
    return local.endsWith(end) && state === LISTENING;
  });
}
