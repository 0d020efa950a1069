/** The Node client of walld: the public names, and nothing else. */

export { Client, connect } from "./client.ts";
export type { ConnectOptions, ReplyOptions, Stats } from "./client.ts";
export { NotDurable, Refused, Unavailable, Unsupported, WalldError } from "./errors.ts";
export type { Level } from "./levels.ts";
export { PartialReply } from "./partial.ts";
export type { Format, Gap, PlainMessage, ReplyError, Segment } from "./partial.ts";
export { Reply } from "./reply.ts";
export type { Redact } from "./redact.ts";
export type { Info } from "./reply.ts";
export { Session } from "./session.ts";
export type { AppendOptions, Entry, SubmitOptions } from "./session.ts";
export { Turn } from "./turn.ts";
