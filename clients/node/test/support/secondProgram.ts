/** A program that gives its reply an id that is in use, and ends. Arguments: socket, and `close` to close. */

import { connect } from "walld-client";

const [socket, how] = process.argv.slice(2);
const client = connect(socket);
const reply = client.reply("s", { streamId: "same" });
reply.token("theirs");
reply.cancel("stopped");
if (how === "close") await client.close();
