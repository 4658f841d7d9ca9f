"""Tokens in, tokens out: the continuous batch, and everything that decides what is in it."""

import os

# ONNX Runtime sends usage data to its maker unless this is set before it is imported. A translation server must not.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
