"""The daemon: an event loop around the engine, its storage, its sockets and its requests."""
