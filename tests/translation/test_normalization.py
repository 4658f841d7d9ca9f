"""Composing gives what Unicode defines, and takes no longer for text that was made to take long."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from dragoman.service.translation.normalization import clean, composed
from dragoman.service.translation.placeholders import chunks_of, find_spans, plain_text
from dragoman.service.translation.spans import SpanKind
from tests.bundles.fakes import tokenizer

MARKS = st.sampled_from("aeq \u0301\u0327\u0308\u0344\u0f73é\u200d—😀")


@given(st.text(MARKS, max_size=80) | st.text())
def test_text_that_people_write_is_composed_as_unicode_says(text: str) -> None:
    """Few marks in a row: then nothing differs. With more, the same marks are there."""
    longest = max(map(len, "".join("x" if unicodedata.category(c)[0] == "M" else " " for c in text).split()), default=0)
    if longest <= 30:
        assert composed(text) == unicodedata.normalize("NFC", text)
    decomposed = [sorted(unicodedata.normalize("NFD", each)) for each in (composed(text), text)]
    assert decomposed[0] == decomposed[1]


def test_any_number_of_marks_is_composed_in_time() -> None:
    """Sorting them takes quadratic time with the interpreter's lock held: these would take minutes."""
    text = "O gato dorme. a" + "\u0301\u0327" * 500_000
    assert len(clean(text)) >= 1_000_000 - 2
    assert len(clean("a" + "\u0f73" * 500_000)) >= 500_000


def test_marks_without_number_are_taken_out_and_come_back() -> None:
    """No model was taught them, and nothing of a text is lost."""
    text = "O gato dorme. a" + "\u0301\u0327" * 100_000 + " e a casa."
    spans = find_spans(text, known_characters=tokenizer().known_characters)
    assert [span.kind for span in spans] == [SpanKind.UNKNOWN]
    assert plain_text(chunks_of(text, 0, len(text), spans)) == text


def test_unknown_characters_without_number_are_one_span() -> None:
    """Each word used to copy all words before it."""
    (span,) = find_spans("漢 " * 300_000, known_characters=tokenizer().known_characters)
    assert span.end == 599_999
