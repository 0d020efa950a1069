/**
 * How safe an event can be. Owns: the words for it, from the least on. Refuses: asking (`link.ts`).
 */

export const LEVELS = ["written", "synced", "replicated"] as const;
export type Level = (typeof LEVELS)[number];
