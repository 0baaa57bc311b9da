/** A small protobuf codec: a message is a table of its fields, as proto/*.proto lists them. Canonical when it writes. */
import { BinaryReader, BinaryWriter, WireType } from '@bufbuild/protobuf/wire';

type Scalar = 'bytes' | 'string' | 'uint32' | 'int32' | 'sint32' | 'uint64' | 'float' | 'bool' | 'enum';

export interface Field {
  readonly no: number;
  readonly kind: Scalar | Table;
  readonly many?: true;
}

export interface Table {
  readonly [name: string]: Field;
}

interface Values {
  bytes: Uint8Array;
  string: string;
  uint32: number;
  int32: number;
  sint32: number;
  uint64: bigint;
  float: number;
  bool: boolean;
  enum: number;
}

type One<K> = K extends Scalar ? Values[K] : K extends Table ? Message<K> : never;
type Value<F extends Field> = F extends { many: true } ? One<F['kind']>[] : One<F['kind']>;
/** What decoding gives: scalars and lists always, messages when they were there. */
export type Message<T extends Table> = {
  [N in keyof T as T[N] extends { many: true } ? N : T[N]['kind'] extends Scalar ? N : never]: Value<T[N]>;
} & { [N in keyof T as T[N] extends { many: true } ? never : T[N]['kind'] extends Scalar ? never : N]?: Value<T[N]> };
type InitOne<K> = K extends Scalar ? Values[K] : K extends Table ? Init<K> : never;
/** What encoding takes: a field that is left out has its default. */
export type Init<T extends Table> = {
  [N in keyof T]?: T[N] extends { many: true } ? InitOne<T[N]['kind']>[] : InitOne<T[N]['kind']>;
};

const DEFAULTS: { [K in Scalar]: () => Values[K] } = {
  bytes: () => new Uint8Array(0),
  string: () => '',
  uint32: () => 0,
  int32: () => 0,
  sint32: () => 0,
  uint64: () => 0n,
  float: () => 0,
  bool: () => false,
  enum: () => 0,
};
const WIRE_TYPES: { [K in Scalar]: WireType } = {
  bytes: WireType.LengthDelimited,
  string: WireType.LengthDelimited,
  uint32: WireType.Varint,
  int32: WireType.Varint,
  sint32: WireType.Varint,
  uint64: WireType.Varint,
  float: WireType.Bit32,
  bool: WireType.Varint,
  enum: WireType.Varint,
};

export function encode<T extends Table>(table: T, message: Init<T>): Uint8Array {
  const writer = new BinaryWriter();
  const fields = Object.entries(table).toSorted(([, a], [, b]) => a.no - b.no);
  for (const [name, { no, kind, many }] of fields) {
    const value = message[name] as unknown;
    if (value === undefined) {
      continue;
    }
    if (typeof kind !== 'string') {
      for (const each of many ? (value as Init<Table>[]) : [value as Init<Table>]) {
        writer.tag(no, WireType.LengthDelimited).bytes(encode(kind, each));
      }
    } else if (many) {
      writeList(writer, no, kind, value as unknown[]);
    } else if (!isDefault(value)) {
      writeScalar(writer.tag(no, WIRE_TYPES[kind]), kind, value);
    }
  }
  return writer.finish();
}

function writeList(writer: BinaryWriter, no: number, kind: Scalar, values: unknown[]): void {
  if (WIRE_TYPES[kind] === WireType.LengthDelimited) {
    values.forEach((value) => writeScalar(writer.tag(no, WireType.LengthDelimited), kind, value));
  } else if (values.length > 0) {
    writer.tag(no, WireType.LengthDelimited).fork();
    values.forEach((value) => writeScalar(writer, kind, value));
    writer.join();
  }
}

function writeScalar(writer: BinaryWriter, kind: Scalar, value: unknown): void {
  const put = kind === 'enum' ? 'int32' : kind;
  (writer[put] as (value: unknown) => unknown).call(writer, value);
}

function isDefault(value: unknown): boolean {
  return value instanceof Uint8Array ? value.length === 0 : !value && !Object.is(value, -0);
}

/** Throws an Error on bytes that are no protobuf; unknown fields are skipped. */
export function decode<T extends Table>(table: T, bytes: Uint8Array): Message<T> {
  const message: Record<string, unknown> = {};
  const byNumber = new Map<number, [string, Field]>();
  for (const [name, field] of Object.entries(table)) {
    byNumber.set(field.no, [name, field]);
    if (field.many) {
      message[name] = [];
    } else if (typeof field.kind === 'string') {
      message[name] = DEFAULTS[field.kind]();
    }
  }
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [no, wireType] = reader.tag();
    const [name, field] = byNumber.get(no) ?? [];
    if (name === undefined || field === undefined) {
      reader.skip(wireType, no);
    } else if (field.many) {
      readMany(reader, field.kind, wireType, message[name] as unknown[]);
    } else {
      message[name] = readOne(reader, field.kind, wireType);
    }
  }
  return message as Message<T>;
}

function readMany(reader: BinaryReader, kind: Scalar | Table, wireType: WireType, into: unknown[]): void {
  const packed = typeof kind === 'string' && WIRE_TYPES[kind] !== WireType.LengthDelimited;
  if (!packed || wireType !== WireType.LengthDelimited) {
    into.push(readOne(reader, kind, wireType));
    return;
  }
  const end = reader.uint32() + reader.pos;
  while (reader.pos < end) {
    into.push(readOne(reader, kind, WIRE_TYPES[kind]));
  }
}

function readOne(reader: BinaryReader, kind: Scalar | Table, wireType: WireType): unknown {
  const expected = typeof kind === 'string' ? WIRE_TYPES[kind] : WireType.LengthDelimited;
  if (wireType !== expected) {
    throw new Error(`wire type ${wireType} where ${expected} belongs`);
  }
  if (typeof kind !== 'string') {
    return decode(kind, reader.bytes());
  }
  if (kind === 'uint64') {
    return BigInt(reader.uint64());
  }
  return reader[kind === 'enum' ? 'int32' : kind]();
}
