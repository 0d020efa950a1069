/**
 * Checks what a program says of a model's call, before it is sent.
 *
 * Owns: the vocabulary, which is that of the Python client, and the errors, which name the argument, what it got and
 * what it takes. Refuses: the record of a step (the daemon makes it).
 */

import { checkCall, shown, type Kind } from "../encoding/argumentChecks.ts";

/** What is known of the model's call whose answer a step is. */
export interface ModelFacts {
  model?: string;
  provider?: string;
  requestId?: string;
  /** Numbers by name, from 0: `input_tokens`, `output_tokens`, say. A name that comes again has the later number. */
  usage?: Readonly<Record<string, number>>;
  /** `toolsHash(tools)`. */
  toolsHash?: string;
  /** partial: its end was not seen, or a limit or a filter of the provider cut it. */
  status?: (typeof STATUSES)[number];
  errorClass?: (typeof ERROR_CLASSES)[number];
}

export const MODEL_CALL = "model_call";
const STATUSES = ["complete", "partial", "cancelled", "error"] as const;
const ERROR_CLASSES = [
  "provider",
  "rate_limit",
  "context_length",
  "content_filter",
  "timeout",
  "cancelled",
  "invalid_output",
  "other",
] as const;
const CHARS_MAX = 256;
/** Of one usage. */
const NUMBERS_MAX = 32;
const FACTS: { readonly [name in keyof ModelFacts]-?: Kind } = {
  model: "text",
  provider: "text",
  requestId: "text",
  usage: "any",
  toolsHash: "text",
  status: STATUSES,
  errorClass: ERROR_CLASSES,
};
export const REPLY_CALLS = { modelCall: { options: FACTS } } as const;

/** What of these was given, as an event says it. Throws TypeError or RangeError; of nothing, too. */
export function checkedFacts(given: ModelFacts): Record<string, unknown> {
  checkCall(REPLY_CALLS.modelCall, {}, given);
  const { model, provider, requestId, usage, toolsHash, status, errorClass } = given;
  for (const [name, value] of Object.entries({ model, provider, requestId, toolsHash })) {
    if (value !== undefined && !isName(value)) throw wrong(name, `1 to ${CHARS_MAX} characters`, value);
  }
  const told = {
    model,
    provider,
    request_id: requestId,
    usage: usage === undefined ? undefined : checkedUsage(usage),
    tools_hash: toolsHash,
    status,
    error_class: errorClass,
  };
  const facts = Object.entries(told).filter(([, value]) => value !== undefined);
  if (facts.length === 0) throw new RangeError(`modelCall needs one of ${Object.keys(FACTS).join(", ")}, got none`);
  return Object.fromEntries(facts);
}

function checkedUsage(usage: unknown): Record<string, number> {
  if (typeof usage !== "object" || usage === null || Array.isArray(usage)) {
    throw new TypeError(`usage must be an object of numbers, got ${shown(usage)}`);
  }
  const numbers = Object.entries(usage).filter(([, number]) => number !== undefined);
  if (numbers.length > NUMBERS_MAX) {
    throw new RangeError(`usage must have at most ${NUMBERS_MAX} numbers, got ${numbers.length}`);
  }
  for (const [name, number] of numbers) {
    if (!isName(name)) throw wrong("usage", `with names of 1 to ${CHARS_MAX} characters`, name);
    if (!isNumber(number)) throw wrong(`usage[${JSON.stringify(name)}]`, "a number from 0", number);
  }
  return Object.fromEntries(numbers);
}

/** It may be a model, an id, the name of a number. A character is a code point. */
export function isName(value: unknown): value is string {
  return typeof value === "string" && value !== "" && value.length <= 2 * CHARS_MAX && [...value].length <= CHARS_MAX;
}

/** It may be one of a usage. */
export function isNumber(value: unknown): value is number {
  return typeof value === "number" && value >= 0 && value < 2 ** 53;
}

function wrong(name: string, limit: string, value: unknown): RangeError {
  return new RangeError(`${name} must be ${limit}, got ${shown(value)}`);
}
