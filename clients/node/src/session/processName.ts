/** Names a process so that it is told from another that has its pid later or elsewhere. Refuses: signals. */

import { readFileSync, statSync } from "node:fs";

/** {pid, start, boot, namespace} as far as the kernel says. */
export function namedProcess(pid: number): Record<string, unknown> {
  const named: Record<string, unknown> = { pid };
  try {
    // The command's name is in parentheses and may hold anything.
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    named["start"] = Number(stat.slice(stat.lastIndexOf(")") + 1).trim().split(/\s+/)[19]);
    named["boot"] = readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim();
    named["namespace"] = statSync("/proc/self/ns/pid").ino;
  } catch {
    // As far as it came: the pid alone says less, and nothing false.
  }
  return named;
}
