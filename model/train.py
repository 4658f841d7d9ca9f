"""`dragoman-train`: bring your own two files or a TSV, get a checkpoint and a score. The loop is in `trainer.py`.

    dragoman-train runs/pt-en --languages pt,en --pair pt-en --corpus train.pt,train.en --valid valid.pt,valid.en
    torchrun --nproc-per-node 2 -m model.train runs/pt-en ... (the same arguments)

A run folder that holds a checkpoint is resumed.
"""

import ctypes
import hashlib
import random
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from model.batches import EXTRA_TOKENS, Batches, Direction, directions
from model.checkpoint import INITIAL_WEIGHTS, STATE
from model.config import PRESETS, OptimizerKind, Precision, TrainConfig, preset
from model.corpus import Corpus, CorpusError, CorpusSpec, Pair, filter_pairs, read_pairs, tokenize
from model.saved import SavedModel, SavedModelError, load_model, write_atomically
from model.tokenizer import Tokenizer, train_tokenizer
from model.trainer import Trainer, TrainingError
from model.transformer import Transformer
from model.workers import Workers

TOKENIZER = "tokenizer.model"  # the name in the run folder
DEFAULT_PRESET = "small"
TOKENIZER_LINES_PER_CORPUS = 200_000


@dataclass(frozen=True)
class Recipe:
    """What is learned from what; how is `TrainConfig`."""

    folder: Path
    languages: tuple[str, str]  # of the two sides of every corpus
    pairs: tuple[str, ...]
    corpora: tuple[str, ...]
    valid: str
    preset: str | None = None  # initial weights have a shape of their own
    tokenizer: Path | None = None
    vocab_size: int | None = None
    dropout: float | None = None
    init: Path | None = None

    def __post_init__(self) -> None:
        if len(self.languages) != 2:
            raise CorpusError("--languages names the two sides of the corpora, such as pt,en")
        if self.init and self.preset:
            raise CorpusError(f"the weights of --init have a shape of their own: leave --preset {self.preset} out")
        preset(self.shape)  # raises where there is none of this name
        targets = [target for _, target in self.directions()]
        for spec in map(CorpusSpec.parse, self.corpora):
            for key, known in (("machine", self.languages), ("into", targets)):
                if (language := getattr(spec, key)) not in (None, *known):
                    raise CorpusError(f"{key}={language} of {spec.files[0]} is none of {', '.join(known)}")
        if CorpusSpec.parse(self.valid).into:
            raise CorpusError("--valid is read in every direction that is learned: it takes no into=LANGUAGE")

    @property
    def shape(self) -> str:
        return self.preset or DEFAULT_PRESET

    def directions(self) -> list[tuple[str, str]]:
        parsed = []
        for pair in self.pairs:
            source, _, target = pair.partition("-")
            if {source, target} != set(self.languages):
                raise CorpusError(f"pair {pair!r} does not join the languages {' and '.join(self.languages)}")
            parsed.append((source, target))
        return parsed


@dataclass(frozen=True)
class Text:
    """One corpus as read: what is left of it after filtering, and how many pairs were dropped for which reason."""

    spec: CorpusSpec
    pairs: list[Pair]
    dropped: Counter[str]

    def told(self) -> str:
        names = " + ".join(path.name for path in self.spec.files)
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.dropped.most_common()) or "nothing"
        return f"{names}: {len(self.pairs)} pairs, dropped {reasons}"


def read_texts(specs: Sequence[str], languages: tuple[str, str]) -> list[Text]:
    texts = []
    for spec in map(CorpusSpec.parse, specs):
        text = Text(spec, *filter_pairs(read_pairs(spec.files, languages)))
        if not text.pairs:
            raise CorpusError(f"no pair of {spec.files[0]} is left after filtering ({text.told()})")
        texts.append(text)
    return texts


def encode(
    text: Text, tokenizer: Tokenizer, config: TrainConfig, placeholder_fraction: float, console: Console
) -> tuple[Text, Corpus]:
    """Tokens, and the text that is really learned from: `Batches` leaves out what has too many of them."""
    corpus = tokenize(text.pairs, text.spec, tokenizer, placeholder_fraction, config.seed)
    fits = corpus.fits(config.max_tokens)[: corpus.num_plain]
    kept = [pair for pair, fit in zip(text.pairs, fits.tolist(), strict=True) if fit]
    too_long = Counter({f"over {config.max_tokens} tokens": len(text.pairs) - len(kept)})
    used = Text(text.spec, kept, text.dropped + too_long)
    console.print(used.told(), markup=False)
    if not kept:
        raise CorpusError(
            f"all pairs of {text.spec.files[0]} have more than {config.max_tokens} tokens on a side: "
            "split them into sentences, or give a higher --max-tokens"
        )
    return used, corpus


def find_tokenizer(recipe: Recipe, texts: list[Text]) -> Tokenizer:
    """The run's own, the one given, the initial weights' own, or a new one learned from the text."""
    own = recipe.folder / TOKENIZER
    if own.exists():
        tokenizer = read_tokenizer(own)
        refuse_another_tokenizer(recipe, tokenizer)
        return tokenizer
    if recipe.tokenizer:
        tokenizer = read_tokenizer(recipe.tokenizer)
    elif recipe.init:
        tokenizer = load_model(recipe.init).tokenizer
    else:
        return learn_tokenizer(recipe, texts)
    if recipe.vocab_size not in (None, tokenizer.vocab_size):
        raise CorpusError(
            f"the tokenizer of {recipe.tokenizer or recipe.init} has {tokenizer.vocab_size} pieces: "
            f"leave --vocab-size {recipe.vocab_size} out"
        )
    return tokenizer


def read_tokenizer(path: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer(path.read_bytes())
    except (OSError, RuntimeError) as error:
        raise CorpusError(f"{path} is not a SentencePiece model: {error}") from error
    if not tokenizer.is_ours():
        raise CorpusError(
            f"{path} was not made by Dragoman: its special pieces have other numbers, or some are missing; "
            "leave --tokenizer out to learn one"
        )
    return tokenizer


def refuse_another_tokenizer(recipe: Recipe, own: Tokenizer) -> None:
    """What a run's weights know is about the pieces of its own."""
    if recipe.tokenizer and read_tokenizer(recipe.tokenizer).model != own.model:
        asked = f"that of {recipe.tokenizer}"
    elif recipe.vocab_size not in (None, own.vocab_size):
        asked = f"of {recipe.vocab_size}"
    else:
        return
    raise CorpusError(
        f"{recipe.folder} has a tokenizer of {own.vocab_size} pieces of its own, not {asked}: use a new run folder"
    )


def learn_tokenizer(recipe: Recipe, texts: list[Text]) -> Tokenizer:
    if (recipe.folder / STATE).exists():  # the first versions kept no copy of a tokenizer that was given
        raise CorpusError(f"{recipe.folder} has a run but no tokenizer: give the --tokenizer that it was begun with")
    lines = [side for text in texts for pair in text.pairs[:TOKENIZER_LINES_PER_CORPUS] for side in pair]
    random.Random(1).shuffle(lines)
    size = recipe.vocab_size or PRESETS[recipe.shape].vocab_size
    return Tokenizer(train_tokenizer(lines, size, recipe.languages))


def keep_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    """In a new run only: what an old one lacks may not be what it was begun with."""
    if not (folder / TOKENIZER).exists() and not (folder / STATE).exists():
        write_atomically(folder / TOKENIZER, lambda temporary: temporary.write_bytes(tokenizer.model) and None)


def new_model(recipe: Recipe, tokenizer: Tokenizer, ways: list[Direction]) -> SavedModel:
    pairs = [{"source": d.source, "target": d.target, "source_prefix_ids": list(d.prefix_ids)} for d in ways]
    if recipe.init is None:
        changes = {} if recipe.dropout is None else {"dropout": recipe.dropout}
        config = preset(recipe.shape, vocab_size=tokenizer.vocab_size, **changes)
        return SavedModel(Transformer(config), tokenizer, pairs, {"preset": recipe.shape}, recipe.languages)
    saved = load_model(recipe.init)
    if saved.tokenizer.model != tokenizer.model:
        raise SavedModelError(f"{recipe.init} was trained with another tokenizer than this run's; use a new run folder")
    network = saved.network if recipe.dropout is None else with_dropout(saved.network, recipe.dropout)
    facts = {
        "preset": saved.training.get("preset"),
        "initialized_from": saved.training,
        INITIAL_WEIGHTS: hashlib.sha256(recipe.init.read_bytes()).hexdigest(),
    }
    return SavedModel(network, tokenizer, pairs, facts, recipe.languages)


def refuse_more_than_positions(config: TrainConfig, max_positions: int) -> None:
    room = max_positions - EXTRA_TOKENS
    if config.max_tokens > room:
        raise CorpusError(f"--max-tokens {config.max_tokens} is more than this network can read: give {room} or less")


def with_dropout(network: Transformer, rate: float) -> Transformer:
    """The same weights in a network that drops more or less of what passes."""
    changed = Transformer(replace(network.config, dropout=rate))
    changed.load_state_dict(network.state_dict())
    return changed


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
    pairs = recipe.directions()
    texts = read_texts(recipe.corpora, recipe.languages)
    (valid,) = read_texts([recipe.valid], recipe.languages)
    tokenizer = find_tokenizer(recipe, texts)
    ways = directions(pairs, recipe.languages, tokenizer)
    torch.manual_seed(config.seed)
    saved = new_model(recipe, tokenizer, ways)
    refuse_more_than_positions(config, saved.config.max_positions)
    encoded = [encode(text, tokenizer, config, config.placeholder_fraction, console) for text in texts]
    valid, valid_corpus = encode(valid, tokenizer, config, 0.0, console)
    keep_tokenizer(recipe.folder, tokenizer)  # only now: one that does not fit must not stay in the folder
    saved.training.update(train_config=config.to_dict(), corpora=corpora_facts([text for text, _ in encoded]))
    corpora = [corpus for _, corpus in encoded]
    valid_pairs = [(b, a) if ways[0].swapped else (a, b) for a, b in valid.pairs]
    return Trainer(
        recipe.folder,
        saved,
        Batches(corpora, ways, config.batch_tokens, config.join_fraction, config.max_tokens, config.seed),
        Batches([valid_corpus], ways, config.batch_tokens, max_tokens=config.max_tokens, seed=config.seed),
        valid_pairs,
        config,
        Workers(),
        console,
    )


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


def corpora_facts(texts: list[Text]) -> list[dict[str, object]]:
    return [
        {
            "files": [path.name for path in text.spec.files],
            "pairs": len(text.pairs),
            "dropped": dict(text.dropped),
            "weight": text.spec.weight,
            "machine_made": text.spec.machine,
            "into": text.spec.into,
        }
        for text in texts
    ]


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
    preset_name: Annotated[
        str | None, typer.Option("--preset", help=f"{', '.join(PRESETS)}; without, {DEFAULT_PRESET}")
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="use this SentencePiece model instead of learning one")] = None,
    vocab_size: Annotated[int | None, typer.Option(min=1, help="pieces of a new tokenizer")] = None,
    init: Annotated[Path | None, typer.Option(help="start from these weights, with a fresh optimizer")] = None,
    dropout: Annotated[float | None, typer.Option(help="instead of the preset's, or the initial weights'")] = None,
    batch_tokens: Annotated[int, typer.Option(help="tokens of one forward pass")] = TrainConfig.batch_tokens,
    accumulate: Annotated[int, typer.Option(help="forward passes per update")] = TrainConfig.accumulate,
    max_steps: Annotated[int, typer.Option(help="updates to make")] = TrainConfig.max_steps,
    peak_lr: Annotated[float, typer.Option(help="the highest learning rate")] = TrainConfig.peak_lr,
    warmup_steps: Annotated[int, typer.Option(help="updates until the rate is at its peak")] = TrainConfig.warmup_steps,
    decay_from: Annotated[
        int, typer.Option(help="step up to which the rate stays at its peak")
    ] = TrainConfig.decay_from,
    optimizer: Annotated[OptimizerKind, typer.Option(help="adam, or muon for matrices")] = TrainConfig.optimizer,
    precision: Annotated[Precision, typer.Option(help="bf16 for CPUs that have it")] = TrainConfig.precision,
    cooldown_steps: Annotated[int, typer.Option(help="of the rate's fall to zero")] = TrainConfig.cooldown_steps,
    validate_every: Annotated[int, typer.Option(help="in updates")] = TrainConfig.validate_every,
    patience: Annotated[int, typer.Option(help="validations without a better loss")] = TrainConfig.patience,
    average: Annotated[int, typer.Option(help="best checkpoints averaged into the model")] = TrainConfig.average,
    scored_sentences: Annotated[int, typer.Option(help="of --valid, for BLEU; 0: none")] = TrainConfig.scored_sentences,
    join_fraction: Annotated[float, typer.Option(help="of pairs joined into longer ones")] = TrainConfig.join_fraction,
    placeholder_fraction: Annotated[float, typer.Option(help="of pairs")] = TrainConfig.placeholder_fraction,
    max_tokens: Annotated[int, typer.Option(help="longer pairs are dropped")] = TrainConfig.max_tokens,
    checkpoint_seconds: Annotated[float, typer.Option(help="what a crash may cost")] = TrainConfig.checkpoint_seconds,
    seed: Annotated[int, typer.Option()] = TrainConfig.seed,
    threads: Annotated[int, typer.Option(min=1, help="threads of this process")] = 1,
) -> None:
    """Train a Transformer on parallel text. Started again with the same folder, it resumes."""
    given = locals()  # the options that are fields of TrainConfig, without spelling each a third time
    console = Console(stderr=True, soft_wrap=True)
    torch.set_num_threads(threads)
    keep_freed_memory()
    try:
        config = TrainConfig(**{f.name: given[f.name] for f in fields(TrainConfig) if f.name in given})
        sides = tuple(languages.split(","))
        recipe = Recipe(
            folder, sides, tuple(pair), tuple(corpus), valid, preset_name, tokenizer, vocab_size, dropout, init
        )
        trainer, result = follow(recipe, config, console)
    except (CorpusError, SavedModelError, TrainingError, ValueError) as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(1) from error
    trainer.workers.part()
    if trainer.workers.is_first:
        console.print(ending(trainer, result))


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
