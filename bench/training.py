"""Training speed against the obvious loop of `nn.Transformer`: same data, same size, alternately, in one run.

    python -m bench.training train.pt train.en [--tokens 20000] [--rounds 4]

Counts real source + target tokens (padding is not work that anyone asked for) per second of CPU time, on one thread.
The obvious loop is what a tutorial shows: shuffled sentences in batches of a fixed count, padded to the longest, masks
for everything, logits for every position, torch's own modules.
"""

import math
import random
import statistics
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from torch import Tensor, nn

from bench.harness import (
    REPORTS,
    Cell,
    Out,
    Profile,
    Ratio,
    Report,
    Table,
    command_line,
    cpu_seconds,
    save,
    show,
    spread,
    steps,
    timed,
)
from dragoman.model.batches import Batches, directions, pad
from dragoman.model.corpus import CorpusSpec, Side, pairs_of
from dragoman.model.network_config import TransformerConfig, preset
from dragoman.model.shards import Corpus, ShardOptions, encode_pairs, encoded_corpus, filter_pairs
from dragoman.model.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer, train_tokenizer
from dragoman.model.train import keep_freed_memory
from dragoman.model.trainer import summed_loss
from dragoman.model.transformer import Transformer, sinusoids

BAR = 1.5
OURS = "ours"
TOKENS_PER_UPDATE = 3200
BATCHES = (8, 16, 32, 64)  # sentences; the obvious loop takes the one that is fastest for it


class Tutorial(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.d_model, padding_idx=PAD_ID)
        self.register_buffer("positions", sinusoids(config.max_positions, config.d_model))
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            config.d_model,
            config.num_heads,
            config.encoder_layers,
            config.decoder_layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
            norm_first=config.norm == "pre",
        )
        self.scale = math.sqrt(config.d_model)

    def embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.embedding(ids) * self.scale + self.positions[: ids.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        padding = source == PAD_ID
        hidden = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            tgt_key_padding_mask=torch.zeros_like(target, dtype=causal.dtype).masked_fill(target == PAD_ID, -math.inf),
            memory_key_padding_mask=padding,
        )
        return hidden @ self.embedding.weight.T  # [B, T, V]


def tutorial_updates(corpus: Corpus, config: TransformerConfig, sentences: int) -> Iterator[int]:
    network = Tutorial(config).train()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD_ID, label_smoothing=0.1)
    order = list(range(len(corpus.first)))
    random.Random(1).shuffle(order)
    for start in range(0, len(order), sentences):
        chosen = order[start : start + sentences]
        source = pad([[*corpus.first[i], EOS_ID] for i in chosen])
        target = pad([[BOS_ID, *corpus.second[i], EOS_ID] for i in chosen])
        optimizer.zero_grad()
        logits = network(source, target[:, :-1])
        criterion(logits.flatten(0, 1), target[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        yield int((source != PAD_ID).sum() + (target[:, 1:] != PAD_ID).sum())


def our_updates(
    corpus: Corpus, tokenizer: Tokenizer, config: TransformerConfig, tokens_per_update: int
) -> Iterator[int]:
    network = Transformer(config).train()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    batches = Batches([corpus], directions([("pt", "en")], ("pt", "en"), tokenizer), tokens_per_update // 2)
    epoch = batches.epoch(0)
    while update := list(islice(epoch, 2)):
        tokens = 0
        for items in update:
            batch = batches.batch(items)
            summed_loss(network, batch, 0.1).backward()
            tokens += batch.num_tokens
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield tokens


class Loop:
    """A training loop that is advanced by some updates at a time."""

    def __init__(self, updates: Iterator[int]) -> None:
        self._updates = updates
        self._tokens = 0

    def advance(self, tokens: int) -> None:
        """At least so many real tokens."""
        end = self._tokens + tokens
        while self._tokens < end:
            self._tokens += next(self._updates)

    def rate(self, tokens: int) -> float:
        """Tokens per CPU second; batches differ in size, so tokens are counted and not assumed."""
        before = self._tokens
        seconds = cpu_seconds(lambda: self.advance(tokens))
        return (self._tokens - before) / seconds


def loops(source: Path, target: Path, tokenizer_path: Path | None) -> dict[str, Loop]:
    """Ours, and the obvious one at every batch size."""
    spec = CorpusSpec((Side(source), Side(target)))
    pairs, _ = filter_pairs(pairs_of(spec))
    model = tokenizer_path.read_bytes() if tokenizer_path else None
    tokenizer = Tokenizer(model or train_tokenizer([side for pair in pairs for side in pair], 8000, ["pt", "en"]))
    corpus = encoded_corpus(encode_pairs(pairs, spec, tokenizer, ShardOptions(0.0, 1)), spec)
    config = preset("small", vocab_size=tokenizer.vocab_size)
    ours = Loop(our_updates(corpus, tokenizer, config, TOKENS_PER_UPDATE))
    return {OURS: ours} | {_name(size): Loop(tutorial_updates(corpus, config, size)) for size in BATCHES}


def _name(size: int) -> str:
    return f"nn.Transformer, {size} sentences"


def measure(contenders: dict[str, Loop], tokens: int, rounds: int, profile: Profile) -> dict[str, list[float]]:
    """Tokens per CPU second, round by round, in turn; of the obvious loops only the best goes beyond a first round."""
    rates: dict[str, list[float]] = {}
    with steps(profile, "training", len(contenders) + rounds) as begin:
        for name, loop in contenders.items():
            begin(f"{name}, first")
            loop.advance(1)
            rates[name] = [loop.rate(tokens)]
        best = max((name for name in contenders if name != OURS), key=lambda name: rates[name])
        found: dict[str, list[float]] = {OURS: [], best: []}
        for number in range(rounds):
            begin(f"round {number + 1}")
            for name in list(found) if number % 2 == 0 else reversed(found):
                found[name].append(contenders[name].rate(tokens))
    return found


def report(rates: dict[str, list[float]], tokens: int) -> Report:
    (_, ours), (peer, obvious) = rates.items()
    pairs = sorted(mine / theirs for mine, theirs in zip(ours, obvious, strict=True))
    ratio = Ratio(
        "training",
        peer,
        statistics.median(ours),
        statistics.median(obvious),
        "tokens per CPU second",
        statistics.median(pairs),
        pairs[0],
        pairs[-1],
        BAR,
        higher_is_better=True,
    )
    rows: list[list[Cell]] = [[name, spread(found)] for name, found in rates.items()]
    return Report(
        "training",
        "Training speed",
        [Table("Training, `small`", ["loop", "real tokens per CPU second"], rows)],
        [ratio],
        notes=[
            f"One thread, rounds of {tokens} real tokens in turn; padding is not counted. The obvious loop shuffles "
            "sentences into batches of a fixed count, the fastest that was tried, pads to the longest, and computes "
            f"logits for every position. Ours updates after {TOKENS_PER_UPDATE} tokens."
        ],
    )


app = command_line()


@app.command(help=(__doc__ or "").split("\n")[0])
def main(
    source: Annotated[Path, typer.Argument(help="training text, a sentence a line")],
    target: Annotated[Path, typer.Argument(help="its translation, line by line")],
    tokens: Annotated[int, typer.Option(help="tokens of a round, for each loop")] = 20_000,
    rounds: Annotated[int, typer.Option(help="rounds of each loop")] = 4,
    tokenizer: Annotated[
        Path | None, typer.Option(help="SentencePiece model (without it, one is trained first)")
    ] = None,
    out: Out = REPORTS,
) -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="enable_nested_tensor")  # a hint about inference
    keep_freed_memory()  # for both: it is the process's
    contenders = loops(source, target, tokenizer)

    def run(profile: Profile) -> Report:
        return report(measure(contenders, tokens, rounds, profile), tokens)

    found = timed(run, Profile("full"))
    show(found, Console())
    save(found, out)


if __name__ == "__main__":
    app()
