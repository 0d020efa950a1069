"""Requests and answers: connections, what is said on them, answers without a daemon."""
