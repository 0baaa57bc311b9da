import type { Clock } from './clock.ts';
import type { NetLog } from './log.ts';
import { isMeshnetError } from '../errors.ts';

/** The first pause after a failure; it doubles. */
const FIRST_PAUSE_MS = 1000;
/** Never longer, so that a mesh whose bootstrap was away for a day is whole again within a minute. */
const LONGEST_PAUSE_MS = 60_000;
/** How often it is looked whether a connection is still there, beside the event that says so. */
const CHECK_MS = 30_000;

export interface BootstrapComponents {
  /** Connects to an address, and gives the peer id found there. Rejects when the signal aborts. */
  dial(address: string, options: { signal: AbortSignal }): Promise<string>;
  isConnected(peerId: string): boolean;
  clock: Clock;
  /** In [0, 1). */
  random(): number;
  log: NetLog;
}

interface Contact {
  readonly address: string;
  peerId: string | undefined;
  pauseMs: number;
  cancel: () => void;
  dialling: boolean;
}

/**
 * Keeps a connection to every configured bootstrap: dials for ever, with pauses that grow and vary, and again as soon as
 * one is lost. Nothing waits for it; a node whose bootstraps are all away works alone.
 */
export class Bootstrap {
  readonly #components: BootstrapComponents;
  readonly #contacts: Contact[];
  #running: AbortController | undefined;

  constructor(components: BootstrapComponents, addresses: readonly string[]) {
    this.#components = components;
    this.#contacts = [...new Set(addresses)].map((address) => ({
      address, peerId: undefined, pauseMs: FIRST_PAUSE_MS, cancel: () => undefined, dialling: false,
    }));
  }

  start(): void {
    this.#running ??= new AbortController();
    for (const contact of this.#contacts) {
      void this.#visit(contact);
    }
  }

  stop(): void {
    this.#running?.abort();
    this.#running = undefined;
    for (const contact of this.#contacts) {
      contact.cancel();
    }
  }

  /** A connection has ended: when it was one of ours, it is dialled again after the first pause. */
  onDisconnect(peerId: string): void {
    const contact = this.#contacts.find((other) => other.peerId === peerId);
    if (contact !== undefined && !contact.dialling) {
      this.#visitAfter(contact, this.#vary(FIRST_PAUSE_MS));
    }
  }

  async #visit(contact: Contact): Promise<void> {
    const components = this.#components;
    const signal = this.#running?.signal;
    if (signal === undefined || signal.aborted || contact.dialling) {
      return;
    }
    if (contact.peerId !== undefined && components.isConnected(contact.peerId)) {
      this.#visitAfter(contact, CHECK_MS);
      return;
    }
    contact.dialling = true;
    try {
      contact.peerId = await components.dial(contact.address, { signal });
      contact.pauseMs = FIRST_PAUSE_MS;
      this.#visitAfter(contact, CHECK_MS);
    } catch (err) {
      const pauseMs = this.#vary(contact.pauseMs);
      contact.pauseMs = Math.min(contact.pauseMs * 2, LONGEST_PAUSE_MS);
      this.#visitAfter(contact, pauseMs);
      if (!signal.aborted) {
        const code = isMeshnetError(err) ? err.code : 'INTERNAL';
        components.log.debug({ address: contact.address, code, pauseMs }, 'a bootstrap cannot be reached');
      }
    } finally {
      contact.dialling = false;
    }
  }

  #visitAfter(contact: Contact, ms: number): void {
    contact.cancel();
    if (this.#running !== undefined) {
      contact.cancel = this.#components.clock.after(ms, () => void this.#visit(contact));
    }
  }

  /** Half to all of it, so that a mesh that lost its bootstrap does not come back in one moment. */
  #vary(ms: number): number {
    return ms * (0.5 + this.#components.random() / 2);
  }
}
