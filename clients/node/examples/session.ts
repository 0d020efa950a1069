/** A session: the user's message survives the loss of power, the reply's message follows it. */
import { connect } from "walld-client";

const client = connect();
const session = client.session("task-1");
const turn = await session.submit("What is the weather?", { messageId: "m-1" });
if (turn.state !== "completed") {
  await turn.workerStarted();
  const reply = await turn.reply({ meta: { model: "m-1" } });
  for (const text of ["4 degrees", " in Oslo."]) reply.token(text);
  reply.end("stop"); // its message is an entry of the session before its tokens go
  await turn.completed();
}
for (const message of (await session.messages()) ?? []) {
  console.log(`${message["role"]}: ${message["content"]}`);
}
await client.close();
