"""Training survives: kills, bad numbers, full disks, two processes; and the same seed gives the same run."""

import contextlib
import dataclasses
import io
import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

from dragoman.model.averaging import RunningAverage, mean_of_best
from dragoman.model.batches import Batch
from dragoman.model.checkpoint import Progress, drop_lost, facts_so_far, forget_others, keep_best
from dragoman.model.recipe import Recipe
from dragoman.model.saved import SavedModelError, load_model, save_model, write_atomically
from dragoman.model.text import CorpusError
from dragoman.model.tokenizer import train_tokenizer
from dragoman.model.train import build_trainer
from dragoman.model.train_options import TrainConfig
from dragoman.model.trainer import Trainer, TrainingError, learning_rate
from dragoman.model.workers import Workers
from tests.data.make_tokenizers import path_of

QUICK = {"batch_tokens": 500, "accumulate": 2, "warmup_steps": 4, "validate_every": 1000, "scored_sentences": 4}
ROOT = Path(__file__).parents[2]
TWO_PROCESSES = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python", sys.executable]


def command(folder: Path, files: tuple[Path, Path], *more: str) -> list[str]:
    text = f"{files[0]},{files[1]}"
    options = ["--languages", "pt,en", "--pair", "pt-en", "--corpus", text, "--valid", text, "--preset", "tiny"]
    sizes = [
        "--vocab-size",
        "900",
        "--batch-tokens",
        "500",
        "--warmup-steps",
        "4",
        "--dropout",
        "0.1",
        "--scored-sentences",
        "2",
    ]
    return ["-m", "dragoman.model.train", str(folder), *options, *sizes, *more]


ONES = (torch.ones(1, 3, dtype=torch.int64), torch.ones(1, 2, dtype=torch.int64))


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "500"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, **options
    )  # type: ignore[call-overload,no-any-return]


def make_trainer(folder: Path, files: tuple[Path, Path], init: Path | None = None, **config: object) -> Trainer:
    return follow(make_recipe(folder, files, init=init), **config)


def make_recipe(folder: Path, files: tuple[Path, Path], **changes: object) -> Recipe:
    text = f"{files[0]},{files[1]}"
    shape = None if changes.get("init") else "tiny"
    recipe = Recipe(folder, ("pt", "en"), ("pt-en",), (text,), text, preset=shape, vocab_size=900)
    return dataclasses.replace(recipe, **changes)  # type: ignore[arg-type]


def follow(recipe: Recipe, **config: object) -> Trainer:
    return build_trainer(recipe, TrainConfig(**{**QUICK, **config}), Console(quiet=True))  # type: ignore[arg-type]


def losses(trainer: Trainer, updates: int) -> list[float]:
    groups = trainer.groups()
    return [trainer.update(next(groups)) for _ in range(updates)]


def test_the_same_seed_gives_the_same_curve(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """An experiment that cannot be repeated is an anecdote."""
    first, second = (losses(make_trainer(tmp_path / name, corpus_files), 4) for name in ("a", "b"))
    assert first == second
    assert losses(make_trainer(tmp_path / "c", corpus_files, seed=2), 4) != first


def test_training_lowers_the_loss(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """The least one may ask."""
    curve = losses(make_trainer(tmp_path, corpus_files), 12)
    assert curve[-1] < curve[0] - 0.5


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_coarse_products_train_as_fine_ones(optimizer: str, tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """bfloat16 is for speed: the curve is the same but for its last digits, and weights stay in single precision."""
    trainers = [
        make_trainer(tmp_path / kind, corpus_files, precision=kind, optimizer=optimizer) for kind in ("fp32", "bf16")
    ]
    fine, coarse = (losses(trainer, 3) for trainer in trainers)  # few: without units for it, bfloat16 is slow
    assert fine != coarse
    assert coarse == pytest.approx(fine, rel=0.01)
    assert {p.dtype for p in trainers[1].network.parameters()} == {torch.float32}


@pytest.mark.full
def test_killed_and_resumed_is_as_if_never_killed(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """kill -9 in mid-run: what follows is bit for bit what would have been."""
    options = ["--max-steps", "14", "--checkpoint-seconds", "0", "--validate-every", "1000"]
    assert run(*command(tmp_path / "whole", corpus_files, *options)).returncode == 0
    victim = subprocess.Popen(
        [sys.executable, *command(tmp_path / "cut", corpus_files, *options)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.DEVNULL,
    )
    wait_for(tmp_path / "cut" / "last.pt", victim)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    resumed = run(*command(tmp_path / "cut", corpus_files, *options))
    assert "resumed at update" in resumed.stderr
    whole, cut = (torch.load(tmp_path / name / "last.pt", weights_only=True) for name in ("whole", "cut"))
    assert whole["progress"]["step"] == cut["progress"]["step"] == 14
    for name, tensor in whole["network"].items():
        assert torch.equal(tensor, cut["network"][name]), name


@pytest.mark.parametrize(
    ("number", "launcher"),
    [(signal.SIGTERM, []), (signal.SIGINT, []), (signal.SIGTERM, TWO_PROCESSES)],
    ids=["one process", "Ctrl-C", "two"],
)
def test_a_polite_stop_loses_no_update(
    number: signal.Signals, launcher: list[str], tmp_path: Path, corpus_files: tuple[Path, Path]
) -> None:
    """An orchestrator's SIGTERM, a person's Ctrl-C: the run says where it stopped, and goes on from exactly there."""
    options = ["--max-steps", "100000", "--checkpoint-seconds", "100000", "--validate-every", "1000000"]
    whole = [*launcher, *command(tmp_path / "run", corpus_files, *options)]
    stopped = subprocess.Popen(
        [sys.executable, *whole],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell ignores it
    )
    try:
        wait_for(tmp_path / "run" / "curve.jsonl", stopped)
        stopped.send_signal(number)
        _, told = stopped.communicate(timeout=60)
    finally:
        stopped.kill()
    assert stopped.returncode == 0 or launcher  # torchrun calls every signal a failure
    step = torch.load(tmp_path / "run" / "last.pt", weights_only=True)["progress"]["step"]
    assert f"stopped at update {step}" in told
    assert step > 0


@pytest.mark.parametrize("stop_at", [2, 3])
def test_stopped_politely_and_resumed_is_as_if_never_stopped(
    stop_at: int, tmp_path: Path, corpus_files: tuple[Path, Path]
) -> None:
    """No update is lost, and no group of batches is passed over; also where a validation was due."""
    options = {"max_steps": 5, "validate_every": 3}
    whole = make_trainer(tmp_path / "whole", corpus_files, **options)
    whole.run()
    first = make_trainer(tmp_path / "cut", corpus_files, **options)
    update = first.update

    def update_and_ask(group: list[Batch]) -> float:
        first.asked_to_stop = first.progress.step + 1 == stop_at
        return update(group)

    first.update = update_and_ask  # type: ignore[method-assign]
    assert first.run() is None
    assert first.progress.step == stop_at
    second = make_trainer(tmp_path / "cut", corpus_files, **options)
    assert second.resume()
    second.run()
    assert dataclasses.replace(second.progress, seconds=0) == dataclasses.replace(whole.progress, seconds=0)
    for name, tensor in whole.network.state_dict().items():
        assert torch.equal(tensor, second.network.state_dict()[name]), name


def test_a_run_cut_short_says_that_there_is_no_model(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """Resumed with fewer updates than it has made and none of them validated, it has nothing to average."""
    trainer = make_trainer(tmp_path, corpus_files)
    losses(trainer, 2)
    trainer.checkpoint()
    result = run(*command(tmp_path, corpus_files, "--max-steps", "1"))
    assert "no model yet: nothing was validated in 2 updates" in result.stderr
    assert not (tmp_path / "model.safetensors").exists()


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the file has something in it; bounded by the process's own end."""
    give_up_at = time.monotonic() + 90
    while not (path.exists() and path.stat().st_size) and time.monotonic() < give_up_at:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.02)
            break
    assert path.exists()


@pytest.mark.full
def test_two_processes_are_one_with_twice_the_batch(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """torchrun on gloo: the loss is normalized by the tokens of all, and Muon's work is shared, not changed."""
    common = ["--max-steps", "3", "--dropout", "0", "--validate-every", "1000", "--optimizer", "muon"]
    alone = run(*command(tmp_path / "one", corpus_files, *common, "--accumulate", "2"))
    assert alone.returncode == 0, alone.stderr
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "tokenizer.model").write_bytes((tmp_path / "one" / "tokenizer.model").read_bytes())
    both = run(*TWO_PROCESSES, *command(tmp_path / "two", corpus_files, *common, "--accumulate", "1"))
    assert both.returncode == 0, both.stderr
    one, two = (torch.load(tmp_path / name / "last.pt", weights_only=True) for name in ("one", "two"))
    assert one["progress"]["tokens"] == two["progress"]["tokens"]
    for name, tensor in one["network"].items():
        torch.testing.assert_close(tensor, two["network"][name], atol=2e-5, rtol=1e-4)


def test_a_bad_update_is_skipped_and_many_stop_the_run(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """One overflow must not poison the weights; endless ones must not burn hours."""
    trainer = make_trainer(tmp_path, corpus_files)
    groups = trainer.groups()
    with torch.no_grad():
        trainer.network.encoder.layers[0].feed_forward.down.bias[0] = math.inf
    before = trainer.network.embedding.weight.clone()
    assert math.isnan(trainer.update(next(groups)))
    assert torch.equal(trainer.network.embedding.weight, before)
    assert trainer.progress.skipped == 1
    with pytest.raises(TrainingError, match="not finite"):
        losses(trainer, 20)


def test_the_run_stops_when_validation_stops_improving(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """Early stopping: with a learning rate of zero nothing ever improves."""
    trainer = make_trainer(tmp_path, corpus_files, peak_lr=0.0, validate_every=1, patience=2, max_steps=50, average=2)
    assert trainer.run() == tmp_path / "model.safetensors"
    assert trainer.progress.step == 3
    rows = [json.loads(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    assert len([row for row in rows if "valid_loss" in row]) == 3
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_only_the_best_are_kept_and_averaged(tmp_path: Path) -> None:
    """The mean of the best weights; what falls out of them leaves the disk."""
    network, progress = torch.nn.Linear(2, 2), Progress()
    for step, loss in enumerate([3.0, 1.0, 2.0, 5.0], 1):
        progress.step = step
        torch.nn.init.constant_(network.weight, step)
        keep_best(tmp_path, network, progress, loss, count=2)
        forget_others(tmp_path, progress)
    assert progress.best == [(1.0, 2), (2.0, 3)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2.pt", "3.pt"]
    assert mean_of_best(tmp_path, progress)["weight"].tolist() == [[2.5, 2.5], [2.5, 2.5]]


def test_a_running_average_follows_the_weights() -> None:
    """Quickly at first, so that where it began is forgotten; then as slowly as it was told to."""
    average = RunningAverage({"w": torch.tensor([100.0])}, decay=0.99)
    for _ in range(2000):
        average.add({"w": torch.tensor([1.0])})
    assert abs(float(average.weights["w"]) - 1.0) < 1e-3
    average.add({"w": torch.tensor([2.0])})
    assert float(average.weights["w"]) == pytest.approx(1.01, abs=1e-4)


@pytest.mark.parametrize("best", ["the last update", "the running average", "the mean of updates"])
def test_what_validates_best_is_published(best: str, tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """An average of weights that lie too far apart is worse than any of them: 21.3 BLEU where the last had 26.9."""
    trainer = make_trainer(tmp_path, corpus_files, max_steps=2, validate_every=1, average=2, scored_sentences=0)
    trainer.run()
    good = {name: tensor.clone() for name, tensor in trainer.network.state_dict().items()}
    bad = {name: torch.randn_like(tensor) for name, tensor in good.items()}
    trainer.network.load_state_dict(good if best == "the last update" else bad)
    trainer.running_average.restore(good if best == "the running average" else bad, 2)
    for _, step in trainer.progress.best:
        torch.save(good if best.startswith("the mean") else bad, tmp_path / "best" / f"{step}.pt")
    saved = load_model(trainer.publish())
    assert saved.training["published"].startswith(best)
    assert len(saved.training["validation_losses"]) == 3
    assert torch.equal(saved.network.embedding.weight, good["embedding.weight"])
    assert torch.equal(
        trainer.network.embedding.weight, (good if best == "the last update" else bad)["embedding.weight"]
    )


class Killed(BaseException):
    """Stands for kill -9, at a place that a real one would have to be lucky to meet."""


def kill(*_: object, **__: object) -> None:
    raise Killed


def test_killed_while_it_validates_a_run_finds_its_best_weights(
    tmp_path: Path, corpus_files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old ones were deleted before a checkpoint named the new ones: the run could never end in a model."""
    options = {"max_steps": 2, "validate_every": 1, "average": 1, "scored_sentences": 0}
    first = make_trainer(tmp_path, corpus_files, **options)
    save, saves = first._save, [1]

    def save_once(states: list[torch.Tensor]) -> None:
        save(states) if saves.pop() else kill()
        saves.append(0)

    monkeypatch.setattr(first, "_save", save_once)
    with pytest.raises(Killed):
        first.run()
    second = make_trainer(tmp_path, corpus_files, **options)
    assert second.resume()
    assert [step for _, step in second.progress.best] == [1]
    assert second.run() == tmp_path / "model.safetensors"
    assert [path.name for path in (tmp_path / "best").iterdir()] == [f"{second.progress.best[0][1]}.pt"]


def test_what_goes_wrong_with_bleu_costs_no_update(
    tmp_path: Path, corpus_files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint came after it: a run that failed there failed again at the same place, for ever."""
    trainer = make_trainer(tmp_path, corpus_files, max_steps=1, scored_sentences=1)
    monkeypatch.setattr("dragoman.model.trainer.evaluate", kill)
    with pytest.raises(Killed):
        trainer.run()
    again = make_trainer(tmp_path, corpus_files, max_steps=1)
    assert again.resume()
    assert again.run() == tmp_path / "model.safetensors"


def test_weights_that_are_lost_are_left_out_and_told(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """Runs that the version before left so must be able to go on."""
    make_trainer(tmp_path, corpus_files, max_steps=2, validate_every=1, scored_sentences=0).run()
    (tmp_path / "best" / "1.pt").unlink()
    again = make_trainer(tmp_path, corpus_files)
    told = io.StringIO()
    again.console = Console(file=told, width=500)
    assert again.resume()
    assert [step for _, step in again.progress.best] == [2]
    assert "best/1.pt is missing: the model will be averaged without it" in told.getvalue()


def test_nothing_is_lost_where_all_files_are_there(tmp_path: Path) -> None:
    """And what is not a step's weights is nobody's business."""
    progress = Progress(best=[(0.5, 1), (0.6, 2)])
    for name in ("1.pt", "2.pt", "3.pt", "mine.pt"):
        (tmp_path / name).touch()
    assert drop_lost(tmp_path, progress) == []
    forget_others(tmp_path, progress)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.pt", "2.pt", "mine.pt"]


def test_every_process_goes_on_with_its_own_random_state(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """All took the first one's: two processes that were resumed did not end where they would have."""
    states = [torch.Generator().manual_seed(seed).get_state() for seed in (1, 2)]
    first = make_trainer(tmp_path, corpus_files)
    first.workers.gather = lambda _: states  # type: ignore[method-assign]
    first.checkpoint()
    for rank in (0, 1):
        trainer = make_trainer(tmp_path, corpus_files)
        trainer.workers.rank = rank
        assert trainer.resume()
        assert torch.equal(torch.get_rng_state(), states[rank])


def test_processes_part_when_all_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that left while another wrote the model made the whole run end in SIGABRT, now and then."""
    calls: list[str] = []
    workers = Workers()
    workers.size = 2
    for name in ("barrier", "destroy_process_group"):
        monkeypatch.setattr(f"torch.distributed.{name}", lambda name=name: calls.append(name))
    workers.part()
    assert calls == ["barrier", "destroy_process_group"]


def test_no_bleu_is_computed_where_none_is_asked_for(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """It takes longer than the loss, and not everybody looks at it."""
    assert make_trainer(tmp_path, corpus_files, max_steps=1, scored_sentences=0).run()
    assert "valid_bleu" not in (tmp_path / "curve.jsonl").read_text()
    assert "valid_loss" in (tmp_path / "curve.jsonl").read_text()


@pytest.mark.parametrize("name", ["scored_sentences", "max_tokens"])
def test_a_negative_number_is_refused(name: str) -> None:
    """-1 sentences were all but the last one."""
    with pytest.raises(ValueError, match=f"{name} must be at least"):
        TrainConfig(**{name: -1})


def test_pairs_of_too_many_tokens_are_counted_and_told(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """They were left out of every batch, and the facts said that they had been learned from."""
    told = io.StringIO()
    config = TrainConfig(**{**QUICK, "max_tokens": 30})  # type: ignore[arg-type]
    recipe = make_recipe(tmp_path, corpus_files, tokenizer=path_of(900))
    trainer = build_trainer(recipe, config, Console(file=told, width=500))
    (facts,) = trainer.saved.training["corpora"]
    items = [item for batch in trainer.valid.epoch(0) for item in batch]
    assert facts["pairs"] == len(items) == len(trainer.valid_pairs)
    assert facts["dropped"]["over 30 tokens"] > 0
    assert f"{facts['pairs']} pairs, dropped {facts['dropped']['over 30 tokens']} over 30 tokens" in told.getvalue()


def test_a_line_that_no_network_could_read_does_not_end_the_run(
    tmp_path: Path, corpus_files: tuple[Path, Path]
) -> None:
    """In --valid it ended every validation in a traceback, and the run began again and again."""
    for path in corpus_files:
        path.write_text("ж" * 700 + "\n" + path.read_text("utf-8"), "utf-8")
    trainer = follow(make_recipe(tmp_path / "run", corpus_files, tokenizer=path_of(900)), max_steps=1)
    assert trainer.saved.training["corpora"][0]["dropped"]["over 120 tokens"] >= 1
    assert not any("ж" in source for source, _ in trainer.valid_pairs)
    assert trainer.run()


@pytest.mark.parametrize("place", ["corpora", "valid"])
def test_text_of_which_nothing_is_left_is_refused(place: str, tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """A run without a single pair to learn from, or to be judged by, divided by zero."""
    table = tmp_path / "long.tsv"
    table.write_text("ж" * 130 + "\t" + "ж" * 130 + "\n", "utf-8")
    recipe = make_recipe(tmp_path / "run", corpus_files, tokenizer=path_of(900))
    recipe = dataclasses.replace(recipe, **{place: (str(table),) if place == "corpora" else str(table)})
    with pytest.raises(CorpusError, match=r"all pairs of .*long.tsv have more than 120 tokens .* higher --max-tokens"):
        follow(recipe)
    assert not (recipe.folder / "tokenizer.model").exists()


def test_more_tokens_than_positions_are_refused(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """Tags and the end of a sentence need places of their own."""
    recipe = make_recipe(tmp_path / "run", corpus_files, tokenizer=path_of(900))
    with pytest.raises(CorpusError, match="--max-tokens 510 is more than this network can read: give 509 or less"):
        follow(recipe, max_tokens=510)
    assert follow(recipe, max_tokens=509)


def test_a_run_remembers_where_it_began_and_all_that_it_read(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """Resumed without --init or with other text, a run told of neither; the model card would have been wrong."""
    weights = make_trainer(tmp_path / "a", corpus_files, max_steps=1, scored_sentences=0).run()
    begun = make_trainer(tmp_path / "b", corpus_files, init=weights)
    losses(begun, 1)
    begun.checkpoint()
    both = f"{corpus_files[0]},{corpus_files[1]}"
    resumed = follow(make_recipe(tmp_path / "b", corpus_files, corpora=(f"{both};weight=2",)))
    assert resumed.resume()
    facts = resumed.saved.training
    assert facts["initialized_from"]["updates"] == 1
    assert [(corpus["weight"], corpus.get("until_update")) for corpus in facts["corpora"]] == [(2.0, None), (1.0, 1)]
    assert make_trainer(tmp_path / "b", corpus_files, init=weights).resume()  # the same command goes on


def test_initial_weights_that_come_too_late_are_refused(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """They changed nothing in a run that was there already, and were told as what it had begun with."""
    weights = make_trainer(tmp_path / "a", corpus_files, max_steps=1, scored_sentences=0).run()
    with pytest.raises(SavedModelError, match="begun without --init: --init changes nothing in it; use a new run"):
        make_trainer(tmp_path / "a", corpus_files, init=weights).resume()
    begun = make_trainer(tmp_path / "b", corpus_files, init=weights)
    begun.checkpoint()
    save_model(tmp_path / "other.safetensors", begun.saved)
    with pytest.raises(SavedModelError, match="begun with other weights"):
        make_trainer(tmp_path / "b", corpus_files, init=tmp_path / "other.safetensors").resume()


def test_text_that_comes_back_is_told_once() -> None:
    """And what ended earlier keeps its own end."""
    a, b, c = ({"files": [name]} for name in "abc")
    was = {"corpora": [a, b | {"until_update": 3}, c | {"until_update": 4}]}
    assert facts_so_far(was, {"corpora": [b]}, 9)["corpora"] == [b, {"until_update": 9} | a, c | {"until_update": 4}]


def test_initial_weights_start_a_new_run(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """A lost run folder costs hours, not the model."""
    first = make_trainer(tmp_path / "a", corpus_files, max_steps=2, validate_every=2)
    saved = first.run()
    assert saved is not None
    second = make_trainer(tmp_path / "b", corpus_files, init=saved)
    for name, tensor in load_model(saved).network.state_dict().items():
        assert torch.equal(tensor, second.network.state_dict()[name])
    assert second.progress.step == 0
    assert second.saved.tokenizer.model == first.saved.tokenizer.model


def test_initial_weights_may_go_on_with_another_dropout(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """It was ignored without a word: a run that asked for none had the first run's."""
    saved = make_trainer(tmp_path / "a", corpus_files, max_steps=2, validate_every=2).run()
    assert saved is not None
    text = f"{corpus_files[0]},{corpus_files[1]}"
    recipe = Recipe(tmp_path / "b", ("pt", "en"), ("pt-en",), (text,), text, dropout=0.0, init=saved)
    network = build_trainer(recipe, TrainConfig(**QUICK), Console(quiet=True)).network  # type: ignore[arg-type]
    assert network.config.dropout == 0.0
    assert torch.equal(network.train()(*ONES), network.eval()(*ONES))
    assert torch.equal(network.embedding.weight, load_model(saved).network.embedding.weight)


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """And what was there is not touched."""
    make_trainer(tmp_path, corpus_files).checkpoint()
    before = (tmp_path / "last.pt").read_bytes()
    result = run(*command(tmp_path, corpus_files, "--preset", "small", "--max-steps", "1"))
    assert result.returncode == 1
    assert "belongs to another configuration" in result.stderr
    assert "Traceback" not in result.stderr
    assert (tmp_path / "last.pt").read_bytes() == before


@pytest.fixture
def another_tokenizer(tmp_path: Path, sentence_pairs: list[tuple[str, str]]) -> Path:
    """As large as that of the runs here, so that the network's shape does not give it away."""
    path = tmp_path / "another.model"
    path.write_bytes(train_tokenizer([pair[0] for pair in sentence_pairs], 900, ("pt", "en")))
    return path


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--pair", "en-pt"], "learns pt-en, not en-pt and pt-en: use a new run folder"),
        (["--vocab-size", "800"], "a tokenizer of 900 pieces of its own, not of 800: use a new run folder"),
        (["--tokenizer", "another.model"], "of its own, not that of another.model: use a new run folder"),
    ],
    ids=["pairs", "pieces", "tokenizer"],
)
def test_a_run_that_learns_something_else_is_not_resumed(
    options: list[str], sentence: str, tmp_path: Path, corpus_files: tuple[Path, Path], another_tokenizer: Path
) -> None:
    """It went on without a word, and the model of the old run became an average of two that have nothing in common."""
    folder = tmp_path / "run"
    make_trainer(folder, corpus_files, max_steps=1).run()
    before = contents(folder)
    options = [str(another_tokenizer) if option == another_tokenizer.name else option for option in options]
    result = run(*command(folder, corpus_files, *options, "--max-steps", "2"))
    assert result.returncode == 1
    assert sentence in result.stderr.replace(f"{tmp_path}/", "")
    assert "Traceback" not in result.stderr
    assert contents(folder) == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_opposite_direction_is_not_resumed(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """One direction has no tags: nothing but the checkpoint's own word tells the two apart."""
    make_trainer(tmp_path, corpus_files).checkpoint()
    with pytest.raises(SavedModelError, match="learns pt-en, not en-pt: use a new run folder"):
        follow(make_recipe(tmp_path, corpus_files, pairs=("en-pt",))).resume()


def test_a_run_whose_tokenizer_was_exchanged_is_not_resumed(
    tmp_path: Path, corpus_files: tuple[Path, Path], another_tokenizer: Path
) -> None:
    """The weights are about the old pieces; with as many new ones they fit, and say nothing."""
    folder = tmp_path / "run"
    make_trainer(folder, corpus_files).checkpoint()
    another_tokenizer.replace(folder / "tokenizer.model")
    with pytest.raises(SavedModelError, match="another tokenizer: use a new run folder"):
        make_trainer(folder, corpus_files).resume()


def test_text_and_schedule_may_change_when_a_run_is_resumed(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """People do it on purpose: a new mix for the last updates, a lower rate, columns the other way round."""
    make_trainer(tmp_path, corpus_files).checkpoint()
    turned = f"{corpus_files[1]},{corpus_files[0]}"
    recipe = make_recipe(
        tmp_path, corpus_files, languages=("en", "pt"), corpora=(f"{turned};weight=0.5", turned), valid=turned
    )
    assert follow(recipe, max_steps=7, peak_lr=1e-4, batch_tokens=300).resume()


def test_a_checkpoint_that_does_not_tell_what_it_learns_is_resumed(
    tmp_path: Path, corpus_files: tuple[Path, Path]
) -> None:
    """Those of the versions before; from the next one on it does."""
    make_trainer(tmp_path, corpus_files).checkpoint()
    state = torch.load(tmp_path / "last.pt", weights_only=True)
    del state["task"], state["training"]
    (state["rng"],) = state.pop("random_states")
    torch.save(state, tmp_path / "last.pt")
    trainer = make_trainer(tmp_path, corpus_files)
    assert trainer.resume()
    assert torch.equal(torch.get_rng_state(), state["rng"])
    trainer.checkpoint()
    assert torch.load(tmp_path / "last.pt", weights_only=True)["task"]["pairs"] == ["pt-en"]


def test_a_given_tokenizer_is_kept_in_the_run(
    tmp_path: Path, corpus_files: tuple[Path, Path], another_tokenizer: Path
) -> None:
    """Resumed without the option, the run would else learn a new one and read its weights with that."""
    folder = tmp_path / "run"
    first = follow(make_recipe(folder, corpus_files, tokenizer=another_tokenizer))
    first.checkpoint()
    again = make_trainer(folder, corpus_files)
    assert again.saved.tokenizer.model == another_tokenizer.read_bytes()
    assert again.resume()


def test_a_run_without_its_tokenizer_does_not_learn_a_new_one(
    tmp_path: Path, corpus_files: tuple[Path, Path], another_tokenizer: Path
) -> None:
    """The version before kept no copy of one that was given: it has to be given again, and then goes on."""
    folder = tmp_path / "run"
    recipe = make_recipe(folder, corpus_files, tokenizer=another_tokenizer)
    follow(recipe).checkpoint()
    (folder / "tokenizer.model").unlink()
    with pytest.raises(CorpusError, match="give the --tokenizer that it was begun with"):
        make_trainer(folder, corpus_files)
    assert not (folder / "tokenizer.model").exists()
    assert follow(recipe).resume()


def test_a_number_of_pieces_that_a_given_tokenizer_lacks_is_refused(
    tmp_path: Path, corpus_files: tuple[Path, Path], another_tokenizer: Path
) -> None:
    """It was ignored; and a folder that a refused command leaves behind must not stand in the way of the next."""
    recipe = make_recipe(tmp_path / "run", corpus_files, tokenizer=another_tokenizer, vocab_size=800)
    with pytest.raises(CorpusError, match="has 900 pieces: leave --vocab-size 800 out"):
        follow(recipe)
    assert not recipe.folder.exists()


@pytest.mark.parametrize(
    ("pieces", "sentence"),
    [
        (100, r"100 pieces .* ask for at least \d+ with --vocab-size$"),
        (9000, r"9000 .* at most \d+ with --vocab-size$"),
    ],
)
def test_a_vocabulary_of_a_wrong_size_is_told_which_way_to_go(
    pieces: int, sentence: str, tmp_path: Path, corpus_files: tuple[Path, Path]
) -> None:
    """Whoever asked for too few was told to ask for fewer."""
    with pytest.raises(ValueError, match=sentence):
        follow(make_recipe(tmp_path, corpus_files, vocab_size=pieces))


def test_a_table_to_train_on_is_read_by_the_names_of_its_columns(
    tmp_path: Path, corpus_files: tuple[Path, Path], sentence_pairs: list[tuple[str, str]]
) -> None:
    """The exporter wants those names; without regard to them a table would teach the opposite direction."""
    table = tmp_path / "text.tsv"
    table.write_text("en\tpt\n" + "".join(f"{b}\t{a}\n" for a, b in sentence_pairs), "utf-8")
    recipe = make_recipe(tmp_path / "run", corpus_files, corpora=(str(table),), valid=str(table))
    by_name, by_file = follow(recipe), make_trainer(tmp_path / "run", corpus_files)
    assert by_name.valid_pairs == by_file.valid_pairs
    for side in ("first", "second"):
        read, wanted = (getattr(trainer.batches.corpora[0], side) for trainer in (by_name, by_file))
        assert read.flat.tolist() == wanted.flat.tolist()


def test_bad_text_gets_one_sentence_and_exit_1(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """No traceback for what a user can mend."""
    corpus_files[1].write_text("only one line\n")
    result = run(*command(tmp_path / "run", corpus_files))
    assert result.returncode == 1
    assert "must translate line N" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"preset": "huge"}, "there is no preset 'huge'; choose one of tiny"),
        ({"corpora": ("a.pt,a.en;weight=much",)}, "'much' of corpus .* is not a number"),
        ({"corpora": ("a.pt,a.en;machine=de",)}, "machine=de of a.pt \\+ a.en is none of pt, en"),
        ({"corpora": ("a.pt,a.en;into=pt",)}, "into=pt of a.pt \\+ a.en is none of en"),
        ({"valid": "v.pt,v.en;into=en"}, "--valid .* takes no into"),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_refused(tmp_path: Path, changes: dict, sentence: str) -> None:
    """Before any text is read, in one sentence; a misspelled language would leave machine-made text untold."""
    recipe = {"folder": tmp_path, "languages": ("pt", "en"), "pairs": ("pt-en",), "corpora": (), "valid": "v.pt,v.en"}
    with pytest.raises((CorpusError, ValueError), match=sentence):
        Recipe(**{**recipe, **changes})


def test_a_path_in_brackets_is_told_as_it_is(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """Names are not markup: rich would swallow them, or fail on a closing tag."""
    result = run(*command(tmp_path / "run", (corpus_files[0], Path("[/absent].en"))))
    assert result.returncode == 1
    assert "cannot read [/absent].en" in result.stderr


@pytest.fixture
def small_files_only() -> Iterator[None]:
    """The kernel refuses to let a file grow: what a full disk looks like to a writer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_leaves_the_old_checkpoint(
    tmp_path: Path, corpus_files: tuple[Path, Path], request: pytest.FixtureRequest
) -> None:
    """The last good state is worth more than the newest."""
    trainer = make_trainer(tmp_path, corpus_files)
    trainer.checkpoint()
    before = (tmp_path / "last.pt").read_bytes()
    request.getfixturevalue("small_files_only")
    with pytest.raises(SavedModelError, match="untouched"):
        trainer.checkpoint()
    assert (tmp_path / "last.pt").read_bytes() == before
    assert not list(tmp_path.glob(".*partial"))


def test_a_failed_write_leaves_nothing_half_done(tmp_path: Path) -> None:
    """Readers see the old file or the new one."""
    (tmp_path / "x").write_text("old")

    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError("no space")

    with pytest.raises(SavedModelError, match="no space"):
        write_atomically(tmp_path / "x", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_text() == "old"


def test_what_is_written_below_a_file_gets_one_sentence(tmp_path: Path) -> None:
    """A run folder that is a file: no traceback, and the file stays."""
    (tmp_path / "x").write_text("old")
    with pytest.raises(SavedModelError, match=r"could not write .*x/y/z"):
        write_atomically(tmp_path / "x" / "y" / "z", lambda path: path.write_text("new") and None)
    with pytest.raises(SavedModelError, match=r"could not write .*x/z"):
        write_atomically(tmp_path / "x" / "z", lambda path: path.write_text("new") and None)
    assert (tmp_path / "x").read_text() == "old"


def test_a_saved_model_comes_back_whole(tmp_path: Path, corpus_files: tuple[Path, Path]) -> None:
    """Weights, tokenizer, pairs and facts in one file; half precision halves it."""
    saved = make_trainer(tmp_path, corpus_files).saved
    save_model(tmp_path / "full.safetensors", saved)
    save_model(tmp_path / "half.safetensors", saved, half=True)
    loaded = load_model(tmp_path / "full.safetensors")
    for name, tensor in saved.network.state_dict().items():
        assert torch.equal(tensor, loaded.network.state_dict()[name])
    assert (loaded.pairs, loaded.tokenizer.model, loaded.config) == (saved.pairs, saved.tokenizer.model, saved.config)
    sizes = [(tmp_path / f"{kind}.safetensors").stat().st_size for kind in ("full", "half")]
    assert sizes[1] < 0.6 * sizes[0]


def test_what_is_no_saved_model_is_refused(tmp_path: Path) -> None:
    """One sentence, not a struct.error."""
    (tmp_path / "x.safetensors").write_bytes(b"nonsense")
    with pytest.raises(SavedModelError, match="not a saved Dragoman model"):
        load_model(tmp_path / "x.safetensors")


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["model.safetensors", "old.safetensors"], r"is a folder, not a saved model; give .*/model\.safetensors$"),
        (["old.safetensors"], r"give .*/old\.safetensors$"),
        ([], r"is a folder, and there is no \.safetensors in it"),
    ],
)
def test_a_folder_in_place_of_a_model_is_told_by_its_name(tmp_path: Path, names: list[str], sentence: str) -> None:
    """A run folder is what training was given; "no such device" helps nobody who gives it to the next command."""
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(SavedModelError, match=sentence):
        load_model(tmp_path)


def test_learning_rate_warms_up_decays_and_cools_down() -> None:
    """Linear, inverse square root, linear to zero."""
    config = TrainConfig(peak_lr=1.0, warmup_steps=100, max_steps=1000, cooldown_steps=100)
    assert learning_rate(50, config) == 0.5
    assert learning_rate(100, config) == 1.0
    assert learning_rate(400, config) == pytest.approx(0.5)
    assert learning_rate(1000, config) == pytest.approx(math.sqrt(0.1) * 0.01)
