/**
 * Encodes and decodes message bodies as msgpack, by the tables of `messages.ts`.
 *
 * Owns: the check of every field's type, defaults, unknown elements. Sans-IO. Refuses: framing.
 *
 * Integers of the protocol are JavaScript numbers: none is legal beyond 2^53 - 1, so one that is
 * read there is refused and not rounded. They are written as integers: the encoder would make a
 * float of Date.now() if it were asked for bigints.
 */

import { decode, encode } from "@msgpack/msgpack";

import { INNER, TAGGED, type InnerName, type MessageName } from "./messages.ts";

/** What came cannot be read as a message of the protocol. */
export class Unreadable extends Error {
  override name = "Unreadable";
}

export type Fields = Readonly<Record<string, unknown>>;
/** A message that was read: which one it `is`, and its fields by their names. */
export type Read = { is: MessageName } & Record<string, unknown>;

type Kind =
  | { is: "int" | "str" | "bin" | "bool" }
  | { is: "struct"; name: InnerName | MessageName }
  | { is: "list"; of: Kind }
  | { is: "tuple"; of: Kind[] };

interface Field {
  name: string;
  kind: Kind;
  orNil: boolean;
  /** undefined: it must be there. */
  fallback: unknown;
}

const SHAPES = new Map<string, Field[]>();
const NAMES = new Map<number, MessageName>();
for (const [name, text] of Object.entries(INNER)) SHAPES.set(name, fieldsOf(text));
for (const [name, [tag, text]] of Object.entries(TAGGED)) {
  SHAPES.set(name, fieldsOf(text));
  NAMES.set(tag, name as MessageName);
}

/** The body of a message. A field that does not fit its type is this client's own mistake. */
export function encodeBody(name: MessageName, fields: Fields): Uint8Array {
  return encode(written({ is: "struct", name }, fields));
}

/** The message in `body`. Throws Unreadable for what is none of `names`. */
export function decodeBody(body: Uint8Array, names: readonly MessageName[]): Read {
  const raw = unpacked(body);
  const tag = Array.isArray(raw) ? asInt(raw[0]) : undefined;
  const name = tag === undefined ? undefined : NAMES.get(tag);
  if (name === undefined || !names.includes(name)) {
    throw new Unreadable(`a message of tag ${String(tag)}, expected ${names.join(", ")}`);
  }
  return { is: name, ...(read({ is: "struct", name }, raw, name) as Fields) };
}

/** One value of the answer to a request: `kind` in the words of PROTOCOL.md. */
export function decodeAnswer(answer: Uint8Array, kind: string): unknown {
  const orNil = kind.endsWith("?");
  const raw = unpacked(answer);
  return raw === null && orNil ? null : read(kindOf(orNil ? kind.slice(0, -1) : kind), raw, kind);
}

function unpacked(bytes: Uint8Array): unknown {
  try {
    return decode(bytes, { useBigInt64: true });
  } catch (error) {
    throw new Unreadable(`no msgpack: ${error instanceof Error ? error.message : String(error)}`);
  }
}

// --- the tables ---

function fieldsOf(text: string): Field[] {
  return splitList(text).map((part) => {
    const [left, word] = part.split(" = ") as [string, string | undefined];
    const space = left.indexOf(" ");
    const type = left.slice(space + 1);
    const orNil = type.endsWith("?");
    const kind = kindOf(orNil ? type.slice(0, -1) : type);
    return { name: left.slice(0, space), kind, orNil, fallback: fallbackOf(word, kind) };
  });
}

/** Parts between commas, but not those within brackets. */
function splitList(text: string): string[] {
  return text.split(/, (?![^(]*\))/);
}

function kindOf(type: string): Kind {
  if (type === "int" || type === "str" || type === "bin" || type === "bool") return { is: type };
  if (type.startsWith("[")) return { is: "list", of: kindOf(type.slice(1, -1)) };
  if (type.startsWith("(")) return { is: "tuple", of: splitList(type.slice(1, -1)).map(kindOf) };
  return { is: "struct", name: type as InnerName };
}

function fallbackOf(word: string | undefined, kind: Kind): unknown {
  if (word === undefined) return undefined;
  if (word === "nil") return null;
  if (kind.is === "int") return Number(word);
  if (kind.is === "bool") return word === "true";
  if (kind.is === "list") return [];
  const text = word.startsWith('"') ? word.slice(1, -1) : word.startsWith("b'") ? word.slice(2, -1) : word;
  return kind.is === "bin" ? Buffer.from(text) : text;
}

// --- writing ---

function written(kind: Kind, value: unknown): unknown {
  switch (kind.is) {
    case "struct": {
      const given = value as Fields;
      const fields = SHAPES.get(kind.name)!.map((field) => {
        const one = given[field.name] === undefined ? field.fallback : given[field.name];
        if (one === null && field.orNil) return null;
        if (!fits(field.kind, one)) {
          throw new TypeError(`${kind.name}.${field.name} is no ${field.kind.is}: ${typeof one}`);
        }
        return written(field.kind, one);
      });
      return kind.name in TAGGED ? [TAGGED[kind.name as MessageName][0], ...fields] : fields;
    }
    case "list":
      return (value as unknown[]).map((one) => written(kind.of, one));
    case "tuple":
      return kind.of.map((of, at) => written(of, (value as unknown[])[at]));
    default:
      return value;
  }
}

function fits(kind: Kind, value: unknown): boolean {
  switch (kind.is) {
    case "int":
      return Number.isSafeInteger(value);
    case "str":
      return typeof value === "string";
    case "bool":
      return typeof value === "boolean";
    case "bin":
      return value instanceof Uint8Array;
    case "struct":
      return typeof value === "object" && value !== null;
    default:
      return Array.isArray(value);
  }
}

// --- reading ---

function read(kind: Kind, raw: unknown, place: string): unknown {
  switch (kind.is) {
    case "int": {
      const value = asInt(raw);
      if (value === undefined) throw new Unreadable(`${place} is no integer up to 2^53 - 1`);
      return value;
    }
    case "list":
      if (!Array.isArray(raw)) throw new Unreadable(`${place} is no array`);
      return raw.map((one) => read(kind.of, one, place));
    case "tuple":
      if (!Array.isArray(raw) || raw.length < kind.of.length) {
        throw new Unreadable(`${place} is no array of ${kind.of.length}`);
      }
      return kind.of.map((of, at) => read(of, raw[at], place));
    case "struct":
      return readStruct(kind.name, raw, place);
    default:
      if (!fits(kind, raw)) throw new Unreadable(`${place} is no ${kind.is}`);
      return raw;
  }
}

function readStruct(name: InnerName | MessageName, raw: unknown, place: string): Fields {
  if (!Array.isArray(raw)) throw new Unreadable(`${place} is no array`);
  const skipped = name in TAGGED ? 1 : 0;
  if (skipped === 1 && asInt(raw[0]) !== TAGGED[name as MessageName][0]) {
    throw new Unreadable(`${place} has not the tag of ${name}`);
  }
  const fields: Record<string, unknown> = {};
  SHAPES.get(name)!.forEach((field, at) => {
    const one = at + skipped < raw.length ? raw[at + skipped] : field.fallback;
    const where = `${name}.${field.name}`;
    if (one === undefined) throw new Unreadable(`${where} is missing`);
    fields[field.name] = one === null && field.orNil ? null : read(field.kind, one, where);
  });
  return fields;
}

function asInt(raw: unknown): number | undefined {
  const value = typeof raw === "bigint" ? Number(raw) : raw;
  return Number.isSafeInteger(value) && BigInt(value as number) === BigInt(raw as number)
    ? (value as number)
    : undefined;
}
