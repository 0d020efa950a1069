/**
 * The answers of the model server in the wire formats of three vendors: frames of a stream, and whole answers.
 *
 * Owns: those bytes. Refuses: sockets, and when an answer breaks (`modelServer.ts`).
 */

export type Wire = "chat" | "anthropic" | "responses";

export const WORDS = ["Four ", "degrees ", "in ", "Oslo", "."];
export const THOUGHTS = ["They ask ", "about weather."];
export const ARGUMENTS = ['{"city"', ': "Os', 'lo"}'];

/** The frames of a stream, the vendor's terminal marker in the last one or two. */
export function framesOf(wire: Wire, scene: string): string[] {
  return { chat, anthropic, responses }[wire](scene);
}

/** The answer to a request that asked for no stream. */
export function wholeOf(wire: Wire, scene: string): unknown {
  return { chat: wholeChat, anthropic: wholeAnthropic, responses: wholeResponse }[wire](scene);
}

/** The vendor's error within a stream. */
export function errorOf(wire: Wire): string {
  const error = { type: "overloaded_error", message: "the vendor says no" };
  if (wire === "chat") return data({ error });
  if (wire === "anthropic") return event({ type: "error", error });
  return event({ ...error, type: "error", sequence_number: 9, code: "overloaded_error", param: null });
}

function textsOf(scene: string): string[] {
  return scene === "emoji" ? ["a\ud83d", "\ude00b"] : WORDS;
}

function data(value: unknown): string {
  return `data: ${JSON.stringify(value)}\n\n`;
}

function event(value: { type: string } & Record<string, unknown>): string {
  return `event: ${value.type}\n${data(value)}`;
}

function chat(kind: string): string[] {
  const chunk = (delta: unknown, finish_reason: string | null = null): string =>
    data({ id: "c", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta, finish_reason }] });
  const frames = [chunk({ role: "assistant", content: "" })];
  if (kind === "think") frames.push(...THOUGHTS.map((text) => chunk({ reasoning_content: text })));
  if (kind === "tool") {
    const first = { index: 0, id: "call_1", type: "function", function: { name: "weather", arguments: "" } };
    frames.push(chunk({ tool_calls: [first] }));
    for (const part of ARGUMENTS) {
      frames.push(chunk({ tool_calls: [{ index: 0, function: { arguments: part } }] }));
    }
    frames.push(chunk({}, "tool_calls"));
  } else {
    frames.push(...textsOf(kind).map((text) => chunk({ content: text })), chunk({}, "stop"));
  }
  return [...frames, "data: [DONE]\n\n"];
}

function anthropic(kind: string): string[] {
  const usage = { input_tokens: 1, output_tokens: 1 };
  const message = { id: "msg", type: "message", role: "assistant", model: "m", content: [], stop_reason: null, stop_sequence: null, usage };
  const frames = [event({ type: "message_start", message })];
  const block = (index: number, content_block: unknown, deltas: unknown[]): void => {
    frames.push(event({ type: "content_block_start", index, content_block }));
    for (const delta of deltas) frames.push(event({ type: "content_block_delta", index, delta }));
    frames.push(event({ type: "content_block_stop", index }));
  };
  if (kind === "think") {
    const deltas = THOUGHTS.map((thinking) => ({ type: "thinking_delta", thinking }));
    block(0, { type: "thinking", thinking: "", signature: "" }, deltas);
  }
  if (kind === "tool") {
    const deltas = ARGUMENTS.map((partial_json) => ({ type: "input_json_delta", partial_json }));
    block(0, { type: "tool_use", id: "call_1", name: "weather", input: {} }, deltas);
  } else {
    block(1, { type: "text", text: "" }, textsOf(kind).map((text) => ({ type: "text_delta", text })));
  }
  const stop_reason = kind === "tool" ? "tool_use" : "end_turn";
  frames.push(event({ type: "message_delta", delta: { stop_reason, stop_sequence: null }, usage }));
  return [...frames, event({ type: "message_stop" })];
}

/** OpenAI Responses. Where all is well its terminal marker gives no reason. */
function responses(kind: string): string[] {
  const response = { id: "resp", created_at: 1, model: "m" };
  const frames = [event({ type: "response.created", response })];
  const output = outputOf(kind);
  for (const [output_index, item] of output.entries()) {
    const { id: item_id } = item;
    const at = { item_id, output_index };
    frames.push(event({ type: "response.output_item.added", output_index, item: { ...item, arguments: "" } }));
    if (item.type === "reasoning") {
      const summary = { ...at, summary_index: 0 };
      frames.push(event({ type: "response.reasoning_summary_part.added", ...summary }));
      for (const delta of THOUGHTS) frames.push(event({ type: "response.reasoning_summary_text.delta", ...summary, delta }));
      frames.push(event({ type: "response.reasoning_summary_part.done", ...summary }));
    } else if (item.type === "function_call") {
      for (const delta of ARGUMENTS) frames.push(event({ type: "response.function_call_arguments.delta", ...at, delta }));
    } else {
      for (const delta of textsOf(kind)) frames.push(event({ type: "response.output_text.delta", ...at, delta }));
    }
    frames.push(event({ type: "response.output_item.done", output_index, item }));
  }
  return [...frames, event({ type: "response.completed", response: { ...response, usage: TOKENS } })];
}

const TOKENS = { input_tokens: 1, output_tokens: 1 };

function outputOf(kind: string): ({ type: string; id: string } & Record<string, unknown>)[] {
  if (kind === "tool") {
    const args = ARGUMENTS.join("");
    const call = { call_id: "call_1", name: "weather", arguments: args, status: "completed" };
    return [{ type: "function_call", id: "fc_1", ...call }];
  }
  const content = [{ type: "output_text", text: textsOf(kind).join(""), annotations: [] }];
  const message = { type: "message", id: "msg_1", role: "assistant", content };
  if (kind !== "think") return [message];
  const summary = [{ type: "summary_text", text: THOUGHTS.join("") }];
  return [{ type: "reasoning", id: "rs_1", summary, encrypted_content: null }, message];
}

function wholeResponse(kind: string): unknown {
  return { id: "resp", created_at: 1, model: "m", output: outputOf(kind), usage: TOKENS };
}

function wholeChat(kind: string): unknown {
  const call = { id: "call_1", type: "function", function: { name: "weather", arguments: ARGUMENTS.join("") } };
  const said = kind === "tool" ? { content: null, tool_calls: [call] } : { content: textsOf(kind).join("") };
  const thought = kind === "think" ? { reasoning_content: THOUGHTS.join("") } : {};
  const finish_reason = kind === "tool" ? "tool_calls" : "stop";
  const message = { role: "assistant", ...said, ...thought };
  return { id: "c", object: "chat.completion", created: 1, model: "m", choices: [{ index: 0, message, finish_reason }] };
}

function wholeAnthropic(kind: string): unknown {
  const content: unknown[] = [];
  if (kind === "think") content.push({ type: "thinking", thinking: THOUGHTS.join(""), signature: "s" });
  if (kind === "tool") {
    content.push({ type: "tool_use", id: "call_1", name: "weather", input: JSON.parse(ARGUMENTS.join("")) });
  } else content.push({ type: "text", text: textsOf(kind).join("") });
  const stop_reason = kind === "tool" ? "tool_use" : "end_turn";
  return { id: "msg", type: "message", role: "assistant", model: "m", content, stop_reason, stop_sequence: null, usage: TOKENS };
}
