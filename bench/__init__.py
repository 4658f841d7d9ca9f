"""Benchmarks against what a user would pick instead. Not part of the installed package."""
