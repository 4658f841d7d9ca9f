"""Which tokens may come out of a model: those that it learned to write.

Both languages share one vocabulary, but a model of one direction writes only one of them. A token that never stood in a
target of the training has a low score everywhere. Leaving it out of the last product changes no translation and makes
every step cheaper. Bytes and placeholders may always come out: with them any text can be written.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from dragoman.export.operators import Ints
from dragoman.model.tokenizer import EOS_ID, NUM_PLACEHOLDERS, PAD_ID, UNK_ID, Tokenizer

_MULTIPLE = 64  # whole blocks for the search of the best tokens
_LINES = 10_000


def output_ids(tokenizer: Tokenizer, targets: Iterable[str]) -> Ints:
    """Ascending ids of the tokens that these texts need, and of those that any text may need."""
    may_appear = np.zeros(tokenizer.vocab_size, bool)
    may_appear[_always(tokenizer)] = True
    lines = iter(targets)
    while some := list(islice(lines, _LINES)):
        for ids in tokenizer.encode_batch(some):
            may_appear[ids] = True
    missing = -int(may_appear.sum()) % _MULTIPLE
    may_appear[np.flatnonzero(~may_appear)[:missing]] = True  # fill the last block
    return np.flatnonzero(may_appear).astype(np.int64)


def _always(tokenizer: Tokenizer) -> Sequence[int]:
    in_bytes = [tokenizer.symbol_id(f"<0x{byte:02X}>") for byte in range(256)]
    return [PAD_ID, UNK_ID, EOS_ID, *in_bytes, *map(tokenizer.placeholder_id, range(NUM_PLACEHOLDERS))]
