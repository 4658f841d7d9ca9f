"""Tokens in, tokens out: the continuous batch and everything that decides what is in it."""

import os

# ONNX Runtime reports its use to its maker unless told not to before it is imported; a server of texts tells nobody.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
