import { readFile } from 'node:fs/promises';
import { MeshnetError } from '../../src/errors.ts';
import type { Report } from '../../src/proto/worker_pb.js';
import { ControlClient } from '../../src/worker/control-client.ts';

/** What sessions hold at a worker. */
export interface Held {
  readonly cells: number;
  readonly sequences: number;
}

/** For the first report, which comes at once, this is only a number above nothing. */
const REPORT_MS = 60_000;

/** What a worker itself says now, asked over its control socket: what its node shows is up to a second old. */
export class WorkerStatus {
  readonly pid: number;
  readonly #client: ControlClient;

  private constructor(pid: number, client: ControlClient) {
    this.pid = pid;
    this.#client = client;
  }

  /** REQUIRES: the process is a worker of this user. `close` it. */
  static async of(pid: number): Promise<WorkerStatus> {
    const args = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0');
    const token = await readFile(argument(args, '--token-file'));
    return new WorkerStatus(pid, new ControlClient({ socketPath: argument(args, '--control'), token }));
  }

  /** @throws {MeshnetError} WORKER_LOST, DEADLINE_EXCEEDED, CANCELLED; as `report` */
  async held(signal: AbortSignal): Promise<Held> {
    const { budget } = await this.#client.describe({ signal });
    if (budget === undefined) {
      throw new MeshnetError('NOT_SERVING', 'a worker has no budget yet', { details: { pid: this.pid } });
    }
    const { cellsTotal, cellsFree, sequencesTotal, sequencesFree } = budget;
    return { cells: cellsTotal - cellsFree, sequences: sequencesTotal - sequencesFree };
  }

  async report(signal: AbortSignal): Promise<Report> {
    for await (const { kind } of this.#client.watch(REPORT_MS, { signal })) {
      if (kind.case === 'report') {
        return kind.value;
      }
    }
    throw new MeshnetError('WORKER_LOST', 'a worker ended its watch', { details: { pid: this.pid } });
  }

  close(): void {
    this.#client.close();
  }
}

function argument(args: readonly string[], name: string): string {
  const at = args.indexOf(name);
  const value = at < 0 ? undefined : args[at + 1];
  if (value === undefined) {
    throw new MeshnetError('INTERNAL', `the process has no ${name}: it is no worker`);
  }
  return value;
}
