"""Tokens in, tokens out: the continuous batch and everything that decides what is in it."""
