import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { loadConfig, MeshnetNode } from '../../src/index.ts';
import { answer, answerBeside, answerTwice, MODEL, Request } from './mesh-sessions.ts';

/**
 * A gateway as a line program: each line on stdin asks for sessions that run at once on routes of their own, and is
 * answered by one line. It runs where the head's host is, a namespace perhaps, so it is no part of the benchmark's process.
 */
const START_MS = 60_000;
const STOP_MS = 15_000;
/** A conversation goes on at once; those that are over are soon in nobody's way. */
const WARM_REST_MS = 2000;

const { values } = parseArgs({
  options: {
    'data-dir': { type: 'string' }, 'cache-dir': { type: 'string' }, listen: { type: 'string' }, announce: { type: 'string' },
    digest: { type: 'string' }, positions: { type: 'string' },
  },
});
let addresses: readonly string[] = [];
const node = new MeshnetNode(loadConfig({
  dataDir: values['data-dir'], cacheDir: values['cache-dir'], lab: true, listen: [values.listen ?? '/ip4/127.0.0.1/tcp/0'],
  announce: values.announce === undefined ? [] : [values.announce],
  sessionPositions: values.positions === undefined ? undefined : Number(values.positions),
  logLevel: 'warn', warm: { restMs: WARM_REST_MS }, api: { enabled: false }, use: { [MODEL]: values.digest ?? '' },
}), { onEvent: (event) => { addresses = event.event === 'listening' ? event.addresses : addresses; } });
await node.start({ signal: AbortSignal.timeout(START_MS) });
process.stdout.write(`${JSON.stringify({ ready: true, addresses })}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  const failed = new AbortController();
  let said: object;
  try {
    const { late, more, ...request } = Request.parse(JSON.parse(line));
    if (late !== undefined) {
      said = await answerBeside(node, { ...request, late }, failed.signal);
    } else if (more !== undefined) {
      said = await answerTwice(node, { ...request, more }, failed.signal);
    } else {
      said = await answer(node, request, failed.signal);
    }
  } catch (err) {
    // When one session fails, the others are of no use.
    failed.abort();
    said = { error: err instanceof Error ? err.message : String(err) };
  }
  process.stdout.write(`${JSON.stringify(said)}\n`);
}
await node.stop({ signal: AbortSignal.timeout(STOP_MS) });
