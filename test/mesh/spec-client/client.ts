/** One session from end to end, as proto/SPEC.md describes it. Shares no code with src/. */
import { randomBytes } from 'node:crypto';
import { multiaddr } from '@multiformats/multiaddr';
import type { Libp2p } from '@libp2p/interface';
import { findRoute, type Shard } from './directory.ts';
import { EntrySeam } from './entry.ts';
import { ensure } from './errors.ts';
import { createHost } from './host.ts';
import { Lease } from './lease.ts';
import { DType, Finish, Phase, type Frame } from './messages.ts';
import { linkAll, wishesOf } from './seams.ts';

/** Ids of one TurnTokens. */
const PIECE = 16_384;
const EPOCH = 1;
const TURN = 1;

export interface Question {
  /** Multiaddr with /p2p/ of any node of the mesh. */
  bootstrap: string;
  modelDigest: Uint8Array;
  nLayer?: number;
  ids: number[];
  maxTokens: number;
  /** @default 60000 ms for everything */
  timeoutMs?: number;
}

export interface Completion {
  tokens: number[];
  finish: keyof typeof Finish;
  stages: { peerId: string; first: number; last: number }[];
  /** PathKind of each seam between two stages. */
  paths: number[];
  /** StageTimes entries of the first loop frame. */
  nTimes: number;
}

/** Greedy tokens for `ids` on a fresh session. */
export async function completeOnce(question: Question): Promise<Completion> {
  const signal = AbortSignal.timeout(question.timeoutMs ?? 60_000);
  const host = await createHost();
  try {
    await host.dial(multiaddr(question.bootstrap), { signal });
    const route = await findRoute(host, question.modelDigest, signal);
    ensure(question.nLayer === undefined || route.at(-1)?.advertisement.nLayer === question.nLayer, 'number of layers');
    return await runSession(host, route, question, signal);
  } finally {
    await host.stop();
  }
}

async function runSession(host: Libp2p, route: Shard[], question: Question, signal: AbortSignal): Promise<Completion> {
  const leases = await admitAll(host, route, question, signal);
  let entry: EntrySeam | undefined;
  try {
    const paths = await linkAll(leases, signal);
    const [head] = leases;
    ensure(head !== undefined, 'a route has a head');
    entry = await EntrySeam.open(host, head, question.modelDigest, signal);
    const answer = await runTurn(entry, question, signal);
    await entry.close(signal);
    await Promise.all(leases.map((lease) => lease.release(signal)));
    const stages = route.map(({ advertisement }) => ({
      peerId: advertisement.peerId,
      first: advertisement.layerFirst,
      last: advertisement.layerLast,
    }));
    return { ...answer, stages, paths };
  } catch (err) {
    entry?.abort(err as Error);
    leases.forEach((lease) => lease.drop(err as Error));
    throw err;
  }
}

async function admitAll(host: Libp2p, route: Shard[], question: Question, signal: AbortSignal): Promise<Lease[]> {
  const session = randomBytes(16);
  const peers = route.map(({ advertisement }) => advertisement.peerId);
  const admissions = route.map((shard, stage) =>
    Lease.admit(
      host,
      shard,
      {
        version: 1,
        lane: { session, epoch: EPOCH, stage },
        nStages: route.length,
        modelDigest: question.modelDigest,
        layerFirst: shard.advertisement.layerFirst,
        layerLast: shard.advertisement.layerLast,
        positions: question.ids.length + question.maxTokens,
        deadlineMs: 10_000,
        seams: wishesOf(stage, peers, host.peerId.toString()),
        prefillDtype: DType.F32,
        decodeDtype: DType.F32,
      },
      signal,
    ),
  );
  const settled = await Promise.allSettled(admissions);
  const refused = settled.find((each) => each.status === 'rejected');
  const leases = settled.filter((each) => each.status === 'fulfilled').map((each) => each.value);
  if (refused !== undefined) {
    leases.forEach((lease) => lease.drop(refused.reason as Error));
    throw refused.reason;
  }
  return leases;
}

async function runTurn(entry: EntrySeam, { ids, maxTokens }: Question, signal: AbortSignal) {
  const turn = { turn: TURN, nTokens: ids.length, maxTokens, sampling: {}, logprobs: -1 };
  await entry.send({ turn }, signal);
  for (let at = 0; at < ids.length; at += PIECE) {
    const last = at + PIECE >= ids.length;
    await entry.send({ turnTokens: { turn: TURN, ids: ids.slice(at, at + PIECE), last } }, signal);
  }
  const tokens: number[] = [];
  for (let nTimes: number | undefined; ; ) {
    const frame = await entry.receive(signal);
    checkLoop(frame, ids.length + tokens.length);
    nTimes ??= frame.times.length;
    tokens.push(...frame.tokens);
    if (frame.finish !== 0) {
      const names = Object.keys(Finish) as (keyof typeof Finish)[];
      const finish = names.find((name) => Finish[name] === frame.finish);
      ensure(finish !== undefined, `finish ${frame.finish}`);
      ensure(entry.ackedByPeer === entry.nSent, 'the turn is over, yet not all of it acknowledged');
      return { tokens, finish, nTimes };
    }
  }
}

function checkLoop(frame: Frame, pos: number): void {
  ensure(frame.phase === Phase.LOOP, `phase ${frame.phase} on the entry seam`);
  ensure(frame.branch === 1, `branch ${frame.branch} in the first turn`);
  ensure(frame.pos === pos, `position ${frame.pos} where ${pos} is next`);
  ensure(frame.nTokens === frame.tokens.length, 'n_tokens does not count the tokens');
  ensure(frame.tensors.length === 0, 'a loop frame carries tensors');
  ensure(frame.nTokens > 0 || frame.finish !== 0, 'a loop frame carries nothing');
}
