"""How the interpreter shares its time in a process that serves: set once, when all bundles are loaded.

A request allocates hundreds of objects and frees them at once; Python would look for cycles among them, and among all
that the libraries keep for ever, every few requests. And whoever holds the interpreter's lock while another thread
wants it, such as a thread that plans a long document, gives it up after 5 ms by default: five steps of a batch.
"""

import gc
import sys

_SWITCH_SECONDS = 0.0005
_THRESHOLDS = (20_000, 20, 50)


def settle() -> None:
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # what is here now stays: no need to look at it again
    gc.set_threshold(*_THRESHOLDS)
