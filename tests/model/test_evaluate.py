"""The reference search is the definition that everything else is tested against; it must be right by itself."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from typer.testing import CliRunner

from dragoman.model import evaluate as evaluation
from dragoman.model.evaluate import (
    HeldOutText,
    beam,
    find_pair,
    greedy,
    leave_out_too_long,
    length_penalty,
    read_test,
    score,
    score_by_length,
)
from dragoman.model.network_config import TransformerConfig
from dragoman.model.saved import SavedModel, load_model, save_model
from dragoman.model.tokenizer import BOS_ID, EOS_ID, Tokenizer
from dragoman.model.transformer import Transformer


@pytest.fixture(scope="module")
def network() -> Transformer:
    torch.manual_seed(3)
    model = Transformer(TransformerConfig(24, 16, 32, 2, 1, 1, norm="pre")).eval()
    torch.nn.init.normal_(model.embedding.weight, std=0.6)  # opinions strong enough to end sentences
    return model


SOURCES = [[5, 6, 7, EOS_ID], [8, EOS_ID], [9, 10, 11, 12, 13, EOS_ID]]


def log_probs_of(network: Transformer, source: list[int], ids: list[int]) -> list[float]:
    """By teacher forcing: an independent way to the same numbers."""
    target = torch.tensor([[BOS_ID, *ids[:-1]]])
    with torch.inference_mode():
        rows = network.logits(network(torch.tensor([source]), target))[0].log_softmax(-1)
    return [float(rows[t, token]) for t, token in enumerate(ids)]


def test_greedy_takes_the_best_token_each_time(network: Transformer) -> None:
    """And reports its log-probabilities as teacher forcing computes them."""
    for source, found in zip(SOURCES, greedy(network, SOURCES, [12] * 3), strict=True):
        ids = [*found.ids, EOS_ID] if found.finished else found.ids
        assert found.log_probs == pytest.approx(log_probs_of(network, source, ids), abs=1e-4)
        assert found.score == pytest.approx(sum(found.log_probs) / length_penalty(len(ids), 0.6))
        assert EOS_ID not in found.ids
        assert found.finished or len(ids) == 12


def test_greedy_is_the_same_alone_and_together(network: Transformer) -> None:
    """Rows leave the batch as they end; nobody's tokens may change by that."""
    together = greedy(network, SOURCES, [12, 3, 9])
    alone = [greedy(network, [s], [n])[0] for s, n in zip(SOURCES, [12, 3, 9], strict=True)]
    assert [h.ids for h in together] == [h.ids for h in alone]


def test_a_beam_of_one_is_greedy(network: Transformer) -> None:
    """The two searches meet where they must."""
    one = [hypotheses[0] for hypotheses in beam(network, SOURCES, [12] * 3, beam_size=1)]
    assert [h.ids for h in one] == [h.ids for h in greedy(network, SOURCES, [12] * 3)]


def test_beam_scores_are_those_of_teacher_forcing(network: Transformer) -> None:
    """Whatever the beam found, its score is the sentence's own, computed another way."""
    for source, hypotheses in zip(SOURCES, beam(network, SOURCES, [6] * 3, beam_size=5), strict=True):
        for found in hypotheses:
            ids = [*found.ids, EOS_ID] if found.finished else found.ids
            assert found.log_probs == pytest.approx(log_probs_of(network, source, ids), abs=1e-4)
            assert found.score == pytest.approx(sum(found.log_probs) / length_penalty(len(ids), 0.6))


def test_a_beam_finds_at_least_what_greedy_finds(network: Transformer) -> None:
    """Summed log-probabilities without length penalty: a wider search is not worse on these sentences."""
    wide = beam(network, SOURCES, [6] * 3, beam_size=20, alpha=0.0)
    narrow = greedy(network, SOURCES, [6] * 3, alpha=0.0)
    for hypotheses, found in zip(wide, narrow, strict=True):
        assert max(h.score for h in hypotheses) >= found.score - 1e-6


def test_hypotheses_come_best_first(network: Transformer) -> None:
    """n-best is an order."""
    for hypotheses in beam(network, SOURCES, [12] * 3, beam_size=4):
        finished = [h.score for h in hypotheses if h.finished]
        assert finished == sorted(finished, reverse=True)
        assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses) <= 4


def test_length_penalty_is_the_papers() -> None:
    """GNMT: ((5 + n) / 6) ^ alpha."""
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 0.6) == pytest.approx(2**0.6)
    assert length_penalty(100, 0.0) == 1.0


def test_scores_carry_their_signatures() -> None:
    """A BLEU without its signature is a rumour."""
    report = score(["the cat sleeps", "yes"], ["the cat sleeps", "yes"])
    assert report["bleu"] == 100.0 or math.isclose(report["chrf"], 100.0)
    assert "version" in report["bleu_signature"]


def test_scores_are_split_by_source_length() -> None:
    """Quality at 40 words says nothing about quality at 4, and the other way round."""
    sources = ["um " * 5, "um " * 15, "um " * 30, "um " * 50]
    assert list(score_by_length(sources, ["x"] * 4, ["x"] * 4)) == [
        "up to 10 words",
        "up to 20 words",
        "up to 40 words",
        "longer",
    ]


@pytest.fixture
def saved_path(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    torch.manual_seed(0)
    small = Transformer(TransformerConfig(tokenizer.vocab_size, 16, 32, 2, 1, 1))
    pair = {"source": "pt", "target": "en", "source_prefix_ids": []}
    save_model(tmp_path / "m.safetensors", SavedModel(small, tokenizer, [pair], {}, ("pt", "en")))
    return tmp_path / "m.safetensors"


@pytest.fixture
def app() -> evaluation.typer.Typer:
    command = evaluation.typer.Typer()
    command.command()(evaluation.run)
    return command


def test_evaluate_command_writes_a_report(tmp_path: Path, saved_path: Path, app: evaluation.typer.Typer) -> None:
    """From two files to scores, as a user does it."""
    (tmp_path / "a.tsv").write_text("Bom dia.\tGood morning.\nNão.\tNo.\n")
    arguments = [str(saved_path), str(tmp_path / "a.tsv"), "--beam", "1", "--beam", "2"]
    result = CliRunner().invoke(app, [*arguments, "--json", str(tmp_path / "reports" / "r.json")])
    assert result.exit_code == 0, result.output
    reports = json.loads((tmp_path / "reports" / "r.json").read_text())
    assert [report["beam"] for report in reports] == [1, 2]
    assert all(report["sentences"] == 2 and len(report["worst"]) == 2 for report in reports)
    missing = CliRunner().invoke(app, [str(tmp_path / "none.safetensors"), str(tmp_path / "a.tsv")])
    assert missing.exit_code == 1
    nowhere = CliRunner().invoke(app, [*arguments, "--json", str(tmp_path / "a.tsv" / "r.json")])
    assert (nowhere.exit_code, "BLEU" in nowhere.output) == (1, False)
    folder = CliRunner().invoke(app, [*arguments, "--json", str(tmp_path)], env={"COLUMNS": "500"})
    assert (folder.exit_code, "is a folder: give --json the name of a file" in folder.output) == (1, True)
    assert CliRunner().invoke(app, [*arguments, "--beam", "0"]).exit_code == 2
    assert CliRunner().invoke(app, [*arguments, "--limit", "0"]).exit_code == 2


def test_a_table_is_scored_by_the_names_of_its_columns(
    tmp_path: Path, saved_path: Path, app: evaluation.typer.Typer
) -> None:
    """The names are no sentence, and a table in the other order would be translated from the wrong language."""
    (tmp_path / "a.tsv").write_text("en\tpt\nGood morning.\tBom dia.\n")
    arguments = [str(saved_path), str(tmp_path / "a.tsv"), "--beam", "1", "--json", str(tmp_path / "r.json")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    (report,) = json.loads((tmp_path / "r.json").read_text())
    assert [(row["source"], row["reference"]) for row in report["worst"]] == [("Bom dia.", "Good morning.")]


PT_EN = {"source": "pt", "target": "en", "source_prefix_ids": []}
BY_FILES = {"corpora": [{"files": ["months.tsv"]}, {"files": ["train.en", "train.pt"]}]}


def model_that_says(tokenizer: Tokenizer, languages: tuple[str, ...], training: dict[str, Any]) -> SavedModel:
    small = Transformer(TransformerConfig(tokenizer.vocab_size, 16, 32, 2, 1, 1, max_positions=24))
    return SavedModel(small, tokenizer, [PT_EN], training, languages)


@pytest.mark.parametrize(
    ("languages", "training", "table"),
    [
        (("pt", "en"), {}, "Sol.\tSun.\n"),
        (("en", "pt"), {}, "Sun.\tSol.\n"),
        (("en", "pt"), {}, "pt\ten\nSol.\tSun.\n"),
        ((), {}, "en\tpt\nSun.\tSol.\n"),
        ((), BY_FILES, "Sun.\tSol.\n"),
    ],
)
def test_a_table_means_what_it_meant_in_training(
    tmp_path: Path, tokenizer: Tokenizer, languages: tuple[str, ...], training: dict[str, Any], table: str
) -> None:
    """Trained with --languages en,pt, it was scored with its columns the other way round, near zero."""
    (tmp_path / "a.tsv").write_text(table)
    text = read_test(tmp_path / "a.tsv", None, model_that_says(tokenizer, languages, training), PT_EN)
    assert text.pairs == [("Sol.", "Sun.")]


@pytest.mark.parametrize(
    "training",
    [{}, {"corpora": [{"files": ["a.pt", "a.en"]}, {"files": ["b.en", "b.pt"]}]}, {"corpora": [{"files": ["a.tsv"]}]}],
)
def test_columns_that_nobody_names_are_not_guessed(tmp_path: Path, tokenizer: Tokenizer, training: dict) -> None:
    """Models of the first versions do not say; where their files do not, either, the table has to."""
    (tmp_path / "a.tsv").write_text("Sol.\tSun.\n")
    with pytest.raises(evaluation.CorpusError, match="write a first line of pt and en, in the order of the columns"):
        read_test(tmp_path / "a.tsv", None, model_that_says(tokenizer, (), training), PT_EN)


def test_a_model_that_does_not_tell_its_languages_is_loaded(tmp_path: Path, saved_path: Path) -> None:
    """Those of the version before; the one that we ship is one of them."""
    with safe_open(saved_path, "pt") as file:
        header = json.loads(file.metadata()["dragoman"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert header.pop("languages") == ["pt", "en"]
    save_file(tensors, tmp_path / "old.safetensors", {"dragoman": json.dumps(header)})
    assert load_model(tmp_path / "old.safetensors").languages == ()
    assert load_model(saved_path).languages == ("pt", "en")


def test_a_line_beyond_the_networks_positions_is_left_out_and_told(
    tmp_path: Path, tokenizer: Tokenizer, app: evaluation.typer.Typer
) -> None:
    """One such line ended the whole evaluation in a traceback."""
    save_model(tmp_path / "m.safetensors", model_that_says(tokenizer, (), {}))
    (tmp_path / "a.tsv").write_text(f"pt\ten\nSol.\tSun.\n{'sol ' * 30}\tSun.\nLua.\tMoon.\n")
    arguments = [str(tmp_path / "m.safetensors"), str(tmp_path / "a.tsv"), "--json", str(tmp_path / "r.json")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "a.tsv, line 3: more tokens than the 24 that this network can read; left out" in result.output
    reports = json.loads((tmp_path / "r.json").read_text())
    assert [(report["sentences"], report["lines_left_out"]) for report in reports] == [(2, [3])] * 2
    (tmp_path / "a.tsv").write_text(f"pt\ten\n{'sol ' * 30}\tSun.\n")
    nothing = CliRunner().invoke(app, arguments)
    assert (nothing.exit_code, "is left to score" in nothing.output) == (1, True)


def test_a_line_that_just_fits_is_scored(tokenizer: Tokenizer) -> None:
    """The end of the sentence needs a position, too; and one more would be one too many."""
    saved = model_that_says(tokenizer, (), {})
    texts = ["1" * count for count in range(10, 40)]
    kept, too_long = leave_out_too_long(saved, HeldOutText([(text, "") for text in texts]), PT_EN)
    assert max(len(tokenizer.encode(source)) for source, _ in kept.pairs) == 23
    assert len(kept.pairs) + len(too_long) == len(texts)
    assert len(list(evaluation.translate(saved, [source for source, _ in kept.pairs], PT_EN, 1))) == len(kept.pairs)


def test_a_forgotten_reference_is_asked_for(tmp_path: Path, saved_path: Path, app: evaluation.typer.Typer) -> None:
    """Columns are the last thing on the mind of somebody with two files."""
    (tmp_path / "test.pt").write_text("Bom dia.\n")
    result = CliRunner().invoke(app, [str(saved_path), str(tmp_path / "test.pt")])
    assert result.exit_code == 1
    assert "the reference file is missing" in result.output


def test_evaluate_runs_as_a_module() -> None:
    """As `python -m dragoman.model.train` does; without a word it would pass for a model that was scored."""
    command = [sys.executable, "-m", "dragoman.model.evaluate", "--help"]
    result = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0
    assert "Score a trained model" in result.stdout


def test_a_model_of_two_pairs_asks_which(tokenizer: Tokenizer) -> None:
    """Guessing the direction would score nonsense."""
    pairs = [{"source": s, "target": t, "source_prefix_ids": []} for s, t in (("pt", "en"), ("en", "pt"))]
    saved = SavedModel(Transformer(TransformerConfig(24, 16, 32, 2, 1, 1)), tokenizer, pairs, {})
    assert find_pair(saved, "en-pt")["target"] == "pt"
    with pytest.raises(evaluation.CorpusError, match="--pair"):
        find_pair(saved, None)
