"""One sentence at a time, ours against CTranslate2 on the same weights: how long a caller waits for 5, 20, 60 tokens.

    python -m bench.latency [quick | full] [--sources FILE]

Wall time from text to text on one thread and one core, nothing else in the batch; the next sentence is given when the
last one is there. Sentences have exactly so many source tokens: found in the file, or joined and cut at a word. All
translate the same sentences in turn, so that a pair is one sentence at about one moment.
"""

import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.harness import (
    Cell,
    Figure,
    Profile,
    Ratio,
    Report,
    Table,
    Work,
    alternate,
    collected,
    command,
    faster,
    percentile,
    pinned,
    slower,
    steps,
    wall_seconds,
)
from bench.models import Subject, random_subject, shipped
from bench.peers.ctranslate2 import TYPES, CTranslate2
from bench.peers.huggingface import HuggingFace, convert
from bench.peers.ort_concat import OrtConcat
from bench.peers.ours import Ours
from bench.peers.peer import MAX_TOKENS, Peer, fastest, work
from bench.peers.torch_eager import TorchEager
from bench.texts import of_length, sentences
from dragoman.model.network_config import PRESETS
from dragoman.service.bundles.manifest import Limits

LENGTHS = (5, 20, 60)  # source tokens
BAR = 0.5  # of the latency
FILE_BAR = 1.5  # of the rate
RANDOM_TOKENS = 12
COLUMNS = ["model", "source tokens", "who", "median ms", "p95 ms"]


class Latency:
    """One run of the benchmark on one model."""

    def __init__(
        self, profile: Profile, subject: Subject, folder: Path, name: str, max_tokens: int = MAX_TOKENS
    ) -> None:
        self.profile, self.subject, self.folder, self.name, self.max_tokens = profile, subject, folder, name, max_tokens
        self.rows: list[list[Cell]] = []
        self.ratios: list[Ratio] = []
        self.curves: dict[str, list[list[float]]] = {}

    def measure(self, texts: Sequence[str], tokens: int, others: Sequence[Peer]) -> None:
        ours = Ours(self.subject.bundle, rows=8, max_tokens=self.max_tokens)
        theirs = self._best(texts)
        seconds = self._in_turn([ours, theirs, *others], texts)
        for name, values in seconds.items():
            median, p95 = 1000 * statistics.median(values), 1000 * percentile(values, 95)
            self.rows.append([self.name, tokens, name, round(median, 3), round(p95, 3)])
            kind = name.split(",")[0]
            self.curves.setdefault(f"{self.name}: {kind}", []).append([tokens, median])
        for peer in (theirs, *others):
            bar = BAR if peer is theirs else None
            milliseconds = [[1000 * s for s in seconds[name]] for name in (ours.name, peer.name)]
            what = f"one at a time, {tokens} tokens, {self.name}"
            self.ratios.append(slower(what, peer.name, *milliseconds, "ms", bar))

    def measure_file(self, texts: Sequence[str], runs: int) -> None:
        """Sentences as they come, one after another: how many in a second of CPU time."""
        ours, theirs = Ours(self.subject.bundle, rows=8, max_tokens=self.max_tokens), self._best(texts)
        works = {peer.name: _one_by_one(peer, self.subject, texts) for peer in (ours, theirs)}
        seconds = alternate(works, runs)
        what, pair = f"a file one sentence at a time, {self.name}", (seconds[ours.name], seconds[theirs.name])
        self.ratios.append(faster(what, theirs.name, *pair, len(texts), "sentences per CPU second", FILE_BAR))

    def _best(self, texts: Sequence[str]) -> Peer:
        """CTranslate2 at the type that is its fastest for one sentence."""
        types = self.profile.choose(("int8",), TYPES)
        candidates = [CTranslate2(self.subject.saved, self.folder, t, 1, max_tokens=self.max_tokens) for t in types]
        return fastest(candidates, lambda p: work(p, self.subject.tokenizer, texts[:3], 1), runs=3)

    def _in_turn(self, peers: Sequence[Peer], texts: Sequence[str]) -> dict[str, list[float]]:
        """Seconds of every sentence for every peer; the order turns around from sentence to sentence."""
        seconds: dict[str, list[float]] = {peer.name: [] for peer in peers}
        works = {(peer.name, text): work(peer, self.subject.tokenizer, [text], 1) for peer in peers for text in texts}
        for peer in peers:
            works[peer.name, texts[0]]()
        for number, text in enumerate(list(texts) * (self.profile.runs or 1)):
            for peer in peers if number % 2 == 0 else reversed(peers):
                works[peer.name, text]()  # its weights back into the caches, which the others emptied
                seconds[peer.name].append(wall_seconds(works[peer.name, text]))
        return seconds


def _one_by_one(peer: Peer, subject: Subject, texts: Sequence[str]) -> Work:
    works = [work(peer, subject.tokenizer, [text], 1) for text in texts]
    return lambda: [each() for each in works]


def _others(profile: Profile, subject: Subject, folder: Path) -> list[Peer]:
    """In the full run, everyone else too."""
    if profile.quick:
        return []
    network = subject.saved.network
    plain: list[Peer] = [OrtConcat(network, folder / "ort", precision, 1) for precision in ("fp32", "int8")]
    return [HuggingFace(convert(subject.saved), 1), *plain, TorchEager(network, 1)]


def _trained(profile: Profile, folder: Path, begin: Callable[[str], None]) -> tuple[Subject, Latency]:
    subject = shipped(profile.model, profile.bundle)
    latency = Latency(profile, subject, folder, "shipped")
    texts = sentences(profile.sources, 4000, subject.bundle.pairs[0].source)
    others = _others(profile, subject, folder)
    with collected():
        for tokens in LENGTHS:
            begin(f"{tokens} tokens")
            latency.measure(of_length(subject.tokenizer, texts, tokens, profile.choose(25, 100)), tokens, others)
        begin("a file")
        file = subject.fitting(texts)[: profile.choose(150, 1500)]
        latency.measure_file(file, profile.runs or profile.choose(3, 5))
    return subject, latency


def _random_base(profile: Profile, shipped_subject: Subject, folder: Path, begin: Callable[[str], None]) -> Latency:
    subject = random_subject(PRESETS["base"], shipped_subject.tokenizer, Limits(96, 96))
    latency = Latency(profile, subject, folder, "random base", RANDOM_TOKENS)
    texts = sentences(profile.sources, 4000, "pt")
    with collected():
        for tokens in LENGTHS:
            begin(f"random base, {tokens} tokens")
            latency.measure(of_length(subject.tokenizer, texts, tokens, 40), tokens, [])
    return latency


def run(profile: Profile) -> Report:
    total = len(LENGTHS) * profile.choose(1, 2) + 1
    with tempfile.TemporaryDirectory() as folder, steps(profile, "latency", total) as begin, pinned(0):
        subject, latency = _trained(profile, Path(folder) / "shipped", begin)
        parts = [latency]
        if not profile.quick:
            parts.append(_random_base(profile, subject, Path(folder) / "base", begin))
    curves = {label: points for part in parts for label, points in part.curves.items()}
    figure = Figure("latency", "One at a time", "source tokens", "median ms", curves, log_y=True)
    return Report(
        "latency",
        "One sentence at a time",
        [Table("Latency", COLUMNS, [row for part in parts for row in part.rows])],
        [ratio for part in parts for ratio in part.ratios],
        [figure],
        [
            "Greedy, text to text, one thread on one core, wall time. A pair is one sentence, ours and theirs in turn.",
            "Before a sentence counts it is translated once, so that each finds its weights where it left them.",
            f"The random base never ends a sentence: everyone generates {RANDOM_TOKENS} tokens.",
        ],
    )


if __name__ == "__main__":
    command(run, __doc__)
