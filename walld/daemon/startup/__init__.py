"""A start behind storage recovery: streams, sessions, intents, the first segment."""
