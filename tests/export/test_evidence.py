"""Behavioural cases and scores on named texts are part of a bundle, and guard its successor."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import sacrebleu
from rich.console import Console
from typer.testing import CliRunner

from dragoman.export import ExportError
from dragoman.export.options import ExportOptions, check_options
from dragoman.export.served_answers import served_answers
from dragoman.export.verify import VerificationError
from dragoman.model.saved import SavedModel
from dragoman.service.bundles.manifest import Bundle, read_bundle
from dragoman.service.commands.evidence_line import behaviour_line
from dragoman.service.commands.main import cli
from tests.conftest import export_tiny

TEXTS = ["O sol nasce cedo.", "Ela lê {name} em casa.", "BOM DIA"]


@pytest.fixture(scope="module")
def answers(tiny_bundle: Bundle) -> list[str]:
    return served_answers(tiny_bundle, TEXTS)


def write_set(
    path: Path, accepted: Sequence[str], kinds: Sequence[str] = ("sentences", "placeholders", "words")
) -> Path:
    """A case for every text, and one of the other direction."""
    cases: list[dict[str, object]] = [
        {
            "id": text,
            "class": kind,
            "source_language": "pt",
            "target_language": "en",
            "source": text,
            "accept": [wanted],
        }
        for kind, text, wanted in zip(kinds, TEXTS, accepted, strict=True)
    ]
    cases.append(cases[0] | {"id": "other", "source_language": "en", "target_language": "pt"})
    path.write_text("\n".join(map(json.dumps, cases)), "utf-8")
    return path


class Listener(Console):
    """Hears the announced steps."""

    def __init__(self, steps: list[str]) -> None:
        super().__init__(quiet=True)
        self._steps = steps

    def print(self, *objects: object, **options: object) -> None:
        self._steps += map(str, objects)


def test_answers_come_by_the_path_that_a_user_has(tiny_bundle: Bundle, answers: list[str]) -> None:
    """Placeholders and capitals are the work of the service; the graphs alone know neither."""
    assert len(answers) == 3
    assert "{name}" in answers[1]
    assert served_answers(tiny_bundle, TEXTS[::-1]) == answers[::-1]


def test_the_server_settings_of_a_machine_do_not_change_the_evidence(
    tiny_bundle: Bundle, answers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export on a server's machine is the same export."""
    monkeypatch.setenv("DRAGOMAN_MAX_TEXTS", "1")
    assert served_answers(tiny_bundle, TEXTS) == answers


def test_behaviour_becomes_evidence_of_the_bundle(
    tiny_saved: SavedModel, few_sentences: Path, answers: list[str], tmp_path: Path
) -> None:
    """Counts by class in the manifest, a table in the card, one line for `dragoman models`."""
    cases = write_set(tmp_path / "set.jsonl", [answers[0], "never said", answers[2]])
    words = tmp_path / "words.tsv"
    words.write_text(f"\nbom dia\t{answers[2]}\ncasa\thouse\n", "utf-8")
    bundle = export_tiny(
        tiny_saved, tmp_path / "out", "int8", few_sentences, behaviour=(cases,), behaviour_overlap=(words,)
    )
    found = read_bundle(tmp_path / "out").evidence["behaviour"]
    assert (found["cases"], found["passed"], found["failed"]) == (3, 2, [TEXTS[1]])
    assert found["classes"]["placeholders"] == {"cases": 1, "passed": 0, "percent": 0.0}
    assert found["files"] == ["set.jsonl"]
    assert found["overlap"] == {"lists": ["words.tsv"], "short_cases": 1, "listed": 1}
    card = bundle.file("MODEL_CARD.md").read_text("utf-8")
    assert "2 of 3 right (66.7 %)" in card
    assert "| placeholders | 1 | 0 | 0.0 |" in card
    assert "Of 1 texts of one or two words, 1 also stand with a right answer in words.tsv." in card
    listed = CliRunner().invoke(cli, ["models", "--bundles", str(tmp_path / "out")]).stdout
    assert "pt-en: behaviour 66.7 % of 3, lowest: placeholders 0 %" in listed


def test_a_bundle_is_not_replaced_by_one_that_behaves_worse(
    tiny_saved: SavedModel, few_sentences: Path, answers: list[str], tmp_path: Path
) -> None:
    """The message names the classes; the old bundle stays; who wants the new one all the same says so."""
    out = tmp_path / "out"
    good = write_set(tmp_path / "good.jsonl", answers)
    worse = write_set(tmp_path / "worse.jsonl", [answers[0], "never said", answers[2]])
    export_tiny(tiny_saved, out, "int8", few_sentences, behaviour=(good,), version="1")
    with pytest.raises(VerificationError, match=r"placeholders 0 % of 1, before 100 % of 1; give --accept-worse"):
        export_tiny(tiny_saved, out, "int8", few_sentences, behaviour=(worse,), version="2", replace=True)
    with pytest.raises(ExportError, match=r"was measured: give --behaviour, .* or --accept-worse"):
        export_tiny(tiny_saved, out, "int8", few_sentences, version="2", replace=True)
    assert read_bundle(out).version == "1"
    export_tiny(tiny_saved, out, "int8", few_sentences, behaviour=(good,), version="2", replace=True)
    assert read_bundle(out).version == "2"
    export_tiny(
        tiny_saved, out, "int8", few_sentences, behaviour=(worse,), version="3", replace=True, accept_worse=True
    )
    assert read_bundle(out).evidence["behaviour"]["passed"] == 2


@pytest.mark.parametrize("missing", ["behaviour", "behaviour_overlap", "scores", "about"])
def test_a_file_that_is_missing_is_missed_before_anything_is_computed(
    tiny_saved: SavedModel, few_sentences: Path, answers: list[str], tmp_path: Path, missing: str
) -> None:
    """Minutes of checks must not end in a misspelt name."""
    absent = tmp_path / "absent"
    given: dict[str, object] = {"behaviour": (write_set(tmp_path / "set.jsonl", answers),)}
    given[missing] = {"about": absent, "scores": (("news", absent, absent),)}.get(missing, (absent,))
    steps: list[str] = []
    with pytest.raises(ExportError, match=r"cannot read .*absent"):
        export_tiny(tiny_saved, tmp_path / "out", "int8", few_sentences, console=Listener(steps), **given)
    assert steps == []


def test_a_set_without_a_case_of_the_pair_is_refused(
    tiny_saved: SavedModel, few_sentences: Path, tmp_path: Path
) -> None:
    """Nothing of nothing passed would look like evidence."""
    cases = tmp_path / "set.jsonl"
    case = {"id": "1", "class": "x", "source_language": "en", "target_language": "pt", "source": "a", "accept": ["b"]}
    cases.write_text(json.dumps(case))
    with pytest.raises(ExportError, match="has no case from pt to en"):
        export_tiny(tiny_saved, tmp_path / "out", "fp32", few_sentences, behaviour=(cases,))


@pytest.fixture
def news(tmp_path: Path) -> tuple[Path, Path]:
    """Three sentences, of which one is too long for the tiny model, and the second file translates them."""
    files = tmp_path / "news.pt", tmp_path / "news.en"
    files[0].write_text("O sol nasce cedo.\n" + "casa " * 200 + "\nEla lê.\n", "utf-8")
    files[1].write_text("The sun rises early.\nhouse\nShe reads.\n", "utf-8")
    return files


def test_named_texts_are_scored_beside_another_system(
    tiny_saved: SavedModel, few_sentences: Path, news: tuple[Path, Path], tmp_path: Path
) -> None:
    """The card says by kind of text how good it is, and how good another model is on the same sentences."""
    theirs, about = tmp_path / "theirs.en", tmp_path / "about.md"
    theirs.write_text("The sun rises early.\nnot looked at\nHe reads.\n", "utf-8")
    about.write_text("It suits **nothing**: its weights are random.\n", "utf-8")
    bundle = export_tiny(
        tiny_saved,
        tmp_path / "out",
        "int8",
        few_sentences,
        scores=(("news", *news), ("own", few_sentences, few_sentences)),
        beside=(("news", "Other 1.0", theirs),),
        about=about,
    )
    first, second = bundle.evidence["scores"]
    assert (first["test_set"], first["all"]["sentences"], second["test_set"]) == ("news", 2, "own")
    references = ["The sun rises early.", "She reads."]
    expected = sacrebleu.corpus_chrf(["The sun rises early.", "He reads."], [references]).score
    other = first["beside"]["Other 1.0"]
    assert other["all"]["chrf"] == pytest.approx(expected, abs=0.01)
    assert other["by_length"]["up to 10 words"]["sentences"] == 2
    assert second["beside"] == {}
    card = bundle.file("MODEL_CARD.md").read_text("utf-8")
    assert "| text, greedy | sentences | BLEU | chrF | BLEU of Other 1.0 | chrF of Other 1.0 |" in card
    assert f"| {first['all']['chrf']} | {other['all']['bleu']} | {other['all']['chrf']} |" in card
    assert card.index("It suits **nothing**") < card.index("## The network")
    assert "## What it suits" in card


def test_translations_of_another_system_must_be_as_many(
    tiny_saved: SavedModel, few_sentences: Path, news: tuple[Path, Path], tmp_path: Path
) -> None:
    """Shifted by a line, the other system would look bad."""
    theirs = tmp_path / "theirs.en"
    theirs.write_text("The sun rises early.\nShe reads.\n", "utf-8")
    beside = (("news", "Other", theirs),)
    with pytest.raises(ExportError, match=r"news\.pt has 3 sentences but .*theirs\.en has 2"):
        export_tiny(tiny_saved, tmp_path / "out", "fp32", few_sentences, scores=(("news", *news),), beside=beside)


FILE = Path("f")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"beside": (("news", "Other", FILE),)}, "--beside news Other: there is no --score news SRC REF"),
        ({"scores": (("news", FILE, FILE),) * 2}, "--score news is given twice"),
        ({"behaviour_overlap": (FILE,)}, "--behaviour-overlap needs --behaviour"),
    ],
)
def test_options_that_do_not_belong_together_are_refused_at_once(changes: dict, sentence: str) -> None:
    with pytest.raises(ExportError, match=sentence):
        check_options(ExportOptions(FILE, FILE, "fp32", golden=FILE, tests=((FILE, FILE),), **changes))


@pytest.mark.parametrize(
    "strange", [{}, {"behaviour": None}, {"behaviour": {"cases": "many"}}, {"behaviour": {"cases": 0, "passed": 0}}]
)
def test_the_line_of_strange_evidence_is_empty(strange: dict) -> None:
    """`dragoman models` lists whatever manifests there are."""
    assert behaviour_line(strange) == ""
    assert behaviour_line({"behaviour": {"cases": 4, "passed": 3, "classes": {"a": 1}}}) == "behaviour 75.0 % of 4"
