import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { assertRuntime, isSupportedRuntime } from '../../src/cli/runtime.ts';
import { isMeshnetError } from '../../src/errors.ts';

describe('cli/runtime', () => {
  it('accepts exactly what engines in package.json allows', () => {
    for (const version of ['v22.23.2', 'v22.24.0', 'v24.18.1', 'v24.22.3', 'v26.0.0', '24.18.1']) {
      assert.ok(isSupportedRuntime(version), version);
    }
    for (const version of ['v20.20.2', 'v22.23.1', 'v22.9.9', 'v23.11.0', 'v24.18.0', 'v24.0.0', 'unknown']) {
      assert.ok(!isSupportedRuntime(version), version);
    }
  });

  it('refuses an older Node.js with the range that it needs', () => {
    const { engines } = JSON.parse(readFileSync('package.json', 'utf8')) as { engines: { node: string } };
    assert.throws(() => assertRuntime('v20.20.2'), (err) => {
      assert.ok(isMeshnetError(err, 'RUNTIME_UNSUPPORTED'));
      assert.deepEqual(err.details, { found: 'v20.20.2', needs: engines.node });
      return true;
    });
    assertRuntime();
  });
});
