"""What of a piece goes to the model, and what stands beside it as it was."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.service.translation.plan import _edges


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
    """A model makes words of them; how a sentence ends is part of what it says."""
    assert _edges(text) == edges


@given(st.text(st.sampled_from("aé1_ .,;:([{\"'“‘«‹/–—-\u2009\n")))
def test_edges_are_what_one_expression_would_find(text: str) -> None:
    """The plain way to say it takes the square of the text's length; the quick one must say the same."""
    plain = re.fullmatch(r"([\W_]*)(.*?)([\s,;:(\[{\"'“‘«‹/–—-]*)", text, re.DOTALL)
    assert plain is not None
    assert _edges(text) == plain.groups()


def test_blanks_without_number_within_a_piece_take_no_longer() -> None:
    """The search for the end began again at each of them: these would take hours."""
    text = "tudo" + "\u2009" * 1_000_000 + "dele"
    assert _edges(text) == ("", text, "")
