/** A small model with random weights, written by the native build's own generator. */
import { rm, stat } from 'node:fs/promises';
import { fileError } from './atomic-file.ts';
import { MeshnetError } from '../errors.ts';
import { ProgramMissingError, lastLine, runProgram } from './run-program.ts';
import { sourceLabel, type FetchJob, type FetchOptions, type Source } from './source.ts';

type GeneratedSource = Extract<Source, { kind: 'generated' }>;

const TIMEOUT_MS = 10 * 60_000;

/**
 * Leaves the model at `job.target`. The same options give the same bytes.
 *
 * @throws {MeshnetError} WORKER_BINARY_MISSING, SOURCE_UNAVAILABLE, DISK_FULL, CANCELLED
 */
export async function generate(
  source: GeneratedSource,
  job: FetchJob,
  options: FetchOptions,
  generator: string | undefined,
): Promise<void> {
  const label = sourceLabel(source);
  if (generator === undefined) {
    throw new MeshnetError('WORKER_BINARY_MISSING', 'the generator of test models has not been built', { details: { source: label } });
  }
  const args = source.options.split(',').flatMap((option) => {
    const [name, value = ''] = option.split('=');
    return [`--${name}`, value];
  });
  try {
    const { code, stderr } = await runProgram(generator, ['--out', job.target, ...args], {
      signal: options.signal, timeoutMs: TIMEOUT_MS,
    });
    if (code !== 0) {
      throw new MeshnetError('SOURCE_UNAVAILABLE', 'the test model could not be generated', {
        details: { source: label, exitCode: code, reason: lastLine(stderr) },
      });
    }
    const { size } = await stat(job.target);
    options.onProgress(size, size);
  } catch (err) {
    if (err instanceof ProgramMissingError) {
      throw new MeshnetError('WORKER_BINARY_MISSING', 'the generator of test models has not been built', {
        cause: err, details: { source: label, generator },
      });
    }
    throw fileError(err, job.target);
  } finally {
    // What the generator was writing when it was stopped.
    await rm(`${job.target}.part`, { force: true });
  }
}
