"""Of five hundred sentences with things that must survive, none loses one silently, whatever the model does."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.service.translation.glossary import Glossary
from dragoman.service.translation.placeholders import find_spans
from dragoman.service.translation.translator import Translator
from tests.bundles.fakes import write_bundle
from tests.translation.placeholder_cases import NUM_CASES, measure, placeholder_cases, written_cases

OpenTranslator = Callable[..., Translator]
BOTH = [("pt", "en"), ("en", "pt")]


def test_the_cases_are_many_different_and_always_the_same() -> None:
    """A figure measured today must be comparable with one measured tomorrow."""
    cases = placeholder_cases()
    assert len(cases) == NUM_CASES
    assert len({case.text for case in cases}) == NUM_CASES
    assert cases == placeholder_cases()
    assert sum(bool(case.glossary) for case in cases) == NUM_CASES // 5


def test_everything_expected_is_taken_out() -> None:
    """What is not taken out may be lost."""
    for case in placeholder_cases():
        taken = Counter(span.text for span in find_spans(case.text, Glossary(case.glossary)))
        assert taken == Counter(case.expected), case.text


def test_what_a_reader_sees_in_our_own_sentences_is_taken_out() -> None:
    """Two views of the same sentences that share no pattern: neither may overlook what the other finds."""
    for case in written_cases():
        taken = [span.text for span in find_spans(case.text)]
        assert all(any(seen in span for span in taken) for seen in case.expected), case.text
        assert all(any(seen in span for seen in case.expected) for span in taken), case.text


@pytest.mark.parametrize("placeholders", [True, False], ids=["placeholders", "imported"])
@pytest.mark.parametrize("kind", ["copy", "reverse", "forget", "double"])
async def test_none_is_lost_silently(
    tmp_path: Path, open_translator: OpenTranslator, kind: str, placeholders: bool
) -> None:
    """Models that copy, reorder, drop and double placeholders, and imported ones that have none to begin with."""
    write_bundle(tmp_path / "both", kind, BOTH, placeholders=placeholders)
    results = await measure(open_translator(tmp_path), placeholder_cases(NUM_CASES if kind == "forget" else 60))
    counts = Counter(outcome for _, outcome, _ in results)
    assert counts["silent"] == counts["reported"] == 0
    if kind in ("copy", "reverse") and placeholders:
        assert counts["retried"] == 0
