"""Training speed against the obvious loop of `nn.Transformer`: same data, same size, alternately, in one run.

    python bench/training.py train.pt train.en [--threads 1] [--updates 20]

Counts real source + target tokens (padding is not work that anyone asked for) per second of CPU time and of wall time.
The obvious loop is what a tutorial shows: shuffled sentences in batches of a fixed count, padded to the longest, masks
for everything, logits for every position, torch's own modules.
"""

import json
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from model.batches import Batches, directions, pad
from model.config import TransformerConfig, preset
from model.corpus import Corpus, CorpusSpec, filter_pairs, read_pairs, tokenize
from model.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer, train_tokenizer
from model.train import keep_freed_memory
from model.trainer import summed_loss
from model.transformer import Transformer, sinusoids

Work = Callable[[], int]  # one update; returns the real tokens that it saw


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


def tutorial_updates(corpus: Corpus, config: TransformerConfig, tokens_per_update: int) -> Iterator[int]:
    network = Tutorial(config).train()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD_ID, label_smoothing=0.1)
    order = list(range(corpus.num_plain))
    random.Random(1).shuffle(order)
    mean = (len(corpus.first.flat) + len(corpus.second.flat)) / len(corpus.first) + 2
    size = max(1, round(tokens_per_update / mean))  # as many real tokens per update as ours
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
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
    for start in range(0, len(epoch) - 1, 2):
        tokens = 0
        for items in epoch[start : start + 2]:
            batch = batches.batch(items)
            summed_loss(network, batch, 0.1).backward()
            tokens += batch.num_tokens
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield tokens


def measure(updates: Iterator[int], count: int) -> tuple[float, float]:
    """Tokens per second of CPU time, and of wall time."""
    cpu, wall, tokens = time.process_time(), time.perf_counter(), 0
    for _ in range(count):
        tokens += next(updates)
    return tokens / (time.process_time() - cpu), tokens / (time.perf_counter() - wall)


def main(
    source: Annotated[Path, typer.Argument()],
    target: Annotated[Path, typer.Argument()],
    threads: Annotated[int, typer.Option()] = 1,
    updates: Annotated[int, typer.Option(help="updates per round")] = 8,
    rounds: Annotated[int, typer.Option()] = 4,
    tokenizer_path: Annotated[Path | None, typer.Option("--tokenizer")] = None,
    out: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    torch.set_num_threads(threads)
    keep_freed_memory()  # for both: it is the process's
    spec = CorpusSpec((source, target))
    pairs, _ = filter_pairs(read_pairs(spec.files))
    model = tokenizer_path.read_bytes() if tokenizer_path else None
    tokenizer = Tokenizer(model or train_tokenizer([side for pair in pairs for side in pair], 8000, ["pt", "en"]))
    corpus = tokenize(pairs, spec, tokenizer, 0.0, 1)
    config = preset("small", vocab_size=tokenizer.vocab_size)
    runs = {"obvious": tutorial_updates(corpus, config, 3200), "ours": our_updates(corpus, tokenizer, config, 3200)}
    for run in runs.values():
        next(run)  # warm-up
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            results[name].append(measure(run, updates))
    report(results, out)


def report(results: dict[str, list[tuple[float, float]]], out: Path | None) -> None:
    table = Table("loop", "tokens per CPU second", "tokens per second", title="training, small, real tokens")
    medians: dict[str, Any] = {}
    for name, rows in results.items():
        medians[name] = [statistics.median(column) for column in zip(*rows, strict=True)]
        table.add_row(name, *(f"{value:.0f}" for value in medians[name]))
    ratios = [ours / theirs for ours, theirs in zip(medians["ours"], medians["obvious"], strict=True)]
    table.add_row("ratio", *(f"{ratio:.2f}" for ratio in ratios))
    Console().print(table)
    if out:
        out.write_text(json.dumps({"median": medians, "ratio": ratios, "rounds": results}, indent=1))


if __name__ == "__main__":
    typer.run(main)
