/**
 * Says in a reply what the SDK tells of one call of a model.
 *
 * Owns: which of the SDK's words are which of walld's, and that each is said once. Refuses: throwing for what does not
 * fit: it is left out.
 *
 * Numbers are the SDK's totals: what was read from a cache is within `input_tokens`, whichever vendor counts it beside.
 */

import { errorName } from "../encoding/errorFields.ts";
import { toolsHash } from "../encoding/toolsHash.ts";
import { isName, isNumber, type ModelFacts } from "../reply/modelChecks.ts";
import type { Reply } from "../reply/reply.ts";
import { errorClassOf, type ErrorClass } from "./errorClass.ts";

/** What a request is made with. */
export interface AskedOf {
  model?: { modelId?: unknown; provider?: unknown } | undefined;
  tools?: unknown;
}

/** What the SDK tells of an answer: its response, or the part of a stream that says the same. */
export interface Told {
  id?: unknown;
  modelId?: unknown;
}

/** Its status by its HTTP number, where no word of the provider says more. */
const BY_STATUS: Readonly<Record<number, string>> = { 408: "timeout", 429: "rate limit", 504: "timeout" };

export class ModelSaid {
  private readonly reply: Reply;
  /** What is known beside the answer: it is said with the first word of that. */
  private known: Record<string, unknown>;
  private readonly said = new Set<string>();
  /** It was said to have failed, or to be cut: its new end counts. */
  private readonly isAgain: boolean;

  constructor(reply: Reply, { model, tools }: AskedOf, isAgain = false) {
    this.reply = reply;
    this.isAgain = isAgain;
    this.known = { model: model?.modelId, provider: model?.provider, toolsHash: hashOf(tools) };
  }

  /** The answer begins, and says whose it is. */
  answers(told: Told | null | undefined): void {
    this.say({ model: told?.modelId, requestId: told?.id });
  }

  /** It came to its end. */
  used(usage: unknown): void {
    this.say({ usage: usageOf(usage) });
  }

  /** Its terminal marker was seen. */
  ended(): void {
    if (this.isAgain) this.say({ status: "complete" });
  }

  /** It failed, or the program aborted it. */
  failed(error: unknown, isAborted: boolean): void {
    if (isAborted || errorName(error) === "AbortError") this.say({ status: "cancelled" });
    else this.say({ status: "error", errorClass: classOf(error) });
  }

  /** What fits and is new. */
  private say(facts: Record<string, unknown>): void {
    const told = { ...this.known };
    for (const [name, value] of Object.entries(facts)) if (value !== undefined && value !== null) told[name] = value;
    this.known = {};
    const fresh = Object.entries(told).filter(([name, value]) => !this.said.has(name) && fits(value));
    for (const [name] of fresh) this.said.add(name);
    if (fresh.length > 0) this.reply.modelCall(Object.fromEntries(fresh) as ModelFacts);
  }
}

function fits(value: unknown): boolean {
  return typeof value === "object" ? value !== null : isName(value);
}

function hashOf(tools: unknown): string | undefined {
  if (!Array.isArray(tools) || tools.length === 0) return undefined;
  try {
    return toolsHash(tools);
  } catch {
    return undefined; // no JSON, or nested too deep
  }
}

/** Of the providers of today, who tell what a total is made of, and of former ones, whose numbers are totals. */
function usageOf(usage: unknown): Record<string, number> | undefined {
  if (typeof usage !== "object" || usage === null) return undefined;
  const { inputTokens, outputTokens, cachedInputTokens, reasoningTokens } = usage as Record<string, unknown>;
  const [input, output] = [within(inputTokens), within(outputTokens)];
  const numbers = {
    input_tokens: input["total"],
    output_tokens: output["total"],
    cache_read_tokens: input["cacheRead"] ?? cachedInputTokens,
    cache_write_tokens: input["cacheWrite"],
    reasoning_tokens: output["reasoning"] ?? reasoningTokens,
  };
  const found = Object.entries(numbers).filter((one): one is [string, number] => isNumber(one[1]));
  return found.length === 0 ? undefined : Object.fromEntries(found);
}

function within(tokens: unknown): Record<string, unknown> {
  return typeof tokens === "object" && tokens !== null ? (tokens as Record<string, unknown>) : { total: tokens };
}

function classOf(error: unknown): ErrorClass {
  try {
    if (typeof error !== "object" || error === null) return errorClassOf([error], String(error));
    const { name, type, code, message, statusCode, data } = error as Record<string, unknown>;
    const said = (data as { error?: Record<string, unknown> } | null | undefined)?.error;
    const words = [said?.["code"], said?.["type"], code, type, BY_STATUS[Number(statusCode)], name];
    return errorClassOf(words, typeof message === "string" ? message : "");
  } catch {
    return "other"; // what cannot be read
  }
}
