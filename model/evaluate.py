"""Reference greedy and beam search in torch, and scores by sacrebleu. The product decodes in `service/engine`.

Clear rather than fast: every step runs the whole decoder over the tokens so far. What it computes is the definition
that the exported graphs and the engine are tested against.

    dragoman-evaluate runs/pt-en/model.safetensors test.pt test.en --beam 4
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import sacrebleu
import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from dragoman.model.batches import pad
from dragoman.model.corpus import has_header, read_pairs
from dragoman.model.hypothesis import DEFAULT_ALPHA, Hypothesis, default_limit, length_penalty
from dragoman.model.saved import SavedModel, SavedModelError, load_model
from dragoman.model.text import CorpusError
from dragoman.model.tokenizer import BOS_ID, EOS_ID
from dragoman.model.transformer import Transformer, source_mask

LENGTH_BUCKETS = (10, 20, 40)  # source words; the last bucket holds what is longer


@torch.inference_mode()
def greedy(
    network: Transformer, sources: Sequence[Sequence[int]], max_new_tokens: Sequence[int], alpha: float = DEFAULT_ALPHA
) -> list[Hypothesis]:
    source = pad(sources)  # [B, S]
    mask = source_mask(source)
    memory = network.encode(source, mask)  # [B, S, d]
    target = torch.full((len(sources), 1), BOS_ID)  # [B, 1 + generated]
    limits, rows = torch.tensor(max_new_tokens), torch.arange(len(sources))  # rows: whose sentence each one is
    generated: list[tuple[list[int], list[float]]] = [([], []) for _ in sources]
    while len(rows):
        log_probs = network.logits(network.decode(target, memory, mask)[:, -1]).log_softmax(-1)  # [live, V]
        best, ids = log_probs.max(-1)
        for row, token, log_prob in zip(rows.tolist(), ids.tolist(), best.tolist(), strict=True):
            generated[row][0].append(token)
            generated[row][1].append(log_prob)
        live = (ids != EOS_ID) & (target.shape[1] < limits[rows])  # ended rows leave, the others go on
        target, memory, rows = torch.cat([target, ids[:, None]], 1)[live], memory[live], rows[live]
        mask = None if mask is None else mask[live]
    return [_greedy_hypothesis(ids, log_probs, alpha) for ids, log_probs in generated]


def _greedy_hypothesis(ids: list[int], log_probs: list[float], alpha: float) -> Hypothesis:
    finished = ids[-1] == EOS_ID
    score = sum(log_probs) / length_penalty(len(ids), alpha)
    return Hypothesis(ids[:-1] if finished else ids, log_probs, score, finished)


@dataclass(frozen=True)
class _Live:
    ids: list[int]
    log_probs: list[float]
    total: float


@torch.inference_mode()
def beam(
    network: Transformer,
    sources: Sequence[Sequence[int]],
    max_new_tokens: Sequence[int],
    beam_size: int = 4,
    alpha: float = DEFAULT_ALPHA,
) -> list[list[Hypothesis]]:
    """For every source its hypotheses, best first."""
    return [_beam_one(network, s, limit, beam_size, alpha) for s, limit in zip(sources, max_new_tokens, strict=True)]


def _beam_one(network: Transformer, source: Sequence[int], limit: int, size: int, alpha: float) -> list[Hypothesis]:
    memory = network.encode(torch.tensor([list(source)]), None)  # [1, S, d]
    live, done = [_Live([], [], 0.0)], []
    for _ in range(limit):
        target = torch.tensor([[BOS_ID, *hypothesis.ids] for hypothesis in live])  # [live, T]
        hidden = network.decode(target, memory.expand(len(live), -1, -1), None)[:, -1]
        live, ended = _advance(live, network.logits(hidden).log_softmax(-1), size, alpha)
        done += ended
        if len(done) >= size:
            break
    unfinished = [_unfinished(h, alpha) for h in live] if len(done) < size else []
    ranked = sorted(done, key=lambda h: -h.score) + sorted(unfinished, key=lambda h: -h.score)
    return ranked[:size]


def _unfinished(live: _Live, alpha: float) -> Hypothesis:
    return Hypothesis(live.ids, live.log_probs, live.total / length_penalty(len(live.log_probs), alpha), False)


def _advance(live: list[_Live], log_probs: Tensor, size: int, alpha: float) -> tuple[list[_Live], list[Hypothesis]]:
    """log_probs [live, V]: of the best 2 x size continuations, those in eos end, the others live on."""
    values, ids = log_probs.topk(min(2 * size, log_probs.shape[-1]))  # [live, 2 x size]
    candidates = [
        (live[row].total + float(values[row, rank]), row, rank)
        for row in range(len(live))
        for rank in range(values.shape[1])
    ]
    candidates.sort(key=lambda candidate: (-candidate[0], candidate[1], candidate[2]))
    following: list[_Live] = []
    ended: list[Hypothesis] = []
    for place, (total, row, rank) in enumerate(candidates[: 2 * size]):
        token, log_prob = int(ids[row, rank]), float(values[row, rank])
        steps = [*live[row].log_probs, log_prob]
        if token != EOS_ID and len(following) < size:
            following.append(_Live([*live[row].ids, token], steps, total))
        elif token == EOS_ID and place < size:
            ended.append(Hypothesis(live[row].ids, steps, total / length_penalty(len(steps), alpha), True))
    return following, ended


def translate(
    saved: SavedModel, texts: Sequence[str], pair: dict[str, Any], beam_size: int, rows: int = 64
) -> Iterator[tuple[int, Hypothesis]]:
    """(index, best hypothesis) of every text, in an order that pads little."""
    prefix = list(pair["source_prefix_ids"])
    sources = [prefix + ids + [EOS_ID] for ids in saved.tokenizer.encode_batch(texts)]
    order = sorted(range(len(texts)), key=lambda i: len(sources[i]))
    for start in range(0, len(order), rows):
        chunk = order[start : start + rows]
        batch = [sources[i] for i in chunk]
        limits = [default_limit(ids, saved.config.max_positions) for ids in batch]
        if beam_size == 1:
            best = greedy(saved.network, batch, limits)
        else:
            best = [hypotheses[0] for hypotheses in beam(saved.network, batch, limits, beam_size)]
        yield from zip(chunk, best, strict=True)


def find_pair(saved: SavedModel, name: str | None) -> dict[str, Any]:
    names = {f"{pair['source']}-{pair['target']}": pair for pair in saved.pairs}
    if name is None and len(names) == 1:
        return saved.pairs[0]
    if name not in names:
        raise CorpusError(f"this model translates {', '.join(names)}; name one of them with --pair")
    return names[name]


def score(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    bleu, chrf = sacrebleu.metrics.BLEU(), sacrebleu.metrics.CHRF()
    return {
        "sentences": len(hypotheses),
        "bleu": round(bleu.corpus_score(hypotheses, [references]).score, 2),
        "chrf": round(chrf.corpus_score(hypotheses, [references]).score, 2),
        "bleu_signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
    }


def score_by_length(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
) -> dict[str, dict[str, Any]]:
    buckets: dict[str, list[int]] = {f"up to {limit} words": [] for limit in LENGTH_BUCKETS} | {"longer": []}
    names = list(buckets)
    for i, source in enumerate(sources):
        words = len(source.split())
        buckets[names[sum(words > limit for limit in LENGTH_BUCKETS)]].append(i)
    return {
        name: score([hypotheses[i] for i in members], [references[i] for i in members])
        for name, members in buckets.items()
        if members
    }


def worst(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], count: int
) -> list[dict[str, Any]]:
    chrf = [sacrebleu.sentence_chrf(h, [r]).score for h, r in zip(hypotheses, references, strict=True)]
    order = sorted(range(len(chrf)), key=lambda i: chrf[i])[:count]
    return [
        {"chrf": round(chrf[i], 1), "source": sources[i], "translation": hypotheses[i], "reference": references[i]}
        for i in order
    ]


def evaluate(
    saved: SavedModel,
    pairs: Sequence[tuple[str, str]],
    pair: dict[str, Any],
    beam_size: int,
    num_worst: int = 10,
    quiet: bool = False,
) -> dict[str, Any]:
    sources, references = [a for a, _ in pairs], [b for _, b in pairs]
    texts = [""] * len(pairs)
    results = translate(saved, sources, pair, beam_size)
    for i, hypothesis in track(
        results, f"beam {beam_size}", total=len(pairs), console=Console(stderr=True), disable=quiet
    ):
        texts[i] = saved.tokenizer.decode(hypothesis.ids)
    return {
        "beam": beam_size,
        **score(texts, references),
        "by_length": score_by_length(sources, texts, references),
        "worst": worst(sources, texts, references, num_worst),
    }


@dataclass(frozen=True)
class HeldOutText:
    """Sources and references, with the line of the file that the first of them stands in."""

    pairs: list[tuple[str, str]]
    first_line: int = 1


def read_test(source: Path, reference: Path | None, saved: SavedModel, pair: dict[str, Any]) -> HeldOutText:
    wanted = pair["source"], pair["target"]
    if reference is not None:
        return HeldOutText(read_pairs([source, reference]))
    if source.suffix != ".tsv":
        raise CorpusError(
            f"the reference file is missing: give the translations of {source} after it; only a .tsv has both"
        )
    if has_header(source, wanted):
        return HeldOutText(read_pairs([source], wanted), first_line=2)
    pairs = read_pairs([source])
    if columns_of(saved, source, wanted)[0] == wanted[0]:
        return HeldOutText(pairs)
    return HeldOutText([(second, first) for first, second in pairs])


def columns_of(saved: SavedModel, table: Path, languages: tuple[str, str]) -> tuple[str, ...]:
    """The languages of a table's columns where the table does not name them: in the order of training."""
    order = saved.languages or order_told_by_files(saved.training, languages)
    if sorted(order) != sorted(languages):
        raise CorpusError(
            f"{table} does not name its columns, and this model does not say in which order it was trained: "
            f"write a first line of {languages[0]} and {languages[1]}, in the order of the columns, with a tab between"
        )
    return order


def order_told_by_files(training: dict[str, Any], languages: tuple[str, str]) -> tuple[str, ...]:
    """Models of the first versions: whoever trained on a.pt,a.en had --languages pt,en; empty where that is unsure."""
    endings = [[Path(name).suffix[1:] for name in corpus["files"]] for corpus in training.get("corpora", [])]
    orders = {tuple(pair) for pair in endings if sorted(pair) == sorted(languages)}
    return orders.pop() if len(orders) == 1 else ()


def leave_out_too_long(saved: SavedModel, text: HeldOutText, pair: dict[str, Any]) -> tuple[HeldOutText, list[int]]:
    """What the network has positions for, and the lines of the rest."""
    room = saved.config.max_positions - len(pair["source_prefix_ids"]) - 1  # the end of the sentence has one, too
    encoded = saved.tokenizer.encode_batch([source for source, _ in text.pairs])
    fits = [len(ids) <= room for ids in encoded]
    kept = [both for both, fit in zip(text.pairs, fits, strict=True) if fit]
    return HeldOutText(kept, text.first_line), [text.first_line + i for i, fit in enumerate(fits) if not fit]


def tell_left_out(source: Path, lines: Sequence[int], max_positions: int) -> str:
    numbers = ", ".join(map(str, lines))
    return (
        f"{source}, line {numbers}: more tokens than the {max_positions} that this network can read; "
        "left out of the scores: split it into sentences to have it scored"
    )


def prepare_report(out: Path | None) -> None:
    """Scoring takes minutes: what cannot be written fails before."""
    if out is None:
        return
    if out.is_dir():
        raise CorpusError(f"{out} is a folder: give --json the name of a file, such as {out / 'report.json'}")
    out.parent.mkdir(parents=True, exist_ok=True)


def show(report: dict[str, Any], console: Console) -> None:
    table = Table(title=f"beam {report['beam']}: BLEU {report['bleu']}, chrF {report['chrf']}")
    for column in ("source length", "sentences", "BLEU", "chrF"):
        table.add_column(column)
    for name, row in report["by_length"].items():
        table.add_row(name, str(row["sentences"]), str(row["bleu"]), str(row["chrf"]))
    console.print(table, f"{report['bleu_signature']}\n{report['chrf_signature']}", sep="\n")
    for row in report["worst"]:
        console.print(
            f"chrF {row['chrf']:5.1f}  {row['source']}\n  got  {row['translation']}\n  want {row['reference']}",
            markup=False,
        )


def run(
    model: Annotated[Path, typer.Argument(help="a saved model, .safetensors")],
    source: Annotated[Path, typer.Argument(help="source sentences, one a line; or a .tsv with both sides")],
    reference: Annotated[Path | None, typer.Argument(help="their translations, one a line")] = None,
    pair: Annotated[str | None, typer.Option(help="for a model of several pairs: which one, such as pt-en")] = None,
    beams: Annotated[list[int], typer.Option("--beam", min=1, help="beam size; may be given several times")] = [1, 4],  # noqa: B006
    limit: Annotated[int | None, typer.Option(min=1, help="score only the first N sentences")] = None,
    threads: Annotated[int, typer.Option(min=1, help="threads of torch")] = 1,
    worst_sentences: Annotated[int, typer.Option("--worst", help="how many of the worst to show")] = 10,
    out: Annotated[Path | None, typer.Option("--json", help="also write the report here")] = None,
) -> None:
    """Score a trained model with sacrebleu: BLEU and chrF, by source length, and the worst sentences."""
    torch.set_num_threads(threads)
    console = Console(stderr=True)
    try:
        saved = load_model(model)
        chosen = find_pair(saved, pair)
        text = read_test(source, reference, saved, chosen)
        text, too_long = leave_out_too_long(saved, replace(text, pairs=text.pairs[:limit]), chosen)
        if too_long:
            told = tell_left_out(source, too_long, saved.config.max_positions)
            console.print(told, style="yellow", markup=False, soft_wrap=True)
        if not text.pairs:
            raise CorpusError(f"no line of {source} is left to score")
        prepare_report(out)
    except (CorpusError, SavedModelError, OSError) as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        raise typer.Exit(1) from error
    reports = [evaluate(saved, text.pairs, chosen, size, worst_sentences) for size in beams]
    for report in reports:
        show(report, Console())
    if out is not None:
        told_all = [report | {"lines_left_out": too_long} for report in reports]
        out.write_text(json.dumps(told_all, ensure_ascii=False, indent=1))


def main() -> None:
    typer.run(run)


if __name__ == "__main__":
    main()
