"""The attempts of a unit, in their order; and what of a piece goes to the model."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.service.assembly import EMBEDDED
from dragoman.service.bundles.manifest import Pair, read_bundle
from dragoman.service.catalog.served import Hop, Served
from dragoman.service.translation.attempts import _edges
from dragoman.service.translation.glossary import NO_GLOSSARY
from dragoman.service.translation.placeholders import plain_text
from dragoman.service.translation.plan import Planner
from dragoman.service.translation.spans import Span
from dragoman.service.translation.tokenizer import SentencePieceVocabulary, Tokenizer
from dragoman.service.translation.unit import Plan, Unit, is_whole, units_of
from tests.bundles.fakes import placeholder_ids, tokenizer, tokenizer_model


def planner_of(places_tags: bool = True, max_beam_size: int = 8, with_tokenizer: Any = None) -> Planner:
    bundle = read_bundle(EMBEDDED / "pt-en", check_hashes=False)
    served = Served(bundle, with_tokenizer or tokenizer(), engine=None, identity="any")  # type: ignore[arg-type]
    return Planner(Hop(served, Pair("pt", "en")), max_beam_size, places_tags=places_tags)


def unit_of(planner: Planner, text: str) -> Unit:
    _, ((unit,),) = planner.text(text, NO_GLOSSARY, split_sentences=False)
    assert isinstance(unit, Unit)
    return unit


def shown(plan: Plan) -> str:
    """Units in brackets with what the model reads, and the width of their beam, if it is not the request's."""
    parts = [
        f"[{plain_text(part.chunks)}]{part.beam_size or ''}"
        if isinstance(part, Unit)
        else (part.text if isinstance(part, Span) else part)
        for part in plan
    ]
    return "".join(parts)


TAGGED = "Veja <b>{nome}</b> agora."


@pytest.mark.parametrize(
    ("text", "options", "attempts"),
    [
        (TAGGED, {}, ["[Veja {nome} agora.]", f"[{TAGGED}]", f"[{TAGGED}]4", "[Veja] <b>{nome}</b> [agora.]"]),
        (TAGGED, {"beam_size": 4}, ["[Veja {nome} agora.]", f"[{TAGGED}]", "[Veja] <b>{nome}</b> [agora.]"]),
        (TAGGED, {"prefix": "Look <b>"}, [f"[{TAGGED}]", f"[{TAGGED}]4", "[Veja] <b>{nome}</b> [agora.]"]),
        ("Veja {nome}.", {}, ["[Veja {nome}.]", "[Veja {nome}.]4", "[Veja] {nome}."]),
    ],
)
def test_attempts_come_in_order(text: str, options: dict[str, Any], attempts: list[str]) -> None:
    """Whole without tags, whole with placeholders, the same with a beam, in pieces; each only where it makes sense."""
    planner = planner_of()
    found = list(planner.attempts(unit_of(planner, text), options.pop("beam_size", 1), **options))
    assert [shown(plan) for plan in found] == attempts
    assert all(is_whole(plan) for plan in found[:-1])
    assert not any(unit.spans for unit in units_of(found[-1]))


def test_tags_stay_in_the_text_if_nobody_can_be_asked_for_attention() -> None:
    """Without attention nothing says where they go."""
    planner = planner_of(places_tags=False)
    assert shown(next(planner.attempts(unit_of(planner, TAGGED), 1))) == f"[{TAGGED}]"


def test_no_attempt_has_a_wider_beam_than_the_server_allows() -> None:
    planner = planner_of(max_beam_size=2)
    widths = [unit.beam_size for plan in planner.attempts(unit_of(planner, TAGGED), 1) for unit in units_of(plan)]
    assert {width for width in widths if width} == {2}


def test_an_attempt_is_planned_when_it_is_asked_for() -> None:
    """Nearly all units need only one attempt, so the others must cost nothing."""

    class Counting(Tokenizer):
        num_encoded = 0

        def encode(self, parts: Sequence[str | int]) -> list[int]:
            self.num_encoded += 1
            return super().encode(parts)

    counting = Counting(SentencePieceVocabulary(tokenizer_model(), placeholder_ids()))
    planner = planner_of(with_tokenizer=counting)
    unit = unit_of(planner, TAGGED)
    attempts, costs = planner.attempts(unit, 1), []
    for _ in range(4):
        before = counting.num_encoded
        next(attempts)
        costs.append(counting.num_encoded - before)
    assert costs == [1, 0, 0, 2]


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        (", o gato (", (", ", "o gato", " (")),
        ("o gato dorme.", ("", "o gato dorme.", "")),
        ("_ «gato» – ", ("_ «", "gato»", " – ")),
        ("...", ("...", "", "")),
        ("", ("", "", "")),
    ],
)
def test_marks_at_the_edges_stay_outside(text: str, edges: tuple[str, str, str]) -> None:
    """A model makes words of marks; only the mark that ends a sentence is part of what it says."""
    assert _edges(text) == edges


@given(st.text(st.sampled_from("aé1_ .,;:([{\"'“‘«‹/–—-\u2009\n")))
def test_edges_are_what_one_expression_would_find(text: str) -> None:
    """The plain expression takes quadratic time; the quick code must give the same result."""
    plain = re.fullmatch(r"([\W_]*)(.*?)([\s,;:(\[{\"'“‘«‹/–—-]*)", text, re.DOTALL)
    assert plain is not None
    assert _edges(text) == plain.groups()


def test_blanks_without_number_within_a_piece_take_no_longer() -> None:
    """When the search for the end began again at each blank, these took hours."""
    text = "tudo" + "\u2009" * 1_000_000 + "dele"
    assert _edges(text) == ("", text, "")
