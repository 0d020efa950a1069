/** The options of a reply, and the type of what an application adds to an event. Owns: both types. */

import type { EntryId } from "../encoding/ids.ts";

/** What the application says beside an event; kept with it, never interpreted. */
export type Info = Readonly<Record<string, unknown>>;

export interface ReplyOptions {
  streamId?: string;
  turnId?: EntryId;
  parent?: EntryId;
  /** `end()` also releases. Default true. */
  autoRelease?: boolean;
  meta?: Info;
}
