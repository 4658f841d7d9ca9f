"""How large the batch of a file is."""

from __future__ import annotations

import dataclasses

from dragoman.service.bundles.manifest import Bundle
from dragoman.service.engine.file_batch import batch_for


def large(bundle: Bundle) -> Bundle:
    wide = [dataclasses.replace(tensor, shape=(*tensor.shape[:-1], 4096)) for tensor in bundle.state]
    return dataclasses.replace(bundle, state=tuple(wide))


def test_a_large_model_has_fewer_rows(tiny_bundle: Bundle) -> None:
    """Many rows of its caches would not fit the processor's; beams need them all the same."""
    assert batch_for(large(tiny_bundle), 1).rows < batch_for(tiny_bundle, 1).rows < batch_for(tiny_bundle, 4).rows
    assert batch_for(large(tiny_bundle), 4) == batch_for(tiny_bundle, 4)


def test_only_long_sentences_have_fewer_rows(tiny_bundle: Bundle) -> None:
    """At eight tokens a sentence the rows bound the batch, at fifty the tokens do."""
    batch = batch_for(tiny_bundle, 1)
    assert 8 * batch.rows <= batch.tokens < 50 * batch.rows
