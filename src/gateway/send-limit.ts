import type { ServerResponse } from 'node:http';

/** Cuts the connection when not all of an answer has been taken within `ms` from now: no reader holds one for ever. */
export function limitSending(response: ServerResponse, ms: number): void {
  if (response.writableFinished || response.destroyed) {
    return;
  }
  const timer = setTimeout(() => response.destroy(), ms);
  const taken = (): void => clearTimeout(timer);
  response.once('finish', taken).once('close', taken);
}
