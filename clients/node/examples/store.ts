/** Where the messages of these examples live: a file of JSON lines, the later line of a message wins. */
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";

const PATH = process.env["CHAT_FILE"] ?? "chat.jsonl";

export interface Message {
  role: string;
  content: unknown;
  _wal_stream?: string;
  _wal_seq?: number;
  _wal_recovered?: boolean;
}

export function load(): Message[] {
  const lines = existsSync(PATH) ? readFileSync(PATH, "utf8").split("\n").filter(Boolean) : [];
  const saved = lines.map((line) => JSON.parse(line) as Message);
  const key = (one: Message) => `${one._wal_stream} ${one._wal_seq}`;
  return [...new Map(saved.map((one) => [key(one), one])).values()];
}

/** Durable when it returns. */
export function save(message: Message): void {
  const file = openSync(PATH, "a");
  writeSync(file, `${JSON.stringify(message)}\n`);
  fsyncSync(file);
  closeSync(file);
}
