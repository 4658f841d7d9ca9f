"""A run's options may stand in a file, which is kept with the code; what is given on the command line wins."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dragoman.model import train
from dragoman.model.recipe import Recipe
from dragoman.model.train import TrainConfig


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict:
    seen: dict = {}

    def follow(recipe: Recipe, config: TrainConfig, _: object) -> None:
        seen.update(recipe=recipe, config=config)
        raise ValueError("enough")

    monkeypatch.setattr(train, "follow", follow)
    return seen


def invoke(*arguments: str) -> str:
    import typer

    app = typer.Typer()
    app.command()(train.run)
    return CliRunner(env={"COLUMNS": "400"}).invoke(app, list(arguments)).output


RECIPE = """
languages = "pt,en"
pair = ["pt-en", "en-pt"]
corpus = ["a.pt,b.tsv#2;machine=pt;weight=0.5", "c.tsv"]
valid = "v.pt,v.en"
preset = "student"
peak-lr = 0.001
"""


def test_options_of_a_file_are_defaults(tmp_path: Path, asked: dict) -> None:
    """Required ones too; files of corpora are found in the folder that --text names."""
    path = tmp_path / "r.toml"
    path.write_text(RECIPE)
    invoke(str(tmp_path / "run"), "--recipe", str(path), "--text", "/text", "--peak-lr", "0.002", "--seed", "7")
    recipe, config = asked["recipe"], asked["config"]
    assert recipe.corpora == ("/text/a.pt,/text/b.tsv#2;machine=pt;weight=0.5", "/text/c.tsv")
    assert (recipe.valid, recipe.preset, recipe.pairs) == ("/text/v.pt,/text/v.en", "student", ("pt-en", "en-pt"))
    assert (config.peak_lr, config.seed) == (0.002, 7)


def test_an_option_that_does_not_exist_is_refused(tmp_path: Path, asked: dict) -> None:
    """A misspelled one would be left out of the run without a word."""
    path = tmp_path / "r.toml"
    path.write_text(RECIPE + "peek-lr = 1\n")
    assert "there is no option --peek-lr" in " ".join(invoke("run", "--recipe", str(path)).split())
    path.write_text("languages = pt,en")
    assert "cannot read" in invoke("run", "--recipe", str(path))
    assert not asked


@pytest.mark.parametrize("path", sorted(Path(train.__file__).parent.glob("recipes/*.toml")), ids=lambda path: path.name)
def test_our_recipes_can_be_followed(path: Path, asked: dict) -> None:
    """All but the text of them is in the repository."""
    invoke("run", "--recipe", str(path))
    assert asked["recipe"].corpora
