"""What a run learns from what, and with which tokenizer and weights it begins. How it learns is `TrainConfig`."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from dragoman.model.batches import EXTRA_TOKENS, Direction
from dragoman.model.checkpoint import INITIAL_WEIGHTS, STATE
from dragoman.model.corpus import CorpusSpec
from dragoman.model.dataset import sample_lines
from dragoman.model.graft import graft
from dragoman.model.network_config import PRESETS, preset
from dragoman.model.saved import SavedModel, load_model, write_atomically
from dragoman.model.text import CorpusError
from dragoman.model.tokenizer import Tokenizer, train_tokenizer
from dragoman.model.train_options import TrainConfig
from dragoman.model.transformer import Transformer

TOKENIZER = "tokenizer.model"  # the name in the run folder
DEFAULT_PRESET = "small"


@dataclass(frozen=True)
class Recipe:
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
    shards: Path | None = None  # where tokenized text is kept; None: in the run's folder

    def __post_init__(self) -> None:
        if len(self.languages) != 2:
            raise CorpusError("--languages names the two sides of the corpora, such as pt,en")
        preset(self.shape)  # raises where there is none of this name
        targets = [target for _, target in self.directions()]
        for spec in map(CorpusSpec.parse, self.corpora):
            for key, known in (("machine", self.languages), ("into", targets)):
                if (language := getattr(spec, key)) not in (None, *known):
                    raise CorpusError(f"{key}={language} of {spec.name} is none of {', '.join(known)}")
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


def find_tokenizer(recipe: Recipe) -> Tokenizer:
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
        return learn_tokenizer(recipe)
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


def learn_tokenizer(recipe: Recipe) -> Tokenizer:
    if (recipe.folder / STATE).exists():  # the first versions kept no copy of a tokenizer that was given
        raise CorpusError(f"{recipe.folder} has a run but no tokenizer: give the --tokenizer that it was begun with")
    specs = [CorpusSpec.parse(text) for text in recipe.corpora]
    lines = sample_lines(specs, recipe.languages)
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
    network = begun_from(saved, recipe, tokenizer)
    facts = {
        "preset": recipe.preset or saved.training.get("preset"),
        "initialized_from": saved.training,
        INITIAL_WEIGHTS: hashlib.sha256(recipe.init.read_bytes()).hexdigest(),
    }
    return SavedModel(network, tokenizer, pairs, facts, recipe.languages)


def begun_from(saved: SavedModel, recipe: Recipe, tokenizer: Tokenizer) -> Transformer:
    """The given weights, with other pieces, wider layers or another dropout where the recipe asks for them."""
    shape = preset(recipe.preset) if recipe.preset else saved.config
    dropout = saved.config.dropout if recipe.dropout is None else recipe.dropout
    config = replace(shape, vocab_size=tokenizer.vocab_size, dropout=dropout)
    if saved.tokenizer.model != tokenizer.model or config != replace(saved.config, dropout=dropout):
        return graft(saved, tokenizer, config)
    return with_dropout(saved.network, dropout)


def refuse_more_than_positions(config: TrainConfig, max_positions: int) -> None:
    room = max_positions - EXTRA_TOKENS
    if config.max_tokens > room:
        raise CorpusError(f"--max-tokens {config.max_tokens} is more than this network can read: give {room} or less")


def with_dropout(network: Transformer, rate: float) -> Transformer:
    """The same weights in a network that drops more or less of what passes."""
    changed = Transformer(replace(network.config, dropout=rate))
    changed.load_state_dict(network.state_dict())
    return changed
