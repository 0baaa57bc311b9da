import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

describe('proto', () => {
  it('has in src/proto exactly what proto/*.proto generates', function () {
    this.timeout(60_000);
    const out = mkdtempSync(join(tmpdir(), 'meshnet-proto-'));
    try {
      execFileSync('bash', ['setup.sh', 'gen', out], { stdio: ['ignore', 'inherit', 'inherit'] });
      const names = readdirSync(out).toSorted();
      assert.ok(names.length > 0);
      assert.deepEqual(readdirSync('src/proto').toSorted(), names);
      for (const name of names) {
        assert.equal(readFileSync(join('src/proto', name), 'utf8'), readFileSync(join(out, name), 'utf8'), name);
      }
    } finally {
      rmSync(out, { recursive: true, force: true });
    }
  });
});
