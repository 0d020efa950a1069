"""Commands that ask a running daemon about replies, turns and its own status."""
