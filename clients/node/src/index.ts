/** The Node client of walld: the public names, and nothing else. */

export { Client, connect } from "./client.ts";
export type { ConnectOptions, Stats } from "./client.ts";
export type { Redact } from "./encoding/redact.ts";
export { toolsHash } from "./encoding/toolsHash.ts";
export { Blocked, NotDurable, Refused, Unavailable, Unsupported, WalldError } from "./errors.ts";
export type { Level } from "./link/durability.ts";
export { PartialReply } from "./recovered/partialReply.ts";
export type { Format, PlainMessage, ReplyError, Retried, StepBegun } from "./recovered/partialReply.ts";
export type { Gap, Segment } from "./recovered/segment.ts";
export type { ModelFacts } from "./reply/modelChecks.ts";
export type { Info, ReplyOptions } from "./reply/options.ts";
export { Reply } from "./reply/reply.ts";
export type { AuditedTurn, Finding, Present, RepairStep, Report } from "./session/audit.ts";
export type { SessionInfo } from "./session/auditing.ts";
export type * from "./session/entries.ts";
export { Session } from "./session/session.ts";
export type { Explanation, Gate, GateCall } from "./session/settling.ts";
export { startup } from "./session/startup.ts";
export type { Startup, Store } from "./session/startup.ts";
export { Turn } from "./session/turn.ts";
