"""Requests of query connections: replies, sessions, artifacts, and how much one user may ask."""
