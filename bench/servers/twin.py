"""Text in, text out by CTranslate2: what both peer servers have inside. Knows no HTTP.

The tokenizer is the bundle's own, as it is in our server, and a translation may be as long as ours may: three times the
source and ten tokens, here of the longest source of a batch, because CTranslate2 has one limit for all.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import ctranslate2

from dragoman.service.bundles.manifest import read_bundle
from dragoman.service.translation.tokenizer import load_tokenizer


class Twin:
    """The same weights in CTranslate2, one thread."""

    def __init__(self, directory: Path, bundle: Path, compute_type: str = "int8") -> None:
        facts = read_bundle(bundle, check_hashes=False)
        self._tokenizer = load_tokenizer(facts)
        self._max_new_tokens = facts.limits.max_new_tokens
        self._prefix = list(facts.pairs[0].source_prefix_ids)
        self._eos_id = facts.special_ids.eos
        self._names = json.loads((directory / "shared_vocabulary.json").read_text("utf-8"))  # by id
        self._ids = {name: token_id for token_id, name in enumerate(self._names)}
        self._translator = ctranslate2.Translator(
            str(directory), inter_threads=1, intra_threads=1, compute_type=compute_type
        )

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Greedy, all texts as one batch."""
        sources = [[*self._prefix, *self._tokenizer.encode([text]), self._eos_id] for text in texts]
        limit = min(3 * max(map(len, sources)) + 10, self._max_new_tokens)
        results = self._translator.translate_batch(
            [[self._names[token_id] for token_id in ids] for ids in sources], beam_size=1, max_decoding_length=limit
        )
        return [self._tokenizer.decode([self._ids[name] for name in found.hypotheses[0]]) for found in results]
