"""The traffic of the memory benchmark: as many shapes as it says, and nothing left under way when memory is read."""

import itertools
import random

from bench.memory import ENCODE_TOKENS, MAX_BEAM, ROWS, Traffic, waves
from dragoman.service.bundles.manifest import Bundle


def test_waves_are_of_every_length_and_every_width(tiny_bundle: Bundle) -> None:
    """And each can join the batch as a whole, so that its size is a shape."""
    some = list(itertools.islice(waves(tiny_bundle, random.Random(0)), 2000))
    lengths, widths = set[int](), set[int]()
    for wave in some:
        (length,), (width,) = ({job.num_source_tokens for job in wave}, {job.options.beam_size for job in wave})
        assert len(wave) == 1 or (length * len(wave) <= ENCODE_TOKENS and width * len(wave) <= ROWS)
        lengths.add(length)
        widths.add(width)
    assert lengths == set(range(1, tiny_bundle.limits.max_source_tokens + 1))
    assert widths == set(range(1, MAX_BEAM + 1))


def test_shapes_are_counted_where_graphs_run(tiny_bundle: Bundle) -> None:
    """Both graphs; the same traffic meets the same shapes, and more of it meets more."""
    first, second = Traffic(tiny_bundle, seed=5), Traffic(tiny_bundle, seed=5)
    first.go_on(60)
    second.go_on(60)
    assert first.runner.shapes == second.runner.shapes
    assert {graph for graph, _, _ in first.runner.shapes} == {"encoder", "decoder"}
    assert first.runner.num_rows == 0
    before = len(first.runner.shapes)
    first.go_on(120)
    assert len(first.runner.shapes) > before
