"""`dragoman pull`: from a public registry of models to a bundle that a running server picks up.

A registry says which releases there are; `fetching` brings their files, `unpacking` opens them, an importer makes a
bundle of them, and `puller` gives it its name. Nothing here needs torch, and only importers need onnx.
"""


class PullError(Exception):
    """What went wrong with one pair; the message is one sentence that says what to do."""
