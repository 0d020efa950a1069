/**
 * The calls of a plain message, in one shape whoever spoke of them.
 *
 * Owns: that shape. The daemon gives it; arguments that stand beside the session have it once they are read. Refuses:
 * providers' shapes (`providerMessages.ts`).
 */

/**
 * The message, each of whose `tool_calls` has `id`, `name`, `arguments` (text, JSON as a rule, or null) and
 * `arguments_complete`, beside all that it was appended with.
 */
export function withPlainCalls(message: Record<string, unknown>): Record<string, unknown> {
  const listed = message["tool_calls"];
  return Array.isArray(listed) ? { ...message, tool_calls: listed.map(plain) } : message;
}

function plain(item: unknown): unknown {
  if (!isObject(item)) return item;
  const told = isObject(item["function"]) ? item["function"] : item;
  const given = told["arguments"] ?? told["input"] ?? null;
  if (isObject(given) && "_artifact" in given) return item;
  const text = typeof given === "string" || given === null ? given : JSON.stringify(given);
  return {
    ...item,
    id: item["id"] ?? item["call_id"] ?? null,
    name: item["name"] ?? told["name"] ?? null,
    arguments: text,
    arguments_complete: item["arguments_complete"] ?? (text === null || isWhole(text)),
  };
}

/** Text that begins no object is that of a tool which takes one. */
function isWhole(text: string): boolean {
  try {
    return !text.trimStart().startsWith("{") || JSON.parse(text) !== undefined;
  } catch {
    return false;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
