"""Tags go where their words went, each exactly once and well nested, whatever a model attends to."""

import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.service.assembly import Parts, build_parts
from dragoman.service.settings import Settings
from dragoman.service.telemetry.metrics import Metrics
from dragoman.service.translation.contract import TranslationOptions
from dragoman.service.translation.patterns import pattern_spans
from dragoman.service.translation.placeholders import chunks_of, plain_text
from dragoman.service.translation.spans import Chunk, without_overlaps
from dragoman.service.translation.tag_places import Reach, is_tag, place_tags, tags_in_order, without_tags


def chunked(text: str) -> tuple[Chunk, ...]:
    return chunks_of(text, 0, len(text), without_overlaps(pattern_spans(text)))


def placed(source: str, translation: str, pairs: Sequence[tuple[int, int]]) -> str | None:
    """One token for each word or mark; `pairs` are words of the translation with the source words they come from."""
    bare = plain_text(without_tags(chunked(source))).split()
    words = translation.split()
    attention = np.full((len(words), len(bare)), 0.01, np.float32)
    for target_word, source_word in pairs:
        attention[target_word, source_word] = 1.0
    reach = Reach(*(np.cumsum([len(word) for word in side]).tolist() for side in (bare, words)))
    chunks = place_tags(chunked(source), (translation,), reach, attention)
    return None if chunks is None else plain_text(chunks)


@pytest.mark.parametrize(
    ("source", "translation", "pairs", "expected"),
    [
        (
            "um gato <b>preto</b> dorme",
            "a black cat sleeps",
            [(0, 0), (1, 2), (2, 1), (3, 3)],
            "a <b>black</b> cat sleeps",
        ),
        (
            "uma <a href='x'>casa <i>azul</i></a> aqui",
            "a blue house here",
            [(0, 0), (1, 2), (2, 1), (3, 3)],
            "a <a href='x'><i>blue</i> house</a> here",
        ),
        ("pão <img src='p'> leite", "bread milk", [(0, 0), (1, 1)], "bread <img src='p'>milk"),
        ("pão <i class='x'></i> leite", "bread milk", [(0, 0), (1, 1)], "bread <i class='x'></i>milk"),
        ("um &lt;b&gt;gato&lt;/b&gt; só", "one cat", [(0, 0), (1, 1)], "one &lt;b&gt;cat&lt;/b&gt;"),
        ("um <1>gato</1> só", "one cat", [(0, 0), (1, 1)], "one <1>cat</1>"),
        ("pão</b> leite", "bread milk", [(0, 0), (1, 1)], "bread </b>milk"),
    ],
)
def test_a_tag_goes_where_its_words_went(
    source: str, translation: str, pairs: list[tuple[int, int]], expected: str
) -> None:
    """Also if words change places, if elements are nested, and if a tag stands alone."""
    assert placed(source, translation, pairs) == expected


def test_more_elements_than_words_cannot_be_placed() -> None:
    """No element may be left empty or with punctuation alone."""
    assert placed("<b>um</b> <i>dois</i>", "both", [(0, 0)]) is None
    assert placed("<b>um</b> <i>dois</i>", "both .", [(0, 0)]) is None


NAMES = st.sampled_from(["b", "i", "em", "span", "x:y"])
WORDS = st.sampled_from(["um", "gato", "e", "dois", "dorme", ","])


@st.composite
def marked_up(draw: st.DrawFn, depth: int = 2) -> str:
    """Words, nested elements, and tags that stand alone."""
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["word", "word", "element", "single"]))
        if kind == "element" and depth:
            name = draw(NAMES)
            parts.append(f"<{name}>{draw(marked_up(depth=depth - 1))}</{name}>")
        elif kind == "single":
            parts.append(draw(st.sampled_from(["<img src='x'/>", "<wbr>", "</u>", "<u>"])))
        else:
            parts.append(draw(WORDS))
    return " ".join(parts)


@given(marked_up(), st.lists(st.sampled_from(["the", "cat", "sleeps", "."]), min_size=1, max_size=8), st.randoms())
def test_every_tag_comes_once_in_order_and_the_text_is_untouched(source: str, words: list[str], random) -> None:  # type: ignore[no-untyped-def]
    """For any attention; or placing is refused as a whole."""
    chunks, translation = chunked(source), " ".join(words)
    bare = plain_text(without_tags(chunks)).split()
    attention = np.array([[random.random() for _ in bare] for _ in words], np.float32).reshape(len(words), len(bare))
    reach = Reach(*(np.cumsum([len(word) for word in side]).tolist() for side in (bare, words)))
    result = place_tags(chunks, (translation,), reach, attention)
    if result is None:
        return
    assert sorted(chunk.start for chunk in result if is_tag(chunk)) == [c.start for c in chunks if is_tag(c)]
    assert plain_text([chunk for chunk in result if not is_tag(chunk)]) == translation
    assert tags_in_order(chunks, result)


@pytest.mark.parametrize(
    ("translation", "in_order"),
    [
        ("a <b>cat</b> <i>sleeps</i>", True),
        ("a <b>cat <i>sleeps</i></b>", True),
        ("a <b></b> cat <i>sleeps</i>", False),
        ("a </b>cat<b> <i>sleeps</i>", False),
        ("a <b>cat <i>sleeps</b></i>", False),
    ],
)
def test_a_model_may_put_tags_out_of_order(translation: str, in_order: bool) -> None:
    """It is not enough to count them."""
    source = chunked("um <b>gato</b> <i>dorme</i>")
    spans = {chunk.text: chunk for chunk in source if not isinstance(chunk, str)}
    chunks = [spans[chunk.text] if not isinstance(chunk, str) else chunk for chunk in chunked(translation)]
    assert tags_in_order(source, chunks) == in_order


@pytest.fixture(scope="module")
def embedded() -> Iterator[Parts]:
    parts = build_parts(Settings(watch=False, threads=1, max_rows=8), Metrics(), time.monotonic)
    parts.catalog.reload()
    yield parts
    parts.catalog.close(drain=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ela <u>não</u> gosta de café.", "She <u>doesn't</u> like coffee."),
        ("Eu bebo chá <em>verde</em> todas as manhãs.", "I drink <em>green</em> tea every morning."),
        (
            "Clique <a href='x'>aqui</a> para <b>abrir a <i>porta</i></b> do carro.",
            "Click <a href='x'>here</a> to <b>open the car <i>door</i></b>.",
        ),
    ],
)
async def test_the_embedded_model_keeps_its_words_and_its_tags(embedded: Parts, text: str, expected: str) -> None:
    """The translation with tags has the words of the translation without."""
    result = await embedded.translator.translate([text], "pt", "en", TranslationOptions(n_best=2, beam_size=4))
    segment = result.translations[0].segments[0]
    greedy = await embedded.translator.translate([text], "pt", "en", TranslationOptions())
    assert greedy.translations[0].text == expected
    assert not segment.warnings
    for each in (segment.text, segment.alternatives[0].text):
        assert each.count("<") == text.count("<")
