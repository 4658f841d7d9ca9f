"""The behavioural set is well formed: keys, ids, classes, languages, and no case that contradicts itself."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "data" / "behaviour"
DIRECTIONS = ("pt-en", "en-pt")
CLASSES = {
    *("labels", "greetings", "words", "numbers", "amounts", "dates", "negation", "names"),
    *("questions", "imperatives", "medical", "legal", "placeholders", "product", "mail", "news"),
}
REQUIRED = {"id", "class", "source_language", "target_language", "source"}
OPTIONAL = {"accept", "must", "must_not", "note"}
WANTED_SOURCES = {
    "pt-en": {"Cancelar", "Início", "Café", "Frete grátis em compras acima de R$ 200"},
    "en-pt": {"hello", "Take one tablet twice a day", "Free shipping on orders over $50"},
}


def cases_of(direction: str) -> list[dict]:
    lines = (FOLDER / f"{direction}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def contains(answer: str, phrase: str) -> bool:
    """Whether the phrase stands in the answer; a boundary is asked only where the phrase begins or ends with a letter.

    So `<b>` is found in `<b>Save</b>` and `$50` in `US$50`, but `5 mg` is not found in `15 mg`."""
    before = r"(?<!\w)" if re.match(r"\w", phrase) else ""
    after = r"(?!\w)" if re.search(r"\w$", phrase) else ""
    plain = re.sub(r"[\u00a0\u202f]", " ", answer)  # "50 kg" may hold a space that does not break
    return re.search(before + re.escape(phrase) + after, plain, re.IGNORECASE) is not None


def faults(answer: str, case: dict) -> list[str]:
    """What the answer lacks or should not say, by the case's must and must_not."""
    missing = [str(group) for group in case.get("must", []) if not any(contains(answer, one) for one in group)]
    return missing + [phrase for phrase in case.get("must_not", []) if contains(answer, phrase)]


def is_text(value: object) -> bool:
    return isinstance(value, str) and value == value.strip() != ""


def is_list_of_texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_text, value)) and len(set(value)) == len(value)


CASES = {direction: cases_of(direction) for direction in DIRECTIONS}
EVERY = [pytest.param(direction, case, id=case["id"]) for direction in DIRECTIONS for case in CASES[direction]]


@pytest.mark.parametrize(("direction", "case"), EVERY)
def test_case_is_well_formed(direction: str, case: dict) -> None:
    assert case.keys() >= REQUIRED
    assert case.keys() <= REQUIRED | OPTIONAL
    assert case.keys() & {"accept", "must"}
    assert f"{case['source_language']}-{case['target_language']}" == direction
    assert case["class"] in CLASSES
    assert re.fullmatch(rf"{direction}/{case['class']}/\d{{3}}", case["id"])
    assert all(is_text(case[key]) for key in ("source", "note") if key in case)
    assert all(is_list_of_texts(case[key]) for key in ("accept", "must_not") if key in case)
    assert "must" not in case or (case["must"] and all(is_list_of_texts(group) for group in case["must"]))


@pytest.mark.parametrize(("direction", "case"), EVERY)
def test_case_does_not_contradict_itself(direction: str, case: dict) -> None:
    assert not [fault for answer in case.get("accept", []) for fault in faults(answer, case)]
    # An alternative that holds a forbidden phrase could never help an answer.
    alternatives = [one for group in case.get("must", []) for one in group]
    assert not [one for one in alternatives for bad in case.get("must_not", []) if contains(one, bad)]


@pytest.mark.parametrize(("direction", "case"), EVERY)
def test_an_untranslated_sentence_does_not_pass(direction: str, case: dict) -> None:
    if "must" in case and re.search(r"[^\W\d_]{3}", case["source"]):
        assert faults(case["source"], case)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_direction_holds_every_class(direction: str) -> None:
    sizes = Counter(case["class"] for case in CASES[direction])
    assert sizes.keys() == CLASSES
    assert min(sizes.values()) >= 20
    assert {case["source"] for case in CASES[direction]} >= WANTED_SOURCES[direction]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_no_id_and_no_source_comes_twice(direction: str) -> None:
    assert max(Counter(case["id"] for case in CASES[direction]).values()) == 1
    assert max(Counter((case["class"], case["source"]) for case in CASES[direction]).values()) == 1


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_lines_are_compact_and_sorted(direction: str) -> None:
    lines = (FOLDER / f"{direction}.jsonl").read_text(encoding="utf-8").splitlines()
    assert lines == [json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in CASES[direction]]
    ids = [case["id"] for case in CASES[direction]]
    assert ids == sorted(ids)


def test_set_is_large_enough() -> None:
    assert sum(map(len, CASES.values())) >= 600


def test_phrases_are_found_on_word_boundaries() -> None:
    assert contains("<b>Save</b> it", "<b>")
    assert contains("It costs US$50.", "$50")
    assert contains("Never again", "never")
    assert contains("It weighs 50\u00a0kg.", "50 kg")
    assert not contains("Take 15 mg", "5 mg")
    assert not contains("It costs $500", "$50")
    assert not contains("unless", "less")
