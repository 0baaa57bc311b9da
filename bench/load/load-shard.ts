import type { NodeProcess } from '../../src/cli/node-process.ts';
import { MeshnetError } from '../../src/errors.ts';
import { pin } from '../systems/native.ts';
import { healthOf, type Health } from './health.ts';
import type { NamedProcess } from './processes.ts';
import { WorkerStatus } from './worker-status.ts';

type ShardHealth = NonNullable<Health['shard']>;

/** A node with its worker, which is on a core of its own. */
export class LoadShard {
  readonly root: NamedProcess;
  readonly peerId: string;
  readonly #node: NodeProcess;
  readonly #core: number;
  #status: WorkerStatus | undefined;
  #frozen: readonly number[] = [];

  /** REQUIRES: the node listens. */
  constructor(name: string, node: NodeProcess, core: number) {
    this.root = { name, pid: node.pid ?? 0 };
    this.peerId = node.listening.peer_id;
    this.#node = node;
    this.#core = core;
  }

  /** Of the worker that was serving when it was last looked for. */
  get worker(): WorkerStatus {
    if (this.#status === undefined) {
      throw new MeshnetError('INTERNAL', `${this.root.name} was not looked at yet`);
    }
    return this.#status;
  }

  /** Undefined until the node has begun with its shard. */
  async health(signal: AbortSignal): Promise<ShardHealth | undefined> {
    return (await healthOf(this.#node.listening.api ?? '', signal)).shard;
  }

  /** Of the worker. @throws {MeshnetError} NOT_SERVING */
  async engineClass(signal: AbortSignal): Promise<string> {
    const engineClass = (await this.health(signal))?.engineClass ?? '';
    if (engineClass === '') {
      throw new MeshnetError('NOT_SERVING', `${this.root.name} does not serve`);
    }
    return engineClass;
  }

  /** Looks for the worker that serves now; another one than before is put on its core. False while none serves. */
  async serves(signal: AbortSignal): Promise<boolean> {
    const shard = await this.health(signal);
    if (shard?.state !== 'serving') {
      return false;
    }
    const { workerPid } = shard;
    if (this.#status?.pid !== workerPid) {
      this.#status?.close();
      this.#status = undefined;
      await pin(workerPid, this.#core);
      this.#status = await WorkerStatus.of(workerPid);
    }
    return true;
  }

  /** Whether it serves, and no session holds anything there. A worker that is being replaced is not free. */
  async isFree(signal: AbortSignal): Promise<boolean> {
    try {
      if (!await this.serves(signal)) {
        return false;
      }
      const { cells, sequences } = await this.worker.held(signal);
      return cells === 0 && sequences === 0;
    } catch {
      signal.throwIfAborted();
      return false;
    }
  }

  /** Worker and node stop where they are: nobody reads, and nobody replaces the worker. */
  freeze(): void {
    this.#frozen = [this.worker.pid, this.root.pid];
    this.#signal('SIGSTOP');
  }

  thaw(): void {
    this.#signal('SIGCONT');
    this.#frozen = [];
  }

  close(): void {
    this.thaw();
    this.#status?.close();
    this.#status = undefined;
  }

  #signal(signal: NodeJS.Signals): void {
    for (const pid of this.#frozen) {
      try {
        process.kill(pid, signal);
      } catch {
        // It has ended meanwhile.
      }
    }
  }
}
