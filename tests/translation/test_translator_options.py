"""What a request may ask of its translation, and what is refused before any work."""

from pathlib import Path
from typing import Any

import pytest

from dragoman.service import errors
from dragoman.service.translation import decode, request, translator
from dragoman.service.translation.contract import SegmentWarning, TranslationLimits, TranslationOptions
from dragoman.service.translation.unit import Plan, Unit, units_of
from tests.bundles.fakes import FakeEngines, tokenizer, write_bundle
from tests.clock import Clock
from tests.translation.asking import translate
from tests.translation.conftest import OpenTranslator


async def test_n_best_gives_the_other_hypotheses(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """Best first; the best itself is the text."""
    write_bundle(tmp_path / "pt-en")
    segment = (await translate(open_translator(tmp_path), "O gato dorme.", beam_size=4, n_best=3)).segments[0]
    assert len(segment.alternatives) == 2
    scores = [segment.score, *(each.score for each in segment.alternatives)]
    assert scores == sorted(scores, reverse=True)


async def test_log_probs_are_one_per_token(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """With the end of sentence; a placeholder is shown by what it stands for."""
    write_bundle(tmp_path / "pt-en")
    segment = (await translate(open_translator(tmp_path), "O gato vê {nome}.", log_probs=True)).segments[0]
    assert segment.log_probs is not None
    assert len(segment.log_probs) == segment.num_tokens
    assert {"{nome}", "</s>"} <= {each.token for each in segment.log_probs}
    assert all(each.log_prob == pytest.approx(-0.25) for each in segment.log_probs)


async def test_a_target_prefix_begins_the_first_translated_segment(
    tmp_path: Path, open_translator: OpenTranslator
) -> None:
    """Of each text; blanks around it do not count."""
    write_bundle(tmp_path / "pt-en")
    options = TranslationOptions(target_prefix=" A casa ")
    result = await open_translator(tmp_path).translate(
        ["- 123\n- O gato dorme. Fim.", "A casa é azul."], "pt", "en", options
    )
    first, second = result.translations
    assert first.text.startswith("- 123\n- A casa")
    assert first.segments[1].text == "Fim."
    assert second.text == "A casa é azul."


async def test_a_prefix_costs_a_long_text_nothing(
    tmp_path: Path, open_translator: OpenTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its segment is looked for once, not once for every segment; and its options are not kept in a cache."""
    looks = [0]

    def counted(plan: Plan) -> list[Unit]:
        looks[0] += 1
        return units_of(plan)

    write_bundle(tmp_path / "pt-en")
    remembered = decode._decoding_options.cache_info().currsize
    for module in (translator, request):  # where the segment is looked for
        monkeypatch.setattr(module, "units_of", counted)
    options = TranslationOptions(glossary={"foo": "bar"}, target_prefix="O")
    (result,) = (
        await open_translator(tmp_path).translate(["foo\n" * 200 + "O gato."], "pt", "en", options)
    ).translations
    assert result.text == "bar\n" * 200 + "O gato."
    assert looks[0] <= 3 * 201
    assert decode._decoding_options.cache_info().currsize <= remembered + 1


async def test_a_prefix_may_quote_a_placeholder(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """The quoted span is that placeholder, not a second copy in text."""
    write_bundle(tmp_path / "pt-en")
    translation = await translate(
        open_translator(tmp_path), "Veja {nome} agora.", target_prefix="Veja {nome}", strict=True
    )
    assert translation.text == "Veja {nome} agora."
    assert translation.segments[0].warnings == ()


async def test_a_prefix_may_quote_placeholders_in_any_order(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """A placeholder that was quoted out of order was taken for text and came a second time."""
    write_bundle(tmp_path / "pt-en")
    translator = open_translator(tmp_path)
    with await translator.begin(["Envie {nome} para {cidade}."], "pt", "en", TranslationOptions(), "") as active:
        planner, (unit,) = active.texts[0].planners[0], units_of(active.texts[0].plans[0])
        ids = planner.target_prefix_ids("Para {cidade}, {nome}", unit)
        assert planner.tokenizer.decode_parts(ids) == ["Para ", 1, ", ", 0]


async def test_a_prefix_that_quotes_a_lost_placeholder_does_not_double_it(
    tmp_path: Path, open_translator: OpenTranslator
) -> None:
    """In pieces the placeholder stands alone, and the prefix is cut before it."""
    write_bundle(tmp_path / "pt-en", "double")
    text = "Veja {nome} e {outro} agora."
    translation = await translate(open_translator(tmp_path), text, target_prefix="Veja {nome}")
    assert translation.text == text
    assert translation.segments[0].warnings == (SegmentWarning.PLACEHOLDER_RETRIED,)


async def test_a_prefix_that_goes_on_in_its_last_word_is_reported(
    tmp_path: Path, open_translator: OpenTranslator
) -> None:
    """A prefix should end with a whole word; a warning tells the caller that it did not."""
    write_bundle(tmp_path / "pt-en")
    ids = tokenizer().encode(["extraordinariamente"])
    starts = (tokenizer().decode(ids[:count]) for count in range(1, len(ids)))
    part = next(start for start in starts if start)  # the first token may be a space alone
    segment = (await translate(open_translator(tmp_path), "extraordinariamente", target_prefix=part)).segments[0]
    continued = segment.text.startswith(part) and segment.text[len(part) : len(part) + 1].isalnum()
    assert continued
    assert segment.warnings == (SegmentWarning.PREFIX_CONTINUED,)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"beam_size": 0}, errors.InvalidRequest),
        ({"beam_size": 9}, errors.InvalidRequest),
        ({"beam_size": 2, "n_best": 3}, errors.InvalidRequest),
        ({"max_new_tokens": 0}, errors.InvalidRequest),
        ({"length_penalty": float("nan")}, errors.InvalidRequest),
        ({"timeout_seconds": 0.0}, errors.InvalidRequest),
        ({"glossary": {" ": "x"}}, errors.InvalidRequest),
        ({"glossary": {"a": "\ud800"}}, errors.InvalidRequest),
        ({"glossary": {"a": "1", "b": "2", "c": "3"}}, errors.TooLarge),
        ({"target_prefix": "A casa é azul e o gato dorme", "max_new_tokens": 2}, errors.InvalidRequest),
        ({"target_prefix": "a" * 10_001}, errors.TooLarge),
    ],
)
async def test_what_cannot_be_done_is_refused_before_any_work(
    tmp_path: Path, open_translator: OpenTranslator, options: dict[str, Any], error: type[Exception]
) -> None:
    """Whichever route it came by."""
    write_bundle(tmp_path / "pt-en")
    engines = FakeEngines(Clock())
    translator = open_translator(tmp_path, engines, TranslationLimits(max_glossary_terms=2))
    steps = engines.runners["pt-en 1"].num_steps
    with pytest.raises(error):
        await translate(translator, "O gato.", **options)
    assert engines.runners["pt-en 1"].num_steps == steps


async def test_size_limits_are_413_and_bad_unicode_is_422(tmp_path: Path, open_translator: OpenTranslator) -> None:
    """The message never holds any of the text."""
    write_bundle(tmp_path / "pt-en")
    translator = open_translator(tmp_path, limits=TranslationLimits(max_texts=2, max_characters=10))
    for given_texts, error in (
        (["a"] * 3, errors.TooLarge),
        (["segredo" * 2], errors.TooLarge),
        (["\ud800"], errors.InvalidRequest),
        ([], errors.InvalidRequest),
    ):
        with pytest.raises(error) as raised:
            await translator.translate(given_texts, "pt", "en", TranslationOptions())
        assert "segredo" not in raised.value.detail
