/** Models of three vendors for the real `ai` package, on the model server, and what a run delivers. */

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { jsonSchema, streamText, tool, wrapLanguageModel } from "ai";
import type { PartialReply, Reply } from "walld-client";
import { walldMiddleware } from "walld-client/ai";

import type { Wire } from "./vendorWires.js";

(globalThis as Record<string, unknown>)["AI_SDK_LOG_WARNINGS"] = false;

export const VENDORS: Wire[] = ["chat", "anthropic", "responses"];

/** What each vendor's provider is called, and its answers are. */
export const OF_MODEL: Record<Wire, [provider: string, requestId: string]> = {
  chat: ["replay.chat", "c"],
  anthropic: ["anthropic.messages", "msg"],
  responses: ["openai.responses", "resp"],
};

export function modelOf(replay: { url: string }, vendor: Wire, name: string, reply: Reply | null) {
  const given = { baseURL: replay.url, apiKey: "none" };
  const model = {
    chat: () => createOpenAICompatible({ name: "replay", ...given })(name),
    anthropic: () => createAnthropic(given)(name),
    responses: () => createOpenAI(given).responses(name),
  }[vendor]();
  return reply === null ? model : wrapLanguageModel({ model, middleware: walldMiddleware(reply) });
}

export const weather = tool({
  inputSchema: jsonSchema<{ city: string }>({ type: "object", properties: { city: { type: "string" } } }),
  execute: ({ city }) => ({ city, degrees: 4 }),
});

type Run = Pick<Parameters<typeof streamText>[0], "tools" | "stopWhen" | "abortSignal" | "maxRetries" | "onChunk">;

/** Everything the SDK delivers, and what it threw. */
export async function delivered(model: ReturnType<typeof modelOf>, run: Run = {}) {
  const parts: Record<string, unknown>[] = [];
  let thrown: unknown;
  try {
    const stream = streamText({ model, prompt: "weather?", maxRetries: 0, onError: () => undefined, ...run });
    for await (const part of stream.fullStream) parts.push(part as never);
  } catch (error) {
    thrown = error;
  }
  return { parts, thrown };
}

/** Parts without what differs from run to run. */
export function comparable({ parts, thrown }: Awaited<ReturnType<typeof delivered>>) {
  const text = JSON.stringify(parts, (key, value: unknown) =>
    ["timestamp", "messageId", "request", "response", "performance", "callId"].includes(key) ? undefined : value,
  );
  return { parts: text, thrown: thrown instanceof Error ? `${thrown.name}: ${thrown.message}` : thrown };
}

export function said(parts: Record<string, unknown>[], type: string): string {
  return parts.map((part) => (part["type"] === type ? part["text"] : "")).join("");
}

/** What it is made of but for what is said of its models. */
export function spoken(found: PartialReply) {
  return found.segments.filter((one) => one.name !== "model_call");
}

/** What is said of its models, of each attempt and step. */
export function modelCalls(found: PartialReply) {
  const told = new Map<string, Record<string, unknown>>();
  for (const { name, attempt, step, result } of found.segments) {
    const place = `${attempt}.${step}`;
    if (name === "model_call") told.set(place, { ...told.get(place), ...(result as object) });
  }
  return Object.fromEntries(told);
}

export function recovered(found: PartialReply, kind: string): string {
  return found.segments.map((one) => (one.kind === kind ? one.text : "")).join("");
}
