"""Servers that a user could run instead of ours, each a process of its own: `python -m bench.servers.NAME`."""
