"""The fold of a session's events: turns, tool calls, tree, keys, and its snapshot."""
