/** At start-up: adopt the replies whose process is gone. Idempotent: killed anywhere, run it again. */
import { connect } from "walld-client";

import { load, save } from "./store.ts";

const client = connect();
for (const reply of await client.orphans()) {
  const isWhole = load().some((one) => one._wal_stream === reply.streamId && !one._wal_recovered);
  if (!isWhole) {
    for (const message of reply.messages()) save({ ...message });
    console.log(`recovered ${reply.streamId}: ${reply.text}`);
  }
  await client.resolve(reply.streamId, reply.lastSeq);
}
await client.close();
