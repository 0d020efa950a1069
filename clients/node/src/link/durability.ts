/**
 * The durability levels of an event, weakest first. Owns: their names. Refuses: waiting for one (`link.ts`).
 */

export const LEVELS = ["written", "synced", "replicated"] as const;
export type Level = (typeof LEVELS)[number];
