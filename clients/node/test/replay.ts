/**
 * A model server on loopback, which says what the model's name asks for, as the vendors' wires say it.
 *
 * Names: text | think | tool | emoji, then any of `:cutN` (TCP ends after N frames), `:eofN` (a clean
 * end of the body after N), `:errN` (the vendor's error frame after N), `:msN` (ms between frames),
 * `:busyN` (the first N requests get 503), `:holdN` (nothing more after N, the body stays open). `file` replays the bytes it was given. Where the request
 * holds a tool's result, `tool` says the text.
 */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

export const WORDS = ["Four ", "degrees ", "in ", "Oslo", "."];
export const THOUGHTS = ["They ask ", "about weather."];
export const ARGUMENTS = ['{"city"', ': "Os', 'lo"}'];

export class Replay {
  url = "";
  requests = 0;
  file: Buffer = Buffer.alloc(0);
  private busy = 0;

  static async started(t: TestContext): Promise<Replay> {
    const replay = new Replay();
    const server = createServer((request, response) => {
      void replay.answer(request, response).catch(() => response.destroy());
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    replay.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
    t.after(() => {
      server.closeAllConnections();
      server.close();
    });
    return replay;
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.requests += 1;
    let body = "";
    for await (const chunk of request) body += chunk;
    const asked = JSON.parse(body) as { model: string; messages: { role: string; content: unknown }[] };
    const [kind, ...flags] = asked.model.split(":");
    const flag = (name: string): number | undefined => {
      const found = flags.find((one) => one.startsWith(name));
      return found === undefined ? undefined : Number(found.slice(name.length));
    };
    if (this.busy < (flag("busy") ?? 0)) {
      this.busy += 1;
      response.writeHead(503).end('{"error":{"message":"overloaded"}}');
      return;
    }
    const hasResult = /"role":"tool"|"tool_result"/.test(body);
    const isChat = request.url!.endsWith("/chat/completions");
    const scene = kind === "tool" && hasResult ? "text" : kind!;
    const frames = kind === "file" ? [this.file.toString()] : isChat ? chat(scene) : anthropic(scene);
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.flushHeaders();
    for (const [n, frame] of frames.entries()) {
      if (n === flag("cut")) {
        await sleep(20); // what was written has left
        response.destroy();
        return;
      }
      if (n === flag("eof")) break;
      if (n === flag("hold")) return;
      if (n === flag("err")) {
        const error = { type: "overloaded_error", message: "the vendor says no" };
        response.end(isChat ? data({ error }) : event({ type: "error", error }));
        return;
      }
      response.write(frame);
      await sleep(flag("ms") ?? 0);
    }
    response.end();
  }
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
    const texts = kind === "emoji" ? ["a\ud83d", "\ude00b"] : WORDS;
    frames.push(...texts.map((text) => chunk({ content: text })), chunk({}, "stop"));
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
    const texts = kind === "emoji" ? ["a\ud83d", "\ude00b"] : WORDS;
    block(1, { type: "text", text: "" }, texts.map((text) => ({ type: "text_delta", text })));
  }
  const stop_reason = kind === "tool" ? "tool_use" : "end_turn";
  frames.push(event({ type: "message_delta", delta: { stop_reason, stop_sequence: null }, usage }));
  return [...frames, event({ type: "message_stop" })];
}
