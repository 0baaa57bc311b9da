import { mkdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { MeshnetError } from '../../src/errors.ts';

/** Files of a memory control group, by the version of the kernel's interface. */
const VERSIONS = {
  1: { limit: 'memory.limit_in_bytes', kills: 'memory.oom_control' },
  2: { limit: 'memory.max', kills: 'memory.events' },
} as const;
type Version = keyof typeof VERSIONS;

interface Parent {
  readonly version: Version;
  readonly folder: string;
}

/** A limit on the memory of some processes, page cache included, that no swap softens. */
export class MemoryLimit {
  readonly #folder: string;
  readonly #version: Version;

  private constructor(folder: string, version: Version) {
    this.#folder = folder;
    this.#version = version;
  }

  /** @throws {MeshnetError} CONFIG_INVALID when this machine allows none */
  static async create(name: string, bytes: number): Promise<MemoryLimit> {
    const refusals: string[] = [];
    for (const { version, folder } of await parents()) {
      const limit = new MemoryLimit(path.join(folder, name), version);
      try {
        await limit.#make(bytes);
        return limit;
      } catch (err) {
        refusals.push(`${folder}: ${err instanceof Error ? err.message : String(err)}`);
        await limit.remove();
      }
    }
    const why = refusals.length === 0 ? 'there is none' : refusals.join('; ');
    throw new MeshnetError('CONFIG_INVALID', `no memory control group can be made: ${why}`);
  }

  /** Stands before a command, and becomes it, inside. */
  get launcher(): string[] {
    return ['sh', '-c', 'echo $$ > "$0" && exec "$@"', path.join(this.#folder, 'cgroup.procs')];
  }

  /** Processes that the kernel has killed for want of memory. */
  async kills(): Promise<number> {
    const text = await readFile(path.join(this.#folder, VERSIONS[this.#version].kills), 'utf8');
    return Number(/^oom_kill (\d+)$/m.exec(text)?.[1] ?? Number.NaN);
  }

  /** REQUIRES: its processes are gone. */
  async remove(): Promise<void> {
    await rmdir(this.#folder).catch((err: NodeJS.ErrnoException) => {
      if (err.code !== 'ENOENT') {
        throw err;
      }
    });
  }

  async #make(bytes: number): Promise<void> {
    await mkdir(this.#folder);
    await this.#write(VERSIONS[this.#version].limit, bytes);
    if (this.#version === 2) {
      await this.#write('memory.swap.max', 0);
    } else {
      // Memory and swap together, where the kernel counts swap at all; without it there must be none.
      await this.#write('memory.memsw.limit_in_bytes', bytes).catch(async () => {
        await this.#write('memory.swappiness', 0);
        await assertNoSwap();
      });
    }
    // Asked for now: a group whose kills cannot be told shows nothing.
    if (Number.isNaN(await this.kills())) {
      throw new MeshnetError('CONFIG_INVALID', 'the kernel does not count kills');
    }
  }

  #write(file: string, value: number): Promise<void> {
    return writeFile(path.join(this.#folder, file), String(value));
  }
}

async function assertNoSwap(): Promise<void> {
  const [, ...devices] = (await readFile('/proc/swaps', 'utf8')).trim().split('\n');
  if (devices.length > 0) {
    throw new MeshnetError('CONFIG_INVALID', 'swap is on, and cannot be limited');
  }
}

/** Where a group may be made: below our own one, and at the root. Version 2 needs the controller to be handed down. */
async function parents(): Promise<Parent[]> {
  const lines = (await readFile('/proc/self/cgroup', 'utf8')).trim().split('\n').map((line) => line.split(':'));
  const own = (isOurs: (controllers: string[]) => boolean): string =>
    lines.find(([, controllers = '']) => isOurs(controllers.split(',')))?.[2] ?? '/';
  const found: Parent[] = [];
  const v1 = '/sys/fs/cgroup/memory';
  for (const folder of new Set([path.join(v1, own((names) => names.includes('memory'))), v1])) {
    if (await text(path.join(folder, 'memory.limit_in_bytes')) !== undefined) {
      found.push({ version: 1, folder });
    }
  }
  const v2 = '/sys/fs/cgroup';
  for (const folder of new Set([path.join(v2, own(([name]) => name === '')), v2])) {
    const handed = await text(path.join(folder, 'cgroup.subtree_control'));
    if (handed?.split(/\s+/).includes('memory') === true) {
      found.push({ version: 2, folder });
    }
  }
  return found;
}

async function text(file: string): Promise<string | undefined> {
  return await readFile(file, 'utf8').catch(() => undefined);
}
