import { assertRuntime } from './cli/runtime.ts';

assertRuntime();
const { runCli } = await import('./cli/run.ts');
process.exitCode = await runCli(process.argv.slice(2));
