"""Views of a session: messages, transcript, trace, audit, tree. Pure functions of its events."""
