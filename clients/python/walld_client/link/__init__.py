"""The connection of a process to its daemon: socket, backlog, acknowledgements, reconnect."""
