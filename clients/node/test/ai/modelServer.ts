/**
 * A model server on loopback that answers, in the vendors' wire formats, what the model's name asks for.
 *
 * Names: text | think | tool | emoji, then any of `:cutN` (TCP ends after N frames), `:eofN` (a clean
 * end of the body after N), `:errN` (the vendor's error frame after N), `:msN` (ms between frames),
 * `:busyN` (the first N requests get 503), `:lateN` (the first N of those that hold a tool's result),
 * `:holdN` (nothing more after N, the body stays open). `file` replays the bytes it was given. Where the
 * request holds a tool's result, `tool` says the text. Who asks for no stream gets a whole answer.
 */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { errorOf, framesOf, wholeOf, type Wire } from "./vendorWires.js";

export class ModelServer {
  url = "";
  requests = 0;
  file: Buffer = Buffer.alloc(0);
  /** Cut all that is open. */
  hangUp!: () => void;
  private busy = 0;
  private late = 0;

  static async started(t: TestContext): Promise<ModelServer> {
    const replay = new ModelServer();
    const server = createServer((request, response) => {
      void replay.answer(request, response).catch(() => response.destroy());
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    replay.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
    replay.hangUp = () => server.closeAllConnections();
    t.after(() => {
      replay.hangUp();
      server.close();
    });
    return replay;
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.requests += 1;
    let body = "";
    for await (const chunk of request) body += chunk;
    const asked = JSON.parse(body) as { model: string; stream?: boolean };
    const [kind, ...flags] = asked.model.split(":");
    const flag = (name: string): number | undefined => {
      const found = flags.find((one) => one.startsWith(name));
      return found === undefined ? undefined : Number(found.slice(name.length));
    };
    const hasResult = /"role":"tool"|"tool_result"|"function_call_output"/.test(body);
    const isBusy = this.busy < (flag("busy") ?? 0);
    if (isBusy || (hasResult && this.late < (flag("late") ?? 0))) {
      if (isBusy) this.busy += 1;
      else this.late += 1;
      response.writeHead(503, { "retry-after-ms": "1" }).end('{"error":{"message":"overloaded"}}');
      return;
    }
    const wire = wireOf(request.url!);
    const scene = kind === "tool" && hasResult ? "text" : kind!;
    if (asked.stream !== true) {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify(wholeOf(wire, scene)));
      return;
    }
    const frames = kind === "file" ? [this.file.toString()] : framesOf(wire, scene);
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
        response.end(errorOf(wire));
        return;
      }
      response.write(frame);
      await sleep(flag("ms") ?? 0);
    }
    response.end();
  }
}

function wireOf(path: string): Wire {
  if (path.endsWith("/chat/completions")) return "chat";
  return path.endsWith("/responses") ? "responses" : "anthropic";
}
