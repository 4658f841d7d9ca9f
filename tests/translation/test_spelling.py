"""Capitalized months and days are read in lower case if the model knows them so; names and all else stay."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dragoman.service.assembly import EMBEDDED
from dragoman.service.bundles.manifest import Pair, read_bundle
from dragoman.service.catalog.served import Hop, Served
from dragoman.service.commands.translate import open_parts
from dragoman.service.translation.cache import SegmentCache
from dragoman.service.translation.capitals import is_shouted
from dragoman.service.translation.contract import TranslationLimits
from dragoman.service.translation.glossary import NO_GLOSSARY, Glossary
from dragoman.service.translation.language import Detector
from dragoman.service.translation.plan import Planner
from dragoman.service.translation.spelling import as_written_today
from dragoman.service.translation.tokenizer import Tokenizer, load_tokenizer
from dragoman.service.translation.translator import Translator
from dragoman.service.translation.unit import Unit
from tests.bundles.fakes import sentences, tokenizer, write_bundle
from tests.clock import Clock
from tests.translation.asking import events_of, streamed_text, translate
from tests.translation.conftest import OpenTranslator
from tests.translation.generated import PIECES
from tests.translation.test_tokenizer import marian_parts, marian_tokenizer

LARGE = ("Janeiro", "Março", "Dezembro", "Segunda", "Terças", "Sexta-feira", "Quintas-Feiras", "Sábado", "Domingos")
SMALL = (*map(str.lower, LARGE), "DEZEMBRO", "Dezembrada", "Marçal", "Sabádo", "em", "no", "aos", "de", "Rio")


def knows_small(word: str) -> bool:
    return word.islower()


def reads(text: str) -> str:
    return as_written_today(text, "pt", knows_small)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Ele volta em Dezembro.", "Ele volta em dezembro."),
        ("O prazo acaba em 14 de Março de 2031.", "O prazo acaba em 14 de março de 2031."),
        ("Temos aula na Segunda-feira, às nove.", "Temos aula na segunda-feira, às nove."),
        ("Ela nada às Quartas-Feiras.", "Ela nada às quartas-feiras."),
        ("O museu fecha na Sexta-feira Santa.", "O museu fecha na sexta-feira Santa."),
        ("A feira é aos Sábados e Domingos.", "A feira é aos sábados e domingos."),
        ("Treinamos às Terças, Quintas e Sextas.", "Treinamos às terças, quintas e sextas."),
        ("Choveu entre Abril, Maio e Junho", "Choveu entre abril, maio e junho"),
        ("O bar (aberto desde Julho) vai bem.", "O bar (aberto desde julho) vai bem."),
        ("Em Dezembro, Marta vem a Lisboa.", "Em dezembro, Marta vem a Lisboa."),
        ("Chove muito. Aos Sábados fico em casa.", "Chove muito. Aos sábados fico em casa."),
    ],
)
def test_a_month_or_day_in_mid_sentence_is_read_small(text: str, read: str) -> None:
    """As the language is written today, and as the model has seen it."""
    assert reads(text) == read


@pytest.mark.parametrize(
    "text",
    [
        "Dezembro foi frio.",
        "“Dezembro foi frio”, disse ela.",
        "— Dezembro foi frio.",
        "Acabou o verão. Março chegou.",
        "Ela gritou: Domingo!",
        "O livro chama-se «Agosto».",
        "ELE VOLTA EM DEZEMBRO.",
    ],
)
def test_what_begins_a_sentence_a_title_or_shouts_stays(text: str) -> None:
    """At the beginning of a sentence a capital is right."""
    assert reads(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "Ela ouviu Plácido Domingo cantar.",
        "A ilha de São Domingo fica longe.",
        "Moro no Rio de Janeiro há um ano.",
        "O primo {nome} mora na Rua da Quinta Velha.",
        "O avô dela viu a Segunda Guerra Mundial.",
        "Almoçamos na Quinta da Boa Vista.",
        "O senhor Domingos saiu cedo.",
        "Li o Dezembro-Azul ontem.",
    ],
)
def test_names_stay(text: str) -> None:
    """A person or a place must not become a date."""
    assert reads(text) == text


@pytest.mark.parametrize("known", [{"Dezembro", "dezembro"}, {"Dezembro"}, set()])
def test_a_word_stays_unless_the_tokenizer_knows_only_the_small_one(known: set[str]) -> None:
    """A word that the tokenizer knows with its capital, or not as a whole, stays as it is."""
    assert as_written_today("Ele volta em Dezembro.", "pt", known.__contains__) == "Ele volta em Dezembro."


def test_other_languages_keep_their_spelling_and_varieties_share_it() -> None:
    """Spanish and English texts may hold the same letters; Brazil and Portugal write alike."""
    assert as_written_today("Ele volta em Dezembro.", "es", knows_small) == "Ele volta em Dezembro."
    assert as_written_today("Ele volta em Dezembro.", "pt-BR", knows_small) == "Ele volta em dezembro."


def texts(*words: str) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from((*PIECES, *words)), max_size=14).map(" ".join)


@given(texts(*LARGE, *SMALL))
@settings(max_examples=300, deadline=None)
def test_nothing_but_the_size_of_letters_changes(text: str) -> None:
    """Any mixture of such words and others: the rest of the text stays, and a second reading changes nothing."""
    read = reads(text)
    assert len(read) == len(text)
    changed = {new for old, new in zip(text, read, strict=True) if old != new}
    assert changed <= set("jmdstqf")
    assert read.lower() == text.lower()
    assert reads(read) == read


def planner(with_tokenizer: Tokenizer, source: str = "pt") -> Planner:
    bundle = read_bundle(EMBEDDED / "pt-en", check_hashes=False)
    engine: Any = None  # planning asks for nothing of it
    return Planner(Hop(Served(bundle, with_tokenizer, engine, "any"), Pair(source, "en")), max_beam_size=8)


def ids_of(planner: Planner, text: str, glossary: Glossary = NO_GLOSSARY) -> list[int]:
    """What goes to the model for a text of one sentence, without the end of sentence."""
    _, ((unit,),) = planner.text(text, glossary, split_sentences=False)
    assert isinstance(unit, Unit)
    return list(unit.source_ids[:-1])


@given(texts(*SMALL))
@settings(max_examples=200, deadline=None)
def test_text_without_such_words_is_encoded_exactly_as_it_was(text: str) -> None:
    """Other texts are not changed."""
    assume(any(map(str.isalpha, text)) and not is_shouted([text], "pt"))
    (part,) = planner(tokenizer()).segment((text,))
    assert isinstance(part, Unit)
    assert list(part.source_ids[:-1]) == tokenizer().encode([text])


def test_our_own_sentences_are_encoded_exactly_as_they_were() -> None:
    """Hundreds of ordinary sentences, some with months and days, all spelt as today."""
    for text, _ in sentences():
        unit = planner(tokenizer()).segment((text,))[0]
        assert isinstance(unit, Unit)
        assert list(unit.source_ids[:-1]) == tokenizer().encode([text])


def test_terms_and_placeholders_stay_as_they_are_sent() -> None:
    """A span goes back into the translation as it is, also where it goes to the model as text."""
    glossary, text = Glossary({"Domingo": "Domingo"}), "Ele leu {Domingo} e o jornal Domingo no Sábado."
    with_numbers = planner(tokenizer())
    expected: list[str | int] = ["Ele leu ", 0, " e o jornal ", 1, " no sábado."]
    assert ids_of(with_numbers, text, glossary) == tokenizer().encode(expected)
    without = tokenizer(placeholders=False)
    expected = ["Ele leu {Domingo} e o jornal Domingo no sábado."]
    assert ids_of(planner(without), text, glossary) == without.encode(expected)


def test_imported_models_gain_too_but_not_by_a_token_they_do_not_have() -> None:
    """Their vocabulary is in a file of its own: a piece that is not in it is no known word."""
    source, target, vocabulary, unk_id = marian_parts()
    marian = marian_tokenizer(source, target, vocabulary, unk_id)
    assert ids_of(planner(marian), "Ela veio no Domingo.") == marian.encode(["Ela veio no domingo."])
    del vocabulary["▁domingo"]
    marian = marian_tokenizer(source, target, vocabulary, unk_id)
    assert ids_of(planner(marian), "Ela veio no Domingo.") == marian.encode(["Ela veio no Domingo."])


async def test_the_answer_shows_the_source_as_it_was_sent(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """Only the model reads lower case; the source in the answer stays, whole and streamed."""
    write_bundle(tmp_path / "pt-en")
    translator = open_translator(tmp_path)
    whole = await translate(translator, "Ela veio no Domingo.")
    assert whole.segments[0].source == "Ela veio no Domingo."
    assert whole.text == "Ela veio no domingo."  # a model that copies says what it read
    assert streamed_text(await events_of(translator, "Ela veio no Domingo.")) == whole.text


@pytest.fixture(scope="module")
def embedded() -> Iterator[Translator]:
    """What comes with the package, network and all."""
    with open_parts(None, "pt", "en", threads=1) as parts:
        yield Translator(parts.catalog, Detector(), SegmentCache(0, Clock()), TranslationLimits())


class TestEmbedded:
    async def test_the_month_is_translated(self, embedded: Translator) -> None:
        """A sentence from a bug report."""
        answer = await translate(embedded, "Lucas irá viajar ao Rio em Dezembro.")
        assert "December" in answer.text
        assert answer.segments[0].source == "Lucas irá viajar ao Rio em Dezembro."

    async def test_the_city_stays(self, embedded: Translator) -> None:
        """Its tokenizer knows this month with a capital, from the name of the city."""
        known = load_tokenizer(read_bundle(EMBEDDED / "pt-en", check_hashes=False))
        for text in ("Lucas mora no Rio de Janeiro.", "O prazo acaba em Janeiro."):
            assert ids_of(planner(known), text) == known.encode([text])
        assert "Rio de Janeiro" in (await translate(embedded, "Lucas mora no Rio de Janeiro.")).text
