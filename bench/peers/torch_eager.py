"""The network in torch as it was trained, decoded by the reference search: `model.evaluate`, clear rather than fast."""

from collections.abc import Sequence

from bench.peers.peer import MAX_TOKENS, Ids, in_batches
from dragoman.model.evaluate import beam, greedy
from dragoman.model.transformer import Transformer

BATCHES = (16, 64)


class TorchEager:
    def __init__(self, network: Transformer, batch: int = 64, max_tokens: int = MAX_TOKENS) -> None:
        self.name = f"torch eager, batches of {batch}"
        self._network, self._batch, self._max_tokens = network, batch, max_tokens

    def translate_ids(self, sources: Sequence[Ids], beam_size: int) -> list[Ids]:
        found: list[Ids] = [[] for _ in sources]
        for batch in in_batches(sources, self._batch):
            chosen = [sources[i] for i in batch]
            limits = [self._max_tokens] * len(batch)
            if beam_size == 1:
                best = greedy(self._network, chosen, limits)
            else:
                best = [found[0] for found in beam(self._network, chosen, limits, beam_size)]
            for i, hypothesis in zip(batch, best, strict=True):
                found[i] = hypothesis.ids
        return found
