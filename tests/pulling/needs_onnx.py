"""Stands for an importer where onnx is missing."""

import onnx  # noqa: F401
