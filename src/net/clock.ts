/** A clock that only moves forward, and timers on it. Tests pass one that they move themselves. */
export interface Clock {
  /** Milliseconds since some fixed moment. */
  now(): number;
  /** Runs `task` once after `ms`. The function that is returned takes it back. */
  after(ms: number, task: () => void): () => void;
}

export const systemClock: Clock = Object.freeze({
  now: () => performance.now(),
  after: (ms: number, task: () => void) => {
    const timer = setTimeout(task, ms);
    return () => clearTimeout(timer);
  },
});
