"""`dragoman-train`: bring your own two files or a TSV, get a checkpoint and a score. The loop is in `trainer.py`.

    dragoman-train runs/pt-en --languages pt,en --pair pt-en --corpus train.pt,train.en --valid valid.pt,valid.en
    torchrun --nproc-per-node 2 -m dragoman.model.train runs/pt-en ... (the same arguments)

A run folder that holds a checkpoint is resumed.
"""

import ctypes
import inspect
import signal
import sys
import tomllib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from dragoman.model.batches import Batches, directions
from dragoman.model.corpus import CorpusSpec
from dragoman.model.dataset import Dataset, open_dataset, read_dataset
from dragoman.model.network_config import PRESETS
from dragoman.model.recipe import (
    DEFAULT_PRESET,
    Recipe,
    find_tokenizer,
    keep_tokenizer,
    new_model,
    refuse_more_than_positions,
)
from dragoman.model.saved import SavedModelError
from dragoman.model.shards import ShardOptions, shard_of, write_missing
from dragoman.model.text import CorpusError
from dragoman.model.tokenizer import Tokenizer
from dragoman.model.train_options import TrainConfig
from dragoman.model.trainer import Trainer, TrainingError
from dragoman.model.workers import Workers


def keep_freed_memory() -> None:
    """Let glibc reuse the large blocks of a batch instead of returning them to the kernel, which costs page faults."""
    if sys.platform != "linux":
        return
    try:
        libc = ctypes.CDLL("libc.so.6")
        trim_threshold, mmap_max = -1, -4
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, 2**31 - 1)
    except (OSError, AttributeError):  # another C library: slower, not wrong
        return


def build_trainer(recipe: Recipe, config: TrainConfig, console: Console) -> Trainer:
    workers = Workers()
    pairs = recipe.directions()
    tokenizer = find_tokenizer(recipe)
    ways = directions(pairs, recipe.languages, tokenizer)
    torch.manual_seed(config.seed)
    saved = new_model(recipe, tokenizer, ways)
    refuse_more_than_positions(config, saved.config.max_positions)
    datasets = open_datasets(recipe, config, tokenizer, workers, console)
    valid = read_dataset(CorpusSpec.parse(recipe.valid), recipe.languages, tokenizer, config)
    console.print(valid.told(), markup=False)
    keep_tokenizer(recipe.folder, tokenizer)  # only now: one that does not fit must not stay in the folder
    saved.training.update(train_config=config.to_dict(), corpora=[dataset.facts() for dataset in datasets])
    return Trainer(
        recipe.folder,
        saved,
        Batches(
            [dataset.corpus for dataset in datasets],
            ways,
            config.batch_tokens,
            config.join_fraction,
            config.max_tokens,
            config.seed,
        ),
        Batches([valid.corpus], ways, config.batch_tokens, max_tokens=config.max_tokens, seed=config.seed),
        [(b, a) if ways[0].swapped else (a, b) for a, b in valid.pairs],
        config,
        workers,
        console,
    )


def open_datasets(
    recipe: Recipe, config: TrainConfig, tokenizer: Tokenizer, workers: Workers, console: Console
) -> list[Dataset]:
    """The run's text, tokenized by the first process if it is not yet, and opened by all."""
    options = ShardOptions(config.placeholder_fraction, config.seed, recipe.languages)
    folder = recipe.shards or recipe.folder / "shards"
    shards = [shard_of(CorpusSpec.parse(text), recipe.languages, tokenizer, options, folder) for text in recipe.corpora]
    if workers.is_first:
        write_missing(shards, recipe.languages, tokenizer, options)
    workers.wait()
    datasets = [open_dataset(shard, config.max_tokens) for shard in shards]
    if workers.is_first:
        for dataset in datasets:
            console.print(dataset.told(), markup=False)
    return datasets


def stop_politely(trainer: Trainer) -> None:
    """SIGTERM and Ctrl-C lose nothing, whichever of the processes gets them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def ask(number: int, _: object) -> None:
        trainer.asked_to_stop = True
        if trainer.workers.size == 1:  # torchrun passes on what a terminal has sent to all already
            signal.signal(number, before[signal.Signals(number)])  # who cannot wait for the update to end asks again

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # a shell may have started it so, in the background
            signal.signal(number, ask)


def with_training_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of `TrainConfig`, which are declared there and only there."""
    signature = inspect.signature(command)
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=Annotated[field.type, typer.Option(help=field.metadata["help"])],
        )
        for field in fields(TrainConfig)
        if field.metadata
    ]
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    command.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    command.__annotations__ |= {option.name: option.annotation for option in options}
    return command


def read_recipe(context: typer.Context, path: Path | None) -> Path | None:
    """The options of a file are the defaults of this run. Before all others: they may be required."""
    if path is None:
        return None
    try:
        options = tomllib.loads(path.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise typer.BadParameter(f"cannot read {path}: {error}") from error
    known = {name for option in context.command.params for name in (option.name, *option.opts)}
    for name in options:
        if f"--{name}" not in known:
            raise typer.BadParameter(f"{path}: there is no option --{name}")
    names = {f"--{name}": value for name, value in options.items()}
    context.default_map = {
        option.name: names[opt]
        for option in context.command.params
        for opt in option.opts
        if option.name and opt in names
    }
    return path


@with_training_options
def run(
    folder: Annotated[Path, typer.Argument(help="the run: checkpoints, curve and model are kept here")],
    corpus: Annotated[
        list[str],
        typer.Option(help="a.pt,a.en or a.tsv; with ;weight=N ;machine=LANGUAGE ;into=LANGUAGE; repeatable"),
    ],
    valid: Annotated[str, typer.Option(help="held-out text, in the same form")],
    languages: Annotated[str, typer.Option(help="the languages of the two sides, such as pt,en")],
    pair: Annotated[
        list[str], typer.Option(help="what to learn, such as pt-en; twice for both directions in one model")
    ],
    recipe: Annotated[
        Path | None, typer.Option(callback=read_recipe, is_eager=True, help="a TOML file of options; given ones win")
    ] = None,
    text: Annotated[Path, typer.Option(help="the folder that corpora are in")] = Path(),
    preset_name: Annotated[
        str | None, typer.Option("--preset", help=f"{', '.join(PRESETS)}; without, {DEFAULT_PRESET}")
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="use this SentencePiece model instead of learning one")] = None,
    vocab_size: Annotated[int | None, typer.Option(min=1, help="pieces of a new tokenizer")] = None,
    init: Annotated[
        Path | None, typer.Option(help="start from these weights; --tokenizer and --preset may differ")
    ] = None,
    shards: Annotated[Path | None, typer.Option(help="tokenized text, for several runs; without: in the run")] = None,
    dropout: Annotated[float | None, typer.Option(help="instead of the preset's, or the initial weights'")] = None,
    threads: Annotated[int, typer.Option(min=1, help="threads of this process")] = 1,
    **training: Any,
) -> None:
    """Train a Transformer on parallel text. Started again with the same folder, it resumes."""
    given = locals() | training
    console = Console(stderr=True, soft_wrap=True)
    torch.set_num_threads(threads)
    keep_freed_memory()
    try:
        trainer, result = follow(*asked_for(given), console)
    except (CorpusError, SavedModelError, TrainingError, ValueError) as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(1) from error
    trainer.workers.part()
    if trainer.workers.is_first:
        console.print(ending(trainer, result))


def asked_for(options: dict[str, Any]) -> tuple[Recipe, TrainConfig]:
    corpora = [below(options["text"], corpus) for corpus in options["corpus"]]
    several = {"languages": options["languages"].split(","), "pairs": options["pair"], "corpora": corpora}
    options["valid"] = below(options["text"], options["valid"])
    options = options | {name: tuple(values) for name, values in several.items()} | {"preset": options["preset_name"]}
    recipe, config = (
        {f.name: options[f.name] for f in fields(kind) if f.name in options} for kind in (Recipe, TrainConfig)
    )
    return Recipe(**recipe), TrainConfig(**config)


def below(folder: Path, corpus: str) -> str:
    """A corpus whose files are named as they are called in a folder."""
    files, *modifiers = corpus.split(";")
    return ";".join([",".join(str(folder / name) for name in files.split(",")), *modifiers])


def follow(recipe: Recipe, config: TrainConfig, console: Console) -> tuple[Trainer, Path | None]:
    trainer = build_trainer(recipe, config, console)
    if trainer.resume():
        console.print(f"resumed at update {trainer.progress.step}")
    stop_politely(trainer)
    return trainer, trainer.run()


def ending(trainer: Trainer, result: Path | None) -> str:
    """What to tell at the end: a run that ends without a model must not look like one that made it."""
    step = trainer.progress.step
    if result is not None:
        return f"saved {result}"
    if trainer.stopping:
        return f"stopped at update {step}; the same command goes on from there"
    return f"no model yet: nothing was validated in {step} updates; go on with a higher --max-steps"


def main() -> None:
    typer.run(run)


if __name__ == "__main__":
    main()
