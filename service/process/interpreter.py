"""The garbage collector and the interpreter's lock in a process that serves.

During the start nearly all objects stay for ever. Looking for garbage among them took a tenth of the start and found
almost none, so the collector is off until all bundles are loaded. Later, a request allocates hundreds of objects and
frees them at once; with Python's own thresholds the collector would run every few requests, over everything that the
libraries keep. A thread gives up the interpreter's lock after 5 ms by default, which is five steps of a batch: a thread
that plans a long document would delay every row for that long.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCH_SECONDS = 0.0005
_THRESHOLDS = (20_000, 20, 50)


@contextmanager
def serving() -> Iterator[None]:
    """Around the life of a server: the collector is off until `settle` is called, and on again at the end."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def settle() -> None:
    """Call it when all bundles are loaded."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()  # the objects of now stay, so the collector never looks at them
    gc.set_threshold(*_THRESHOLDS)
    gc.enable()
