"""Behavioural cases: what is read, which answers pass, and what counts as worse."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.export import ExportError
from dragoman.export.behaviour import MAX_FALL, Case, Tally, fallen_behind, listed_cases, read_cases, summarize

WORDS = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)


def case(number: int = 1, kind: str = "labels", source: str = "Cancelar", **answers: Any) -> Case:
    return Case(f"{kind}/{number}", kind, "pt", "en", source, **answers)


def record(**changes: object) -> dict[str, object]:
    fields: dict[str, object] = {
        "id": "labels/1",
        "class": "labels",
        "source_language": "pt",
        "target_language": "en",
        "source": "Cancelar",
        "accept": ["Cancel"],
    }
    return {key: value for key, value in (fields | changes).items() if value is not None}


def write(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records), "utf-8")
    return path


# Reading


def test_a_set_is_read_from_files_and_folders(tmp_path: Path) -> None:
    """One file a direction is the usual layout, and the order is that of the files."""
    first = record(must=[["cancel", "abort"]], must_not=["council"], note="a button")
    a = write(tmp_path / "a.jsonl", first, record(id="labels/2"))
    a.write_text("\ufeff" + a.read_text("utf-8") + "\n", "utf-8")  # a byte order mark and an empty line at the end
    write(tmp_path / "b.jsonl", record(id="x", source_language="en", target_language="pt"))
    assert read_cases([tmp_path]) == read_cases([a, tmp_path / "b.jsonl"])
    cases = read_cases([tmp_path])
    assert [one.id for one in cases] == ["labels/1", "labels/2", "x"]
    assert cases[0] == case(accept=("Cancel",), must=(("cancel", "abort"),), must_not=("council",))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"id": None}, "'id' must be a text"),
        ({"class": ""}, "'class' must be a text that is not empty"),
        ({"source": 3}, "'source' must be a text"),
        ({"accept": None}, "give 'accept' or 'must'"),
        ({"accept": None, "must_not": ["no"]}, "give 'accept' or 'must'"),
        ({"accept": "Cancel"}, "'accept' must be a list of texts"),
        ({"accept": [""]}, "'accept' must be a list of texts, none of them empty"),
        ({"must": ["cancel"]}, "'must' must be a list of lists of texts"),
        ({"must": "cancel"}, "'must' must be a list of lists of texts"),
        ({"must": [["cancel"], []]}, "'must' has an empty group"),
        ({"must_not": [["cancel"]]}, "'must_not' must be a list of texts"),
        ({"must-not": ["cancel"]}, "there is no field 'must-not'; known are accept, class"),
        ({"id": "labels/0"}, "the id 'labels/0' was used before"),
    ],
)
def test_a_wrong_case_is_refused_with_file_and_line(tmp_path: Path, changes: dict, sentence: str) -> None:
    """A misspelt field would let every answer pass, or none."""
    path = write(tmp_path / "set.jsonl", record(id="labels/0"), record(**changes))
    with pytest.raises(ExportError, match=rf"set\.jsonl, line 2: {sentence}"):
        read_cases([path])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"id": \n', "line 1: this is not JSON"),
        (b"[]\n", "line 1: this is not a JSON object"),
        (b"\n\n\xe3\n", "line 3: this is not UTF-8"),
    ],
)
def test_a_line_that_is_no_case_is_refused_with_its_number(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "set.jsonl").write_bytes(content)
    with pytest.raises(ExportError, match=sentence):
        read_cases([tmp_path / "set.jsonl"])


def test_a_set_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"cannot read .*absent"):
        read_cases([tmp_path / "absent.jsonl"])
    with pytest.raises(ExportError, match=r"has no \.jsonl file"):
        read_cases([tmp_path])


# Judging


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Cancel", True),
        (" Cancel. ", True),
        ("Cancel .", True),
        ("cancel", False),
        ("Cancel!", False),
        ("Cancel..", False),
        ("Cancel it", False),
        ("", False),
    ],
)
def test_a_whole_answer_is_compared_but_for_spaces_and_a_full_stop(answer: str, right: bool) -> None:
    """Capitals count: a button is not a sentence."""
    assert case(accept=("Cancel",)).passed(answer) is right
    assert case(accept=("Cancel.",)).passed(answer) is right


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Take 5 mg twice a day.", True),
        ("TAKE 5\u00a0MG two times daily", True),
        ("Take 15 mg twice a day.", False),
        ("Take 5 mgs twice a day.", False),
        ("Take 5 mg a day.", False),
        ("Take 5 mg twice a day, not a table.", False),
        ("Take 5 mg twice a day, not a tablet.", True),
    ],
)
def test_phrases_are_looked_for_as_whole_words(answer: str, right: bool) -> None:
    """A dose that is a part of another dose is the mistake that such cases are written for."""
    found = case(must=(("5 mg",), ("twice", "two times")), must_not=("table",))
    assert found.passed(answer) is right


@pytest.mark.parametrize(
    ("phrase", "answer", "right"),
    [
        ("$50", "It costs US$50.", True),
        ("$50", "It costs $500.", False),
        ("<b>", "<b>Save</b>", True),
        ("{name}", "Hello,{name}!", True),
        ("50 %", "50 %of", True),
        ("ação", "AÇÃO!", True),
        ("não", "nãos", False),
        ("a.b", "axb", False),
    ],
)
def test_a_phrase_that_begins_or_ends_without_a_letter_needs_no_boundary_there(
    phrase: str, answer: str, right: bool
) -> None:
    assert case(must=((phrase,),)).passed(answer) is right


def test_an_accepted_answer_passes_whatever_else_is_asked() -> None:
    """`accept` names whole answers that somebody read and found right."""
    both = case(accept=("Call it off",), must=(("cancel",),))
    assert both.passed("Call it off.")
    assert both.passed("Please cancel")
    assert not both.passed("Call it")


@given(st.lists(WORDS, min_size=1, max_size=4), WORDS, WORDS)
def test_a_phrase_is_found_among_other_words_and_not_within_longer_ones(
    words: list[str], before: str, behind: str
) -> None:
    phrase = " ".join(words)
    found = case(must=((phrase,),))
    assert found.passed(phrase)
    assert found.passed(f"{before} {phrase}, {behind}")
    assert not case(accept=("\n",), must=((phrase,),), must_not=(phrase,)).passed(phrase)
    assert not found.passed(f"{before}{phrase}{behind}")


@given(st.text(max_size=20))
def test_every_accepted_answer_passes_itself(text: str) -> None:
    assert case(accept=(text,)).passed(f"  {text}\n")


# Counting


@given(st.lists(st.tuples(st.sampled_from(["labels", "dates", "names"]), st.booleans()), min_size=1, max_size=40))
def test_classes_add_up_to_the_whole(wanted: list[tuple[str, bool]]) -> None:
    cases = [case(number, kind, accept=("yes",)) for number, (kind, _) in enumerate(wanted)]
    found = summarize(cases, ["yes" if right else "no" for _, right in wanted])
    classes = found["classes"]
    assert sum(each["cases"] for each in classes.values()) == found["cases"] == len(wanted)
    assert sum(each["passed"] for each in classes.values()) == found["passed"] == sum(right for _, right in wanted)
    assert len(found["failed"]) == found["cases"] - found["passed"]
    assert all(0 <= each["percent"] <= 100 for each in (found, *classes.values()))
    assert fallen_behind(found, found) == []


def evidence(**classes: tuple[int, int]) -> dict[str, Any]:
    return {"classes": {kind: Tally(*counts).record() for kind, counts in classes.items()}}


def test_a_class_that_fell_by_more_than_two_points_is_named() -> None:
    """Two points are allowed exactly; a class that is new or gone cannot be compared."""
    before = evidence(dates=(100, 96), names=(100, 96), gone=(10, 10), labels=(50, 50))
    now = evidence(dates=(100, 93), names=(50, 47), new=(10, 0), labels=(200, 200))
    assert fallen_behind(before, now) == ["dates 93 % of 100, before 96 % of 100"]


@given(*[st.integers(1, 400)] * 2, st.data())
def test_the_bar_is_exact(cases: int, more: int, data: st.DataObject) -> None:
    """Rounded percentages would let a class fall by more, or refuse one that fell by two points."""
    old, new = (Tally(count, data.draw(st.integers(0, count))) for count in (cases, more))
    fell = 100 * old.passed / old.cases - 100 * new.passed / new.cases
    if abs(fell - MAX_FALL) > 1e-9:
        assert bool(fallen_behind(evidence(x=old), evidence(x=new))) is (fell > MAX_FALL)


@pytest.mark.parametrize("strange", [None, 3, {}, {"classes": 1}, {"classes": {"dates": 2, "x": {"cases": 0}}}])
def test_earlier_evidence_of_another_shape_is_no_evidence(strange: object) -> None:
    """A manifest's evidence is free-form, and an old one may have been written by another program."""
    assert fallen_behind(strange, evidence(dates=(10, 0))) == []


# Overlap


def test_short_cases_that_stand_in_a_list_with_their_answer_are_counted() -> None:
    """A model that learned the list by heart would pass these; the count says how many they are."""
    cases = [
        case(1, source="Cancelar", accept=("Cancel",)),
        case(2, source="Bom dia", must=(("good morning",),)),
        case(3, source="Início", accept=("Home", "Start")),
        case(4, source="Até amanhã então", accept=("See you tomorrow then",)),  # three words
        case(5, source="Café", accept=("Coffee",)),
    ]
    rows = [
        ("cancelar.", "cancel"),
        ("Good morning!", "bom dia"),  # the other way round
        ("Início", "Beginning"),  # not an answer that would pass
        ("Até amanhã então", "See you tomorrow then"),
        ("chá", "tea"),
    ]
    assert listed_cases(cases, rows) == {"labels/1", "labels/2"}
