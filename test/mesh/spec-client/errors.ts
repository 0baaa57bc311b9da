/** What ends a session here: a rule of SPEC.md that the other end broke, or an Error that it sent. */
import type { Message } from './codec.ts';
import type { WireError } from './messages.ts';

export class ProtocolError extends Error {
  override readonly name = 'ProtocolError';
  /** Number of the code as in seam.proto; undefined when this end found the fault. */
  readonly code: number | undefined;

  constructor(message: string, code?: number) {
    super(message);
    this.code = code;
  }
}

export function fromWire(error: Message<typeof WireError>): ProtocolError {
  const details = error.details.map(({ key, value }) => ` ${key}=${value}`).join('');
  return new ProtocolError(`error ${error.code} of stage ${error.faultStage}: ${error.message}${details}`, error.code);
}

export function ensure(condition: boolean, message: string): asserts condition {
  if (!condition) {
    throw new ProtocolError(message);
  }
}
