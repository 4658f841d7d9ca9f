"""The first promise on real int8 graphs: tokens and scores, bit for bit, alone and in any crowd."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.service.bundles.manifest import Bundle
from dragoman.service.engine.job import DecodingOptions, DecodingResult, DecodingRules, Job
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.runner import OrtRunner
from dragoman.service.engine.sessions import OrtSessions
from tests.engine.crowds import answer, play

Asked = tuple[tuple[int, ...], DecodingOptions]

# Few sources, so that what they give alone is decoded once.
sources = st.tuples(st.integers(100, 109), st.integers(1, 12)).map(
    lambda drawn: (*(drawn[0] + (drawn[0] + 1) * place % 300 for place in range(drawn[1])), 3)
)
options = st.builds(
    DecodingOptions,
    beam_size=st.sampled_from([1, 1, 2, 4]),
    max_new_tokens=st.sampled_from([1, 5, 12]),
    prefix_ids=st.sampled_from([(), (), (200, 201)]),
    log_probs=st.just(True),
).filter(lambda drawn: len(drawn.prefix_ids) < (drawn.max_new_tokens or 0))
crowds = st.lists(st.tuples(sources, options, st.integers(0, 12)), min_size=2, max_size=24)


@pytest.fixture(scope="module")
def sessions(tiny_bundle: Bundle) -> OrtSessions:
    return OrtSessions(tiny_bundle, threads=1, provider="cpu")


def test_int8_jobs_translate_alike_alone_and_in_a_crowd(sessions: OrtSessions) -> None:
    """Staggered arrivals, greedy and beams, forced prefixes: nobody's neighbours show in anybody's scores."""
    rules = DecodingRules.of(sessions.bundle)
    lonely = Engine([OrtRunner(sessions, 8)], rules)
    crowded = Engine([OrtRunner(sessions, 32)], rules)

    @cache
    def alone(asked: Asked) -> DecodingResult:
        return play(lonely, [(Job(*asked), 0)])[0]

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(crowd=crowds)
    def check(crowd: list[tuple[tuple[int, ...], DecodingOptions, int]]) -> None:
        together = play(crowded, [(Job(source, asked), at) for source, asked, at in crowd])
        for (source, asked, _), result in zip(crowd, together, strict=True):
            assert answer(result) == answer(alone((source, asked)))

    check()
