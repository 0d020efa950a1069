/**
 * Names the application that a process is, so that one of a user's takes no other's replies.
 *
 * Owns: the name where the program gives none. Refuses: who sees what of it (`client.ts`).
 *
 * It is the main program's path; where that is a launcher the path says nothing of what it runs, but
 * the working directory does.
 */

import { basename, extname, resolve } from "node:path";

import { checkedId } from "../encoding/ids.ts";
import { ID_BYTES_MAX } from "../limits.ts";

/** For who sees the replies of all applications; its own are the main program's. */
const EVERY = "*";
const LAUNCHERS = [
  ...["jest", "mocha", "nest", "next", "nuxt", "react-router-serve", "vite", "vitest"],
  ...["ProcessContainer", "ProcessContainerFork"], // of pm2
];

export interface Application {
  /** Whose the replies of this process are. */
  readonly app: string;
  readonly seesAll: boolean;
}

/** given: by the program; else WALLD_APP, else it is found out. */
export function application(given: string | undefined): Application {
  const named = given ?? (process.env["WALLD_APP"] || undefined);
  if (named !== undefined && named !== EVERY) return { app: checkedId(named, "app"), seesAll: false };
  return { app: fitting(mainProgram()), seesAll: named === EVERY };
}

function mainProgram(): string {
  const path = process.argv[1];
  const name = path === undefined ? "node" : basename(path, extname(path)); // without one: -e, a shell
  return path === undefined || LAUNCHERS.includes(name) ? `${name} in ${process.cwd()}` : resolve(path);
}

/** At most what an id may have: the end of it says more than the beginning. */
function fitting(name: string): string {
  const raw = Buffer.from(name);
  return raw.length <= ID_BYTES_MAX ? name : raw.subarray(-ID_BYTES_MAX).toString().replace(/^\uFFFD+/, "");
}
