import type { CommandModule } from 'yargs';
import { loadConfig } from '../config.ts';
import type { ActivitySummary } from '../metrics/summary.ts';
import { activityLines, timeText } from './activity-text.ts';
import { ApiClient } from './api-client.ts';
import { interruptSignal, printable, printJson } from './output.ts';
import { shortPeer } from './route-text.ts';
import { apiOf } from './runtime-file.ts';

interface StatusArguments {
  api?: string;
  'data-dir'?: string;
  json?: boolean;
}

/** What `/health` answers, as far as it is shown. */
export interface StatusBody {
  status: string;
  node?: { peerId: string; addresses: string[]; peers: number; upSeconds: number };
  shard?: {
    state: string; verified: boolean; progress: number; architecture: string; layers: [number, number];
    nLayer: number; lanes: number; resting: number;
    cellsUsed: number; cellsTotal: number; sequencesUsed: number; sequencesTotal: number;
    weightBytes: number; kvBytes: number; seamPort: number;
    queueDepth: number; batchSize: number; tickUs: { decode: number; prefill: number }; ticks: number;
    error?: { code: string; message: string };
  };
  activity?: ActivitySummary;
  models?: { id: string; digest: string; coverage: string }[];
}

export const statusCommand: CommandModule<object, StatusArguments> = {
  command: 'status',
  describe: 'What the local node does now',
  builder: (yargs) => yargs
    .option('api', { type: 'string', describe: 'Base URL of the node, for example http://127.0.0.1:7070' })
    .option('data-dir', { type: 'string', describe: 'Data directory of the node' })
    .option('json', { type: 'boolean', describe: 'The whole status as one line of JSON' }),
  handler: async (argv) => {
    const config = loadConfig({ dataDir: argv['data-dir'] });
    const client = new ApiClient(apiOf(argv.api, config.dataDir), config.api.key);
    const body = await client.health<StatusBody>(interruptSignal());
    if (argv.json === true) {
      printJson(body);
    } else {
      process.stdout.write(`${lines(body).join('\n')}\n`);
    }
  },
};

export function lines({ status, node, shard, activity, models }: StatusBody): string[] {
  const who = shortPeer(node?.peerId ?? '?');
  return [
    `Meshnet  node ${who}  up ${duration(node?.upSeconds ?? 0)}  ${status.toUpperCase()}`,
    ...(shard === undefined ? [] : shardLines(shard)),
    ...(activity === undefined ? [] : activityLines(activity)),
    ...(models ?? []).map(({ id, coverage }) => ` Model     ${id}  layers known now: ${coverage}`),
    ` Network   ${node?.peers ?? 0} peers  ${node?.addresses[0] ?? 'no address'}`,
    ' Privacy   public mesh: operators of shards can reconstruct prompts',
  ];
}

function shardLines(shard: NonNullable<StatusBody['shard']>): string[] {
  const [first, last] = shard.layers;
  const state = shard.state === 'loading' ? `loading, ${Math.round(shard.progress * 100)} %` : shard.state;
  const what = `${shard.architecture} layers ${first}-${last} of ${shard.nLayer}`.trimStart();
  const cells = `${shard.cellsUsed}/${shard.cellsTotal}`;
  const sequences = `${shard.sequencesUsed}/${shard.sequencesTotal}`;
  return [
    ` Shard     ${what}  ${state}${shard.verified ? '' : ', unverified'}  ${sessionsText(shard)}`,
    ` Memory    weights ${mib(shard.weightBytes)}  KV ${mib(shard.kvBytes)}  cells ${cells}  sequences ${sequences}`,
    ...(shard.ticks === 0 ? [] : [workLine(shard)]),
    ...(shard.error === undefined ? [] : [` Problem   E_${shard.error.code}: ${printable(shard.error.message)}`]),
  ];
}

function sessionsText({ lanes, resting }: NonNullable<StatusBody['shard']>): string {
  return `${lanes} sessions${resting === 0 ? '' : `, ${resting} at rest`}`;
}

function workLine({ queueDepth, batchSize, tickUs }: NonNullable<StatusBody['shard']>): string {
  const [decode, prefill] = [timeText(tickUs.decode / 1000), timeText(tickUs.prefill / 1000)];
  return ` Work      queue ${queueDepth}  batch ${batchSize.toFixed(1)}  tick ${decode} decode, ${prefill} prefill`;
}

function mib(bytes: number): string {
  return `${(bytes / 1024 / 1024).toFixed(0)} MiB`;
}

function duration(seconds: number): string {
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
