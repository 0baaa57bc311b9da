import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { LaneKey } from '../../../src/domain/lane.ts';
import type { LayerRange } from '../../../src/domain/shard.ts';
import { DType } from '../../../src/proto/seam_pb.js';
import { SeamRole, type AdmitReply, type LogitsTrace } from '../../../src/proto/worker_pb.js';
import { EntrySeam } from '../../../src/route/entry-seam.ts';
import { carryToWorker } from '../../../src/worker/bridge-client.ts';
import { packetPair } from '../../../src/worker/packet-pair.ts';
import { WorkerProcess, type WorkerProcessInit } from '../../../src/worker/process.ts';

export const BIN = path.join(import.meta.dirname, '..', '..', '..', 'native-worker', 'build', 'bin');
const GATEWAY = 'gateway';
const LINK_MS = 10_000;

export interface WorkerRouteInit extends Partial<WorkerProcessInit> {
  readonly model: string;
  readonly cuts: readonly LayerRange[];
}

/** Real workers of one model, linked by direct gRPC on the loopback; the test is their node and the gateway. */
export class WorkerRoute {
  readonly workers: WorkerProcess[];
  readonly modelDigest = new Uint8Array(32).fill(7);
  readonly traces: LogitsTrace[] = [];
  readonly #dir = mkdtempSync(path.join(os.tmpdir(), 'mw-'));

  constructor(init: WorkerRouteInit) {
    const { cuts, ...rest } = init;
    this.workers = cuts.map((layers, i) => new WorkerProcess({
      threads: 1, cells: 1024, sequences: 8, ubatch: 64, listen: '127.0.0.1:0', ...rest, binary: path.join(BIN, 'meshnet-worker'),
      runtimeDir: path.join(this.#dir, String(i)), layers, modelDigest: this.modelDigest, traceLogits: i === cuts.length - 1,
    }));
    this.workers.at(-1)?.on('trace', (trace) => { this.traces.push(trace); });
  }

  async start(): Promise<void> {
    for (const worker of this.workers) {
      worker.start();
    }
    await Promise.all(this.workers.map((worker) => worker.ready({ signal: AbortSignal.timeout(60_000) })));
  }

  /** Until the tail has told of so many rows of logits: the last of them come after the answer. */
  async traced(nLogits: number, signal: AbortSignal): Promise<void> {
    const count = (): number => this.traces.reduce((sum, { rows }) => sum + rows.filter(({ logitsSha256 }) => logitsSha256.byteLength > 0).length, 0);
    while (count() < nLogits) {
      await once(this.workers.at(-1) as WorkerProcess, 'trace', { signal });
    }
  }

  async stop(): Promise<void> {
    await Promise.all(this.workers.map((worker) => worker.stop()));
    rmSync(this.#dir, { recursive: true, force: true });
  }

  /** Admits, links and opens a session, as a gateway does by its nodes. */
  async open(positions: number): Promise<WorkerSession> {
    const session = new Uint8Array(randomBytes(16));
    const signal = AbortSignal.timeout(LINK_MS);
    const n = this.workers.length;
    const lanes = this.workers.map((_, stage): LaneKey => ({ session, epoch: 1, stage }));
    const admitted: AdmitReply[] = [];
    for (const [stage, worker] of this.workers.entries()) {
      admitted.push(await worker.client.admit({
        lane: lanes[stage], nStages: n, modelDigest: this.modelDigest, positions, holdMs: LINK_MS,
        seams: rolesOf(stage, n).map((role) => ({ role, peerId: role === SeamRole.ENTRY ? GATEWAY : `peer-${peerOf(role, stage, n)}` })),
        prefillDtype: DType.DTYPE_F32, decodeDtype: DType.DTYPE_F32,
      }, { signal }));
    }
    const link = async (from: number, role: SeamRole, to: number, toRole: SeamRole): Promise<void> => {
      await this.#link(lanes, { at: to, role: toRole, other: from, ticket: ticketOf(admitted[from], role), dial: false });
      await this.#link(lanes, { at: from, role, other: to, ticket: ticketOf(admitted[to], toRole), dial: true });
    };
    for (let stage = 0; stage + 1 < n; stage++) {
      await link(stage, SeamRole.TO_NEXT, stage + 1, SeamRole.TO_PREVIOUS);
    }
    if (n >= 3) {
      await link(n - 1, SeamRole.LOOP, 0, SeamRole.LOOP);
    }
    const [near, far] = packetPair();
    const life = new AbortController();
    const head = this.workers[0] as WorkerProcess;
    const carried = carryToWorker({
      target: head.target as NonNullable<WorkerProcess['target']>, ticket: ticketOf(admitted[0], SeamRole.ENTRY), peerId: GATEWAY, packets: far,
    }, { signal: life.signal });
    const entry = new EntrySeam(near, { lane: lanes[0] as LaneKey, modelDigest: this.modelDigest, positions });
    await entry.open({ signal });
    return { entry, lanes, leave: async () => {
      await entry.close({ signal: AbortSignal.timeout(LINK_MS) });
      life.abort();
      await carried;
      await Promise.all(this.workers.map((worker, i) => worker.client.release({ lane: lanes[i] }, { signal: AbortSignal.timeout(LINK_MS) })));
    } };
  }

  async #link(lanes: readonly LaneKey[], { at, role, other, ticket, dial }: { at: number; role: SeamRole; other: number; ticket: Uint8Array; dial: boolean }): Promise<void> {
    const { certificate, seamPort } = this.workers[other]?.description ?? { certificate: new Uint8Array(), seamPort: 0 };
    await this.workers[at]?.client.link({
      lane: lanes[at], role, peerId: `peer-${other}`, peerCertificateSha256: createHash('sha256').update(certificate).digest(), ticket, attempt: 1,
      timeoutMs: LINK_MS, ...(dial ? { direct: { endpoints: [`127.0.0.1:${seamPort}`], certificate } } : {}),
    }, { signal: AbortSignal.timeout(LINK_MS) });
  }
}

export interface WorkerSession {
  readonly entry: EntrySeam;
  readonly lanes: readonly LaneKey[];
  /** Closes in order and frees the lane on every stage. */
  leave(): Promise<void>;
}

function rolesOf(stage: number, n: number): SeamRole[] {
  const roles = [stage === 0 ? SeamRole.ENTRY : SeamRole.TO_PREVIOUS];
  if (stage + 1 < n) {
    roles.push(SeamRole.TO_NEXT);
  }
  if (n >= 3 && (stage === 0 || stage === n - 1)) {
    roles.push(SeamRole.LOOP);
  }
  return roles;
}

function peerOf(role: SeamRole, stage: number, n: number): number {
  switch (role) {
    case SeamRole.TO_NEXT: return stage + 1;
    case SeamRole.LOOP: return stage === 0 ? n - 1 : 0;
    default: return stage - 1;
  }
}

function ticketOf(reply: AdmitReply | undefined, role: SeamRole): Uint8Array {
  return reply?.tickets.find((ticket) => ticket.role === role)?.ticket ?? new Uint8Array();
}
