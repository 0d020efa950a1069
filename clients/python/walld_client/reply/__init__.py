"""One reply while it streams: its calls, its end, its way into the link."""
