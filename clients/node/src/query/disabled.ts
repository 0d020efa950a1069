/**
 * Answers requests with empty results when walld is switched off (WALLD_ENABLED=0).
 *
 * Owns: those answers, of the types that a daemon's have. Refuses: sockets, files. The stream id of a
 * reply is real all the same: the application stamps it on the message it saves, and the stamp must not
 * depend on a switch.
 */

import { encode } from "@msgpack/msgpack";

import { newEntryId } from "../encoding/ids.ts";
import { Refused } from "../errors.ts";
import type { Fields } from "../wire/codec.ts";
import type { MessageName } from "../wire/messages.ts";
import { asOfNow, type Asks, type Question } from "./query.ts";

/** False where WALLD_ENABLED switches walld off for this process. */
export function isEnabled(): boolean {
  const given = (process.env["WALLD_ENABLED"] ?? "1").trim().toLowerCase();
  return !["0", "false", "no", "off"].includes(given);
}

export class DisabledQuery implements Asks {
  readonly isOff = true;

  ask(name: MessageName, fields: Question): Promise<Uint8Array> {
    if (name === "GetArtifact") return Promise.reject(notKept(asOfNow(fields)["sha256"] as Uint8Array));
    return Promise.resolve(encode(this.answer(name, asOfNow(fields))));
  }

  close(): void {
    // There is nothing to let go of.
  }

  private answer(name: MessageName, fields: Fields): unknown {
    switch (name) {
      case "Recover":
      case "Sessions":
      case "Fork":
        return [];
      case "HasPartial":
      case "Resolve":
      case "Delete":
        return false;
      case "PutArtifact":
        return true;
      case "Status":
        return {};
      case "Project":
        return fields["name"] === "turn" ? Buffer.from(turnAsked(fields["arguments"] as Uint8Array)) : null;
      case "Append":
        return (fields["entries"] as { id: string }[]).map((entry) => [0, entry.id, true]);
      default:
        return null; // events: never written
    }
  }
}

/** Every turn that is asked for is there. */
function turnAsked(args: Uint8Array): string {
  const { turn_id, stream_id } = JSON.parse(Buffer.from(args).toString()) as Record<string, string | null>;
  const ids = { turn_id: turn_id ?? newEntryId(), message_id: newEntryId() };
  return JSON.stringify({ ...ids, stream_ids: stream_id === null ? [] : [stream_id], state: "submitted" });
}

function notKept(digest: Uint8Array): Refused {
  return new Refused("artifact_missing", Buffer.from(digest).toString("hex"), "walld switched on (WALLD_ENABLED)");
}
