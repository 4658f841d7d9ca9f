"""Training survives: kills, bad numbers, full disks, two processes; and the same seed gives the same run."""

import contextlib
import dataclasses
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

from model.batches import Batch
from model.checkpoint import Progress, average, keep_best
from model.config import TrainConfig
from model.corpus import CorpusError
from model.saved import SavedModelError, load_model, save_model, write_atomically
from model.train import Recipe, build_trainer
from model.trainer import Trainer, TrainingError, learning_rate

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
    return ["-m", "model.train", str(folder), *options, *sizes, *more]


ONES = (torch.ones(1, 3, dtype=torch.int64), torch.ones(1, 2, dtype=torch.int64))


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "500"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, **options
    )  # type: ignore[call-overload,no-any-return]


def make_trainer(folder: Path, files: tuple[Path, Path], init: Path | None = None, **config: object) -> Trainer:
    text = f"{files[0]},{files[1]}"
    recipe = Recipe(folder, ("pt", "en"), ("pt-en",), (text,), text, preset="tiny", vocab_size=900, init=init)
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
    assert progress.best == [(1.0, 2), (2.0, 3)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2.pt", "3.pt"]
    assert average(tmp_path, progress)["weight"].tolist() == [[2.5, 2.5], [2.5, 2.5]]


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
    recipe = Recipe(tmp_path / "b", ("pt", "en"), ("pt-en",), (text,), text, preset="tiny", dropout=0.0, init=saved)
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
        ({"corpora": ("a.pt,a.en;machine=de",)}, "machine=de of a.pt is none of pt, en"),
        ({"corpora": ("a.pt,a.en;into=pt",)}, "into=pt of a.pt is none of en"),
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


def test_learning_rate_warms_up_decays_and_cools_down() -> None:
    """Linear, inverse square root, linear to zero."""
    config = TrainConfig(peak_lr=1.0, warmup_steps=100, max_steps=1000, cooldown_steps=100)
    assert learning_rate(50, config) == 0.5
    assert learning_rate(100, config) == 1.0
    assert learning_rate(400, config) == pytest.approx(0.5)
    assert learning_rate(1000, config) == pytest.approx(math.sqrt(0.1) * 0.01)
