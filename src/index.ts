/** What another program may import. */
export { loadConfig, type Config, type ConfigInput } from './config.ts';
export { ERROR_CODES, formatError, isMeshnetError, MeshnetError, type ErrorCode } from './errors.ts';
export type { Generation, GenerationRequest, Sampling, TokenEvent } from './gateway/backend.ts';
export { MeshnetNode, type MeshnetNodeInit, type NodeEvent } from './node.ts';
