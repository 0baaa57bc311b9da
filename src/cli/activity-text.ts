import type { ActivitySummary } from '../metrics/summary.ts';
import { printable } from './output.ts';

/** What a node did since its start, in the lines of `status`. */
export function activityLines({ requests, firstToken, perToken, seam, refusals }: ActivitySummary): string[] {
  const { answered, refused, failed, cancelled, open, waiting } = requests;
  const reasons = Object.entries(refusals).sort(([, a], [, b]) => b - a).map(([reason, count]) => `${reason} ${count}`);
  return [
    ` Requests  ${answered} answered  ${refused} refused  ${failed} failed  ${cancelled} cancelled`,
    ` Now       ${open} open  ${waiting} waiting`,
    ...(firstToken === undefined ? [] : [
      ` First     token after ${timeText(firstToken.p50)}, 95 % within ${timeText(firstToken.p95)}`,
    ]),
    ...(perToken === undefined ? [] : [
      ` Then      a token every ${timeText(perToken.p50)}, 95 % within ${timeText(perToken.p95)}`,
    ]),
    ...(seam === undefined ? [] : [
      ` Of it     queue ${timeText(seam.queue)}  compute ${timeText(seam.compute)}  ` +
        `hand-over ${timeText(seam.handover)}  network ${timeText(seam.network)}`,
    ]),
    ...(reasons.length === 0 ? [] : [` Refused   ${printable(reasons.join('  '))}`]),
  ];
}

export function timeText(ms: number): string {
  return ms < 1000 ? `${ms.toFixed(ms < 100 ? 1 : 0)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
