/**
 * The tool calls of a reply that have no result yet.
 *
 * Owns: which call a result without an id belongs to. Refuses: sending.
 */

import { OPEN_TOOLS_MAX } from "./limits.ts";

export class OpenCalls {
  private readonly names = new Map<string, string>();

  /** A call began, or was updated. Beyond OPEN_TOOLS_MAX the oldest is forgotten. */
  add(callId: string, name: string): void {
    this.names.set(callId, name);
    if (this.names.size <= OPEN_TOOLS_MAX) return;
    for (const oldest of this.names.keys()) {
      this.names.delete(oldest);
      return;
    }
  }

  /** The newest call of that name; without a name the one open call, if it is one. */
  find(name: string | undefined): string | undefined {
    const calls = [...this.names].filter(([, one]) => name === undefined || one === name);
    return name === undefined && calls.length !== 1 ? undefined : calls.at(-1)?.[0];
  }

  /** It has its result; the name it was begun with. */
  close(callId: string | undefined): string | undefined {
    if (callId === undefined) return undefined;
    const name = this.names.get(callId);
    this.names.delete(callId);
    return name;
  }
}
