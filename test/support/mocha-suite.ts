/** Runs the spec files named as arguments and sends their totals to the parent process, if there is one. */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import Mocha from 'mocha';

// Mocha swallows a rejection that nobody handles unless it becomes an exception, which fails the running test.
process.on('unhandledRejection', (reason) => {
  throw reason;
});

const config = JSON.parse(readFileSync(resolve('.mocharc.json'), 'utf8')) as Mocha.MochaOptions;
const mocha = new Mocha({ ...config, forbidOnly: true });
for (const file of process.argv.slice(2)) {
  mocha.addFile(resolve(file));
}
await mocha.loadFilesAsync();
const runner = mocha.run((failures) => {
  process.exitCode = failures === 0 ? 0 : 1;
  const { passes = 0, pending = 0 } = runner.stats ?? {};
  process.send?.({ passed: passes, failed: failures, skipped: pending });
  process.disconnect?.();
});
