import http from 'node:http';
import { json } from 'node:stream/consumers';
import { z } from 'zod';

const HEALTH_MS = 10_000;

const Health = z.object({
  /** Answers that are being made, and requests that wait for room. */
  answers: z.int(),
  waiting: z.int(),
  models: z.array(z.object({ id: z.string(), coverage: z.string() })),
  shard: z.object({
    state: z.string(),
    engineClass: z.string(),
    workerPid: z.int(),
    tickUs: z.object({ decode: z.number(), prefill: z.number() }),
  }).optional(),
});
export type Health = z.infer<typeof Health>;

/** What a node says of itself. Its connection does not outlive the answer: a node's open files are counted. */
export async function healthOf(api: string, signal: AbortSignal): Promise<Health> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(HEALTH_MS)]);
  const body = await new Promise<unknown>((resolve, reject) => {
    http.get(`${api}/health`, { agent: false, signal: limit }, (response) => {
      json(response).then(resolve, reject);
    }).on('error', reject);
  });
  return Health.parse(body);
}
