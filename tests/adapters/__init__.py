"""Adapters against the real SDKs, a replay server and a real daemon: `python -m adapters`."""
