"""How the interpreter shares its time in a process that serves: told when it begins, and when all bundles are loaded.

While it starts, nearly all that is made stays for ever; looking for cycles among it took a tenth of the start, and
found next to nothing. Later, a request allocates hundreds of objects and frees them at once; Python would look for
cycles among them, and among all that the libraries keep, every few requests. And whoever holds the interpreter's lock
while another thread wants it, such as a thread that plans a long document, gives it up after 5 ms by default: five
steps of a batch.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCH_SECONDS = 0.0005
_THRESHOLDS = (20_000, 20, 50)


@contextmanager
def serving() -> Iterator[None]:
    """Around a server's life; until it has settled there is nothing to collect."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def settle() -> None:
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()  # what is here now stays: no need to look at it, not even once
    gc.set_threshold(*_THRESHOLDS)
    gc.enable()
