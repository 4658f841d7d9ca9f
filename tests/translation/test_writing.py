"""Scripts without spaces, from right to left, and with digits of their own lose nothing and gain no strange spaces."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.service.translation.glossary import Glossary
from dragoman.service.translation.joining import Joints, joint
from dragoman.service.translation.language import Detector
from dragoman.service.translation.numbers import changed_numbers
from dragoman.service.translation.placeholders import chunks_of, find_spans, plain_text, put_back
from dragoman.service.translation.segments import join
from tests.translation.splitting import SplitText, split

LANGUAGES = ("zh", "ja", "ko", "ar", "he", "th", "ru", "hi", "el", "en", "km")
PIECES = (
    *(
        "今天天气很好。",
        "他说：“好的。”",
        "「はい。」と言った。",
        "東京へ行く",
        "（本当）",
        "오늘은 좋아요.",
        "هل تريد؟",
        "نعم، شكرا؛",
    ),
    *("שלום לך.", "วันนี้อากาศดี", "ฉันชอบ", "Привет!", "नमस्ते।", "Θα έρθεις;", "Hello.", "１２３．５", "！？", "…", "សួស្តី។"),
    *(
        " ",
        "\u3000",
        "\n",
        "{name}",
        "<b>",
        "</b>",
        "https://example.com/a",
        "ana@example.com",
        "😀",
        "%s",
        "3.5",
        "ー",
        "々",
    ),
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=16).map("".join)


def sources(parts: SplitText) -> list[str]:
    return [parts.source(index) for index in range(len(parts.segments))]


@given(TEXTS, st.sampled_from(LANGUAGES), st.sampled_from(LANGUAGES), st.integers(1, 60))
@settings(max_examples=300, deadline=None)
def test_copied_text_joins_back_exactly(text: str, source: str, target: str, limit: int) -> None:
    """A space is added or left out only where a translation changed the script."""
    parts = split(text, source, find_spans(text), lambda start, end: end - start <= limit)
    copied = sources(parts)
    assert join(Joints(text, parts.segments, target).all(copied), copied) == text


@given(TEXTS)
@settings(max_examples=200, deadline=None)
def test_placeholders_come_back_once_and_without_new_spaces(text: str) -> None:
    """A model that copies everything gives every span once, and the text as it was."""
    chunks = chunks_of(text, 0, len(text), find_spans(text))
    parts = [part for part in _as_copied(chunks) if part != ""]
    assert plain_text(put_back(parts, chunks)) == text


def _as_copied(chunks: tuple[object, ...]) -> list[str | int]:
    numbers = iter(range(len(chunks)))
    return [chunk if isinstance(chunk, str) else next(numbers) for chunk in chunks]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("zh", "今天很好。我们走吧！你来吗？", ["今天很好。", "我们走吧！", "你来吗？"]),
        ("zh", "“好的。”她说。他走了。", ["“好的。”她说。", "他走了。"]),
        (
            "ja",
            "彼は「行きます。」と答えた。「はい。」「いいえ。」",
            ["彼は「行きます。」と答えた。", "「はい。」", "「いいえ。」"],
        ),
        ("ar", "هل تريد الذهاب؟ نعم، بالطبع.", ["هل تريد الذهاب؟", "نعم، بالطبع."]),
        ("km", "សួស្តី។ អ្នកសុខសប្បាយទេ។", ["សួស្តី។", "អ្នកសុខសប្បាយទេ។"]),
    ],
)
def test_sentences_end_as_their_script_ends_them(language: str, text: str, expected: list[str]) -> None:
    """Without a space after the mark, and not in the middle of a sentence with a quotation."""
    assert sources(split(text, language)) == expected


def test_long_thai_is_cut_at_its_spaces() -> None:
    """Thai has no mark that ends a sentence."""
    text = "วันนี้อากาศดีมาก เราไปเที่ยวกันเถอะ"
    assert sources(split(text, "th", (), lambda start, end: end - start <= 20)) == text.split(" ")


@pytest.mark.parametrize(
    ("end", "separator", "before", "after", "target", "expected"),
    [
        ("。", "", "It rains.", "We stay.", "en", " "),
        ("。", "<b>", "It rains.", "We stay.", "en", " <b>"),
        ("。", "</b>", "It rains.", "We stay.", "en", "</b> "),
        ("。", "</p><p>", "It rains.", "We stay.", "en", "</p><p>"),
        (".", " ", "下雨了。", "我们留下。", "zh", ""),
        (".", "\n", "下雨了。", "我们留下。", "zh", "\n"),
        (".", " ", "ฝนตก", "เราอยู่", "th", " "),
        (".", " ", "Hello", "World", "zh", " "),
    ],
)
def test_spaces_between_sentences_are_those_of_the_target(
    end: str, separator: str, before: str, after: str, target: str, expected: str
) -> None:
    """Chinese and Japanese have none; whoever has one gets it."""
    assert joint(end, separator, before, after, target) == expected


def test_addresses_are_found_beside_letters_without_spaces() -> None:
    """A Chinese sentence has no space before a link or after it."""
    text = "请看https://example.com/a。或写信给ana@example.com，谢谢@ana你好"
    assert [span.text for span in find_spans(text)] == ["https://example.com/a", "ana@example.com", "@ana"]


def test_glossary_terms_are_found_inside_a_run_of_letters() -> None:
    """Without spaces, a term is not a word of its own; a Hindi word is not cut at its vowel signs."""
    assert [span.text for span in Glossary({"北京": "Beijing"}).spans("我住在北京市。")] == ["Beijing"]
    assert list(Glossary({"कम": "less"}).spans("कमी है")) == []


def test_digits_of_other_scripts_are_numbers() -> None:
    """A full-width or Arabic number is the same number; ten thousands cannot be compared."""
    assert not changed_numbers("共１２３４人", "1234 people")
    assert not changed_numbers("عام ٢٠٢٤", "the year 2024")
    assert changed_numbers("共１２３４人", "1235 people")
    assert not changed_numbers("12万人", "120,000 people")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("図書館はどこですか", "ja"),
        ("도서관이 어디예요", "ko"),
        ("ห้องสมุดอยู่ที่ไหน", "th"),
        ("Πού είναι;", "el"),
        ("איפה הספרייה", "he"),
    ],
)
def test_a_script_of_one_language_is_that_language(text: str, language: str) -> None:
    """No model is needed for it."""
    detector = Detector()
    assert detector.detect(text, ["en", language])[0].language == language
    assert not detector.loaded
