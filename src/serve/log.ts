/** What this folder needs of a logger: pino's shape. */
export interface ServeLog {
  debug(facts: object, message: string): void;
  info(facts: object, message: string): void;
  warn(facts: object, message: string): void;
}

const ignore = (): void => undefined;

export const silentLog: ServeLog = Object.freeze({ debug: ignore, info: ignore, warn: ignore });
