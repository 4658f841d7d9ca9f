"""Turn a trained model into a proven bundle of ONNX graphs."""

import dragoman.service.engine  # noqa: F401  (before ONNX Runtime is imported: it must not report to its maker)


class ExportError(Exception):
    """The export cannot be made as it was asked for; the message says what to change."""
