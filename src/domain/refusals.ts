import type { ErrorCode } from '../errors.ts';

/** Refusals that the end of somebody else's session may change: worth waiting for. */
export const NO_ROOM: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'NO_CAPACITY', 'RESOURCE_EXHAUSTED', 'RATE_EXCEEDED', 'DRAINING',
]);

/** Refusals of what the client has asked for: another shard would answer the same. */
export const CLIENTS_FAULT: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'CONTEXT_FULL', 'TURN_INVALID', 'GRAMMAR_INVALID', 'TOKEN_INVALID',
]);
