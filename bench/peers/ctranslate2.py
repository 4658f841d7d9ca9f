"""CTranslate2 on the same weights: it sorts a file by length and batches it by itself."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import ctranslate2

from bench.ctranslate2_twin import convert, vocabulary
from bench.peers.peer import MAX_TOKENS, Ids
from dragoman.model.saved import SavedModel

TYPES = ("int8", "int8_float32", "float32")
BATCHES = (16, 32, 64, 128)


class CTranslate2:
    def __init__(
        self,
        saved: SavedModel,
        folder: Path,
        compute_type: str = "int8",
        batch: int = 32,
        threads: int = 1,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        self.name = f"CTranslate2 {compute_type}, batches of {batch}"
        self.compute_type, self.batch, self._max_tokens = compute_type, batch, max_tokens
        self._names = vocabulary(saved.config.vocab_size)
        self._ids = {name: i for i, name in enumerate(self._names)}
        directory = folder / compute_type
        if not directory.exists():
            convert(saved, directory, None if compute_type == "float32" else compute_type)
        self._translator = ctranslate2.Translator(
            str(directory), inter_threads=threads, intra_threads=1, compute_type=compute_type
        )

    def translate_ids(self, sources: Sequence[Ids], beam_size: int) -> list[Ids]:
        tokens = [[self._names[i] for i in ids] for ids in sources]
        results = self._translator.translate_batch(
            tokens, beam_size=beam_size, max_batch_size=self.batch, max_decoding_length=self._max_tokens
        )
        return [[self._ids[name] for name in result.hypotheses[0]] for result in results]


def variants(
    saved: SavedModel, folder: Path, types: Sequence[str], batches: Sequence[int], max_tokens: int = MAX_TOKENS
) -> Iterator[CTranslate2]:
    """Everything that a sweep tries; loaded one at a time."""
    for compute_type in types:
        for batch in batches:
            yield CTranslate2(saved, folder, compute_type, batch, max_tokens=max_tokens)
