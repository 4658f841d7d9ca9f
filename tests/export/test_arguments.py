"""What is typed is what is exported, and what is wrong is said in one sentence."""

import os
import signal
from pathlib import Path

import pytest

from dragoman.export.arguments import main
from dragoman.export.exporter import Exporter
from dragoman.export.option_values import grouped, repeat_options
from dragoman.export.options import ExportOptions
from dragoman.model.saved import SavedModel, save_model
from dragoman.service.bundles.manifest import Limits


def test_all_that_is_missing_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Three options are needed; nobody should have to fail three times to hear of them."""
    with pytest.raises(SystemExit):
        main(["m.safetensors", "out"])
    told = capsys.readouterr().err
    assert all(option in told for option in ("--verify", "200 sentences", "--golden", "--calibration"))


def test_the_command_says_what_is_wrong_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A shell script sees the status, its writer sees one sentence instead of a traceback."""
    (tmp_path / "x.safetensors").write_bytes(b"no model")
    arguments = [str(tmp_path / "x.safetensors"), str(tmp_path / "out"), "--golden", "g", "--calibration", "c"]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--verify", "s", "r"])
    assert ended.value.code == 1
    assert "is not a saved Dragoman model" in capsys.readouterr().err.replace("\n", "")


def parse(arguments: list[str]) -> ExportOptions:
    seen: list[ExportOptions] = []
    with pytest.raises(SystemExit) as ended:
        main(arguments, run=seen.append)
    if ended.value.code:
        raise ended.value
    return seen[0]


def test_the_command_line_becomes_options(tmp_path: Path) -> None:
    """What is typed is what is exported."""
    words = ["--precision", "fp16", "--verify", "a", "b", "--verify", "c", "d", "--golden", "g"]
    request = parse(["m.safetensors", "out", *words])
    assert request.precision == "fp16"
    assert request.tests == ((Path("a"), Path("b")), (Path("c"), Path("d")))
    assert request.limits == Limits(256, 256)
    assert request.parity_sentences == 200
    with pytest.raises(SystemExit):
        parse(["m.safetensors", "out", "--parity-sentences", "50"])


@pytest.mark.parametrize(
    ("option", "value", "least"),
    [
        ("--default-beam-size", "0", 1),
        ("--max-source-tokens", "0", 1),
        ("--max-new-tokens", "-5", 1),
        ("--max-new-tokens", "many", 1),
        ("--parity-sentences", "199", 200),
    ],
)
def test_a_number_out_of_range_is_refused_by_its_option(
    option: str, value: str, least: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Zero beams were exported, and no server could use the bundle."""
    with pytest.raises(SystemExit) as ended:
        parse(["m.safetensors", "out", f"{option}={value}"])
    assert ended.value.code == 2
    told = " ".join(capsys.readouterr().err.split()).replace("│ │ ", "")
    assert f"Invalid value for '{option}': Input should be" in told
    assert f"greater than or equal to {least}" in told or (value == "many" and "a valid integer" in told)


def test_an_export_that_is_asked_to_end_leaves_nothing(
    tiny_saved: SavedModel, few_sentences: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM ends a process at once, by default, and what it had written so far would stay."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Exporter, "write", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    save_model(tmp_path / "m.safetensors", tiny_saved)
    files = ["--golden", str(few_sentences), "--verify", str(few_sentences), str(few_sentences)]
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "m.safetensors"), str(tmp_path / "out"), "--precision", "fp32", *files])
    assert ended.value.code == 128 + signal.SIGTERM
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_texts_and_cases_for_the_card_become_options() -> None:
    """Every option of several words, in any order."""
    words = ["--score", "news", "n.pt", "n.en", "--beside", "news", "Other", "o.en"]
    words += ["--score", "chat", "c.pt", "c.en"]
    more = ["--behaviour", "a.jsonl", "--behaviour-overlap", "w.tsv", "l.tsv", "--accept-worse", "--about", "about.md"]
    options = parse([*words, "m.safetensors", "out", *more])
    assert options.out == Path("out")
    assert [(text.name, text.source, text.beside) for text in options.scored_texts] == [
        ("news", Path("n.pt"), (("Other", Path("o.en")),)),
        ("chat", Path("c.pt"), ()),
    ]
    assert (options.behaviour, options.behaviour_overlap) == ((Path("a.jsonl"),), (Path("w.tsv"), Path("l.tsv")))
    assert (options.accept_worse, options.about) == (True, Path("about.md"))


@pytest.mark.parametrize("words", [["--verify", "a"], ["--verify", "a", "--golden", "g"], ["--verify"]])
def test_an_option_that_lacks_a_word_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A reference that was forgotten must not become the next option's value."""
    with pytest.raises(SystemExit) as ended:
        parse(["m.safetensors", "out", *words])
    assert ended.value.code == 2
    assert "--verify takes 2 values" in capsys.readouterr().err


def test_options_of_several_words_are_repeated_for_typer() -> None:
    """A count takes exactly so many words; without one, all up to the next option are taken."""
    words = ["x", "--verify", "a", "b", "c", "--only", "d", "e", "-", "--runs", "2", "--", "--verify"]
    expected = ["x", "--verify", "a", "--verify", "b", "c", "--only", "d", "--only", "e", "--only", "-"]
    assert repeat_options(words, {"--verify": 2, "--only": None}) == [*expected, "--runs", "2", "--", "--verify"]
    assert grouped(["a", "b", "c", "d"], 2) == [("a", "b"), ("c", "d")]
