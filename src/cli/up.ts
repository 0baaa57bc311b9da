import type { CommandModule } from 'yargs';
import { loadConfig, TIMES, type ConfigInput } from '../config.ts';
import { MeshnetError } from '../errors.ts';
import type { MeshnetNode, NodeEvent } from '../node.ts';
import { interruptSignal, printable, printJson } from './output.ts';
import { removeRuntimeFile, writeRuntimeFile } from './runtime-file.ts';

interface UpArguments {
  config?: string;
  model?: string;
  layers?: string;
  manifest?: string;
  use?: string[];
  listen?: string[];
  announce?: string[];
  bootstrap?: string[];
  lab?: boolean;
  'dht-server'?: boolean;
  'data-dir'?: string;
  'cache-dir'?: string;
  api?: boolean;
  'api-host'?: string;
  'api-port'?: number;
  'warm-sessions'?: number;
  'worker-threads'?: number;
  'worker-cells'?: number;
  'worker-sequences'?: number;
  'worker-ubatch'?: number;
  'worker-listen'?: string;
  'worker-endpoint'?: string[];
  direct?: boolean;
  'log-level'?: string;
  'until-eof'?: boolean;
  json?: boolean;
}

export const upCommand: CommandModule<object, UpArguments> = {
  command: 'up',
  describe: 'Run a node: serve a shard, use models, or both',
  builder: (yargs) => yargs
    .option('config', { type: 'string', describe: 'Configuration file (TOML); flags win over it' })
    .option('model', { type: 'string', describe: 'Model to serve: a name, a path, a URL, or `test`' })
    .option('layers', {
      type: 'string', implies: 'model', describe: 'A-B serves the layers [A, B): A is served, B is not; all when left out',
    })
    .option('manifest', { type: 'string', describe: 'Manifest of a file that holds only some layers', implies: 'model' })
    .option('use', { type: 'string', array: true, describe: 'NAME=DIGEST: a model that clients of this node may name' })
    .option('listen', { type: 'string', array: true, describe: 'Multiaddr to listen on [/ip4/0.0.0.0/tcp/4001]' })
    .option('announce', { type: 'string', array: true, describe: 'Multiaddr to announce in place of those found' })
    .option('bootstrap', { type: 'string', array: true, describe: 'Multiaddr of a first contact' })
    .option('lab', { type: 'boolean', describe: 'Loopback and private addresses count as reachable' })
    .option('dht-server', { type: 'boolean', describe: 'Answer DHT queries from the start, as with --lab' })
    .option('data-dir', { type: 'string', describe: 'Identity and state' })
    .option('cache-dir', { type: 'string', describe: 'Models, manifests and headers' })
    .option('api', { type: 'boolean', describe: 'The HTTP API; --no-api for none [on]' })
    .option('api-host', { type: 'string', describe: 'Address of the HTTP API [127.0.0.1]' })
    .option('api-port', { type: 'number', describe: 'Port of the HTTP API; 0 chooses one [7070]' })
    .option('warm-sessions', { type: 'number', describe: 'Conversations kept warm between two requests; 0 for none [16]' })
    .option('worker-threads', { type: 'number', describe: 'Threads of the worker [half of the cores]' })
    .option('worker-cells', { type: 'number', describe: 'KV cells: positions of all sessions together [8192]' })
    .option('worker-sequences', { type: 'number', describe: 'Sessions at once [16]' })
    .option('worker-ubatch', { type: 'number', describe: 'Positions of one compute unit [256]' })
    .option('worker-listen', { type: 'string', describe: 'HOST:PORT of the seam listener [0.0.0.0:0]' })
    .option('worker-endpoint', { type: 'string', array: true, describe: 'HOST:PORT that others dial for seams' })
    .option('direct', { type: 'boolean', describe: 'Direct gRPC seams; --no-direct: the bridge only [on]' })
    .option('log-level', { type: 'string', describe: 'trace, debug, info, warn, error or silent [info]' })
    .option('until-eof', { type: 'boolean', describe: 'Stop when stdin ends: with the program that started this' })
    .option('json', { type: 'boolean', describe: 'Events as lines of JSON on stdout' }),
  handler: async (argv) => {
    const config = loadConfig(inputOf(argv), argv.config);
    const signal = argv['until-eof'] === true ? AbortSignal.any([interruptSignal(), endOfInput()]) : interruptSignal();
    const report = argv.json === true ? printJson : peopleReport();
    const onEvent = (event: NodeEvent): void => {
      if (event.event === 'listening') {
        writeRuntimeFile(config.dataDir, { pid: process.pid, api: event.api, peer_id: event.peer_id });
      }
      report(event);
    };
    // Only this command needs all the parts of a node, and they take their time to load.
    const { MeshnetNode } = await import('../node.ts');
    const node = new MeshnetNode(config, { onEvent });
    try {
      await node.start({ signal });
      await ended(node, signal);
    } finally {
      removeRuntimeFile(config.dataDir, process.pid);
      await node.stop({ signal: AbortSignal.timeout(TIMES.stopMs) });
    }
  },
};

/** Holds nothing up by itself. */
function endOfInput(): AbortSignal {
  const ended = new AbortController();
  const abort = (): void => { ended.abort(); };
  process.stdin.on('end', abort).on('close', abort).on('error', abort).resume();
  process.stdin.unref();
  return ended.signal;
}

/** Until somebody asks it to stop, or it cannot go on. */
async function ended(node: MeshnetNode, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  const stop = (): void => { resolve(undefined); };
  signal.addEventListener('abort', stop, { once: true });
  if (signal.aborted) {
    stop();
  }
  const failure = await Promise.race([promise, node.failed]);
  if (failure !== undefined) {
    throw failure;
  }
}

function inputOf(argv: UpArguments): ConfigInput {
  return {
    dataDir: argv['data-dir'], cacheDir: argv['cache-dir'], listen: argv.listen, announce: argv.announce,
    bootstrap: argv.bootstrap, lab: argv.lab, dhtServer: argv['dht-server'],
    shard: argv.model === undefined ? undefined : { model: argv.model, layers: argv.layers, manifest: argv.manifest },
    worker: {
      threads: argv['worker-threads'], cells: argv['worker-cells'], sequences: argv['worker-sequences'],
      ubatch: argv['worker-ubatch'], listen: argv['worker-listen'], endpoints: argv['worker-endpoint'],
      noDirect: argv.direct === undefined ? undefined : !argv.direct,
    },
    warm: { sessions: argv['warm-sessions'] },
    api: { enabled: argv.api, host: argv['api-host'], port: argv['api-port'] },
    use: argv.use === undefined ? undefined : Object.fromEntries(argv.use.map(useEntry)),
    logLevel: argv['log-level'] as ConfigInput['logLevel'],
  };
}

function useEntry(text: string): [string, string] {
  const at = text.lastIndexOf('=');
  if (at <= 0) {
    throw new MeshnetError('CONFIG_INVALID', `--use ${text}: write NAME=DIGEST`, { details: { field: 'use' } });
  }
  return [text.slice(0, at), text.slice(at + 1)];
}

/** Lines on stderr; of a long progress one every tenth part. */
function peopleReport(): (event: NodeEvent) => void {
  let told = '';
  return (event) => {
    switch (event.event) {
      case 'progress': {
        const line = `${event.phase}  ${Math.floor(event.share * 10) * 10} %\n`;
        if (line !== told) {
          told = line;
          process.stderr.write(line);
        }
        break;
      }
      case 'listening':
        process.stderr.write(`node ${event.peer_id}\n${event.addresses.map((address) => `  ${address}\n`).join('')}`);
        process.stderr.write('Public mesh: operators of shards can reconstruct prompts. Send nothing private.\n');
        if (event.api !== undefined) {
          process.stderr.write(`API ${event.api}/v1\n`);
        }
        break;
      case 'shard': {
        const error = event.error === undefined ? '' : `: E_${event.error.code}: ${printable(event.error.message)}`;
        const unverified = event.state === 'serving' && !event.verified ? ' (unverified)' : '';
        process.stderr.write(`layers ${event.layers.join('-')}: ${event.state}${unverified}${error}\n`);
        break;
      }
      case 'model':
        process.stderr.write(`model ${event.model} ${event.digest}\n`);
        break;
    }
  };
}
