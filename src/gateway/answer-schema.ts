/**
 * Which JSON schemas an answer can be held to. The grammar generator overlooks what it cannot express, so everything
 * that it would overlook is refused here, with its place.
 */
import { MeshnetError } from '../errors.ts';

/** Optional properties cost the square of their number in grammar text. */
const MAX_PROPERTIES = 100;

const ANNOTATIONS = new Set([
  '$comment', '$defs', '$id', '$schema', 'default', 'definitions', 'deprecated', 'description', 'discriminator', 'example',
  'examples', 'readOnly', 'title', 'writeOnly',
]);

/** Keywords that stand alone: the generator looks at nothing beside them. */
const EXCLUSIVE = ['$ref', 'anyOf', 'oneOf', 'const', 'enum'] as const;

const BY_TYPE: Readonly<Record<string, readonly string[]>> = {
  object: ['properties', 'required', 'additionalProperties'],
  array: ['items', 'prefixItems', 'minItems', 'maxItems'],
  string: ['minLength', 'maxLength', 'format'],
  integer: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
  number: [],
  boolean: [],
  null: [],
};

const FORMATS = new Set(['date', 'time', 'date-time', 'uuid']);

type Schema = Record<string, unknown>;

/** Throws UNSUPPORTED or REQUEST_INVALID with `details.param` for the first thing that an answer cannot be held to. */
export function checkAnswerSchema(schema: unknown, at: string): void {
  if (!isSchema(schema)) {
    throw new MeshnetError('REQUEST_INVALID', 'a schema is an object', { details: { param: at } });
  }
  for (const [name, inner] of [...entries(schema.$defs), ...entries(schema.definitions)]) {
    checkAnswerSchema(inner, `${at}.$defs.${name}`);
  }
  const keywords = Object.keys(schema).filter((key) => !ANNOTATIONS.has(key));
  const exclusive = EXCLUSIVE.find((key) => key in schema);
  if (exclusive !== undefined) {
    checkExclusive(schema, exclusive, keywords, at);
    return;
  }
  const types = typesOf(schema, at);
  const known = new Set(['type', ...types.flatMap((type) => BY_TYPE[type] ?? [])]);
  for (const key of keywords) {
    if (!known.has(key)) {
      throw unsupported(key, at);
    }
  }
  checkObject(schema, at);
  checkArray(schema, at);
  checkBounds(schema, at);
  if (schema.format !== undefined) {
    if (typeof schema.format !== 'string' || !FORMATS.has(schema.format) || 'minLength' in schema || 'maxLength' in schema) {
      throw unsupported('format', at);
    }
  }
}

function checkExclusive(schema: Schema, exclusive: string, keywords: string[], at: string): void {
  const alone = exclusive === 'const' || exclusive === 'enum' ? [exclusive, 'type'] : [exclusive];
  const other = keywords.find((key) => !alone.includes(key));
  if (other !== undefined) {
    throw unsupported(other, at);
  }
  if (exclusive === 'anyOf' || exclusive === 'oneOf') {
    const alternatives = schema[exclusive];
    if (!Array.isArray(alternatives) || alternatives.length === 0) {
      throw new MeshnetError('REQUEST_INVALID', `${exclusive} is a list of schemas`, { details: { param: `${at}.${exclusive}` } });
    }
    alternatives.forEach((inner, i) => checkAnswerSchema(inner, `${at}.${exclusive}[${i}]`));
  }
  if (exclusive === '$ref' && !(typeof schema.$ref === 'string' && schema.$ref.startsWith('#/'))) {
    throw unsupported('$ref', at);
  }
  if (exclusive === 'enum' && (!Array.isArray(schema.enum) || schema.enum.length === 0)) {
    throw new MeshnetError('REQUEST_INVALID', 'enum is a list of values', { details: { param: `${at}.enum` } });
  }
}

/** The types that a schema names. Without one the generator takes the keywords of objects and arrays at their word. */
function typesOf(schema: Schema, at: string): string[] {
  const named = schema.type === undefined ? [] : Array.isArray(schema.type) ? schema.type : [schema.type];
  for (const type of named) {
    if (typeof type !== 'string' || !(type in BY_TYPE)) {
      throw new MeshnetError('REQUEST_INVALID', 'no such type', { details: { param: `${at}.type`, type } });
    }
  }
  if (named.length > 0) {
    return named as string[];
  }
  return 'items' in schema || 'prefixItems' in schema ? ['array'] : ['object'];
}

function checkObject(schema: Schema, at: string): void {
  const properties = entries(schema.properties);
  if (properties.length > MAX_PROPERTIES) {
    throw new MeshnetError('LIMIT_EXCEEDED', 'too many properties', {
      details: { param: `${at}.properties`, limit: MAX_PROPERTIES, got: properties.length },
    });
  }
  for (const [name, inner] of properties) {
    checkAnswerSchema(inner, `${at}.properties.${name}`);
  }
  const required = schema.required ?? [];
  const names = new Set(properties.map(([name]) => name));
  if (!Array.isArray(required) || required.some((name) => !names.has(name as string))) {
    throw new MeshnetError('UNSUPPORTED', 'required names a property that has no schema', { details: { param: `${at}.required` } });
  }
  if (schema.additionalProperties !== undefined && typeof schema.additionalProperties !== 'boolean') {
    checkAnswerSchema(schema.additionalProperties, `${at}.additionalProperties`);
  }
}

function checkArray(schema: Schema, at: string): void {
  const { items, prefixItems, minItems, maxItems } = schema;
  if (prefixItems !== undefined) {
    const length = Array.isArray(prefixItems) ? prefixItems.length : -1;
    if (length < 0 || items !== undefined || Number(minItems ?? 0) > length || Number(maxItems ?? length) < length) {
      throw unsupported('prefixItems', at);
    }
    (prefixItems as unknown[]).forEach((inner, i) => checkAnswerSchema(inner, `${at}.prefixItems[${i}]`));
  } else if (items !== undefined) {
    checkAnswerSchema(items, `${at}.items`);
  } else if (minItems !== undefined || maxItems !== undefined) {
    throw unsupported('minItems', at);
  }
}

/** Of an inclusive and an exclusive bound the generator takes one, and it takes whole numbers only. */
function checkBounds(schema: Schema, at: string): void {
  for (const [inclusive, exclusive] of [['minimum', 'exclusiveMinimum'], ['maximum', 'exclusiveMaximum']] as const) {
    if (inclusive in schema && exclusive in schema) {
      throw unsupported(exclusive, at);
    }
    const bound = schema[inclusive] ?? schema[exclusive];
    if (bound !== undefined && !Number.isSafeInteger(bound)) {
      throw unsupported(inclusive in schema ? inclusive : exclusive, at);
    }
  }
}

function isSchema(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function entries(value: unknown): [string, unknown][] {
  return isSchema(value) ? Object.entries(value) : [];
}

function unsupported(key: string, at: string): MeshnetError {
  return new MeshnetError('UNSUPPORTED', 'an answer cannot be held to this part of the schema', {
    details: { param: `${at}.${key}` },
  });
}
