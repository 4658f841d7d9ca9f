"""Whole files of sentences, ours against the peers on the same weights: sentences and tokens per CPU second.

    python -m bench.offline [quick | full] [--sources FILE]

Two files, of usual length and of long sentences (neighbours joined), greedy and with a beam of 4. On one core everyone
has one thread and CPU time counts; on two cores (two decode loops of ours, two workers of CTranslate2) wall time does.
Everyone gets text and gives text, and stops a sentence at the same length. CTranslate2 runs at the compute type and
batch size that are its fastest on the file, the others at their best batch size. One sentence at a time is left to
`bench.latency`, requests over HTTP to `bench.served`.
"""

import itertools
import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness import (
    Cell,
    Profile,
    Ratio,
    Report,
    Table,
    Work,
    alternate,
    collected,
    command,
    faster,
    spread,
    steps,
    wall_seconds,
)
from bench.limit import peak_rate, sentence_operations
from bench.models import Subject, output_columns, random_subject, shipped, whole_vocabulary
from bench.peers import huggingface, ort_concat, torch_eager
from bench.peers.ctranslate2 import BATCHES, TYPES, CTranslate2, variants
from bench.peers.ours import Ours
from bench.peers.peer import MAX_TOKENS, Ids, Peer, agreement, encode, fastest, work
from bench.texts import evenly, long_ones, sentences
from dragoman.model.network_config import PRESETS
from dragoman.service.bundles.manifest import Limits
from dragoman.service.engine.file_batch import batch_for

BEAM = 4
RANDOM_TOKENS = 12  # of a translation of the random model, which never ends one itself: about the usual length
COLUMNS = ["file", "search", "who", "sentences / s", "target tokens / s", "as in floating point"]
CEILING_COLUMNS = ["file", "million operations a sentence", "sentences / s at the peak", "ten times Hugging Face"]


@dataclass(frozen=True)
class File:
    name: str
    texts: list[str]


class Offline:
    """One run of the benchmark; the parts share the model, the files and the peers' converted models."""

    def __init__(
        self,
        profile: Profile,
        subject: Subject,
        folder: Path,
        begin: Callable[[str], None],
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        self.profile, self.subject, self.folder, self.begin = profile, subject, folder, begin
        self.max_tokens, self.trained = max_tokens, "note" not in subject.saved.training
        self.runs = profile.runs or 3
        self.rows: list[list[Cell]] = []
        self.ratios: list[Ratio] = []
        self.best: dict[tuple[str, int], CTranslate2] = {}
        self.ceilings: list[list[Cell]] = []
        self._references: dict[str, list[Ids]] = {}

    def one_core(self, file: File, beam_size: int, bar: float) -> None:
        """Ours and CTranslate2 at its best."""
        self.begin(f"{file.name}, {search(beam_size)}, sweep")
        theirs = self._best_ctranslate2(file, beam_size)
        self.begin(f"{file.name}, {search(beam_size)}, one core")
        ours = Ours(self.subject.bundle, *batch_for(self.subject.bundle, beam_size), max_tokens=self.max_tokens)
        seconds = self._measure([ours, theirs], file.texts, beam_size)
        self._tell(file, beam_size, seconds, [ours, theirs], "one core")
        what = f"{file.name}, {search(beam_size)}, one core"
        pair = seconds[ours.name], seconds[theirs.name]
        self.ratios.append(faster(what, theirs.name, *pair, len(file.texts), "sentences per CPU second", bar))

    def two_cores(self, file: File, beam_size: int) -> None:
        """Both on two cores; processor time would hide waiting, so wall time."""
        self.begin(f"{file.name}, {search(beam_size)}, two cores")
        best = self.best[file.name, beam_size]
        theirs = CTranslate2(self.subject.saved, self.folder, best.compute_type, best.batch, threads=2)
        ours = Ours(self.subject.bundle, *batch_for(self.subject.bundle, beam_size), loops=2)
        works = {p.name: work(p, self.subject.tokenizer, file.texts, beam_size) for p in (ours, theirs)}
        seconds = alternate(works, self.runs, wall_seconds)
        self._tell(file, beam_size, seconds, [ours, theirs], "two cores, wall time")
        ours.close()
        what = f"{file.name}, {search(beam_size)}, two cores"
        pair = seconds[ours.name], seconds[theirs.name]
        self.ratios.append(faster(what, theirs.name, *pair, len(file.texts), "sentences per second", None))

    def others(self, file: File, beam_size: int, limit: int) -> None:
        """The peers that are too slow for the whole file, on part of it, with ours beside them."""
        texts = evenly(file.texts, limit)
        part = File(f"{file.name}, {len(texts)} of it", texts)
        ours: Peer = Ours(self.subject.bundle, *batch_for(self.subject.bundle, beam_size))
        for name, bar, peers in self._slow_peers(beam_size):
            self.begin(f"{file.name}, {search(beam_size)}, {name}")
            peer = fastest(peers, lambda p: work(p, self.subject.tokenizer, texts[: len(texts) // 2], beam_size))
            seconds = self._measure([ours, peer], texts, beam_size, runs=min(self.runs, 3))
            self._tell(part, beam_size, {peer.name: seconds[peer.name]}, [peer], "one core")
            what, pair = f"{file.name}, {search(beam_size)}, one core", (seconds[ours.name], seconds[peer.name])
            self.ratios.append(faster(what, peer.name, *pair, len(texts), "sentences per CPU second", bar))
            if bar is not None:
                self._tell_ceiling(part, bar * len(texts) / statistics.median(seconds[peer.name]), ours)

    def _tell_ceiling(self, file: File, wanted: float, ours: Peer) -> None:
        """How fast the file would be if nothing but the products were done, each at the integer peak of this moment."""
        sources = encode(self.subject.tokenizer, file.texts)
        targets = ours.translate_ids(sources, 1)
        lengths = (statistics.mean(map(len, sources)), statistics.mean(len(ids) + 1 for ids in targets))
        shape, outputs = self.subject.bundle.architecture, output_columns(self.subject.bundle)
        operations, peak = sentence_operations(shape, outputs, *lengths), peak_rate("int8", 1.0)
        self.ceilings.append([file.name, *(round(n, 1) for n in (operations / 1e6, peak / operations, wanted))])

    def _slow_peers(self, beam_size: int) -> Iterable[tuple[str, float | None, list[Peer]]]:
        saved, quick = self.subject.saved, self.profile.quick
        if saved.config.norm == "pre":
            model = huggingface.convert(saved)
            batches = (64,) if quick else huggingface.BATCHES
            yield "Hugging Face", 10.0, [huggingface.HuggingFace(model, batch) for batch in batches]
        if beam_size == 1:
            for precision in ("fp32", "int8"):
                folder, batches = self.folder / "ort", (32,) if quick else ort_concat.BATCHES
                peers: list[Peer] = [ort_concat.OrtConcat(saved.network, folder, precision, b) for b in batches]
                yield f"plain ONNX Runtime {precision}", None, peers
        batches = (64,) if quick else torch_eager.BATCHES
        yield "torch", None, [torch_eager.TorchEager(saved.network, batch) for batch in batches]

    def whole_output(self, file: File) -> None:
        """Ours without the advantage of leaving out tokens that were never a target."""
        self.begin(f"{file.name}, every token may come out")
        theirs = self.best[file.name, 1]
        ours = Ours(
            whole_vocabulary(self.subject), *batch_for(self.subject.bundle, 1), name="ours, every token may come out"
        )
        seconds = self._measure([ours, theirs], file.texts, 1)
        self._tell(file, 1, {ours.name: seconds[ours.name]}, [ours], "one core")
        what, pair = f"{file.name}, greedy, one core, {ours.name}", (seconds[ours.name], seconds[theirs.name])
        self.ratios.append(faster(what, theirs.name, *pair, len(file.texts), "sentences per CPU second", None))

    def _best_ctranslate2(self, file: File, beam_size: int) -> CTranslate2:
        types, batches = self.profile.choose((("int8",), (16, 32, 64)), (TYPES, BATCHES))
        some = evenly(file.texts, self.profile.choose(100, 60))  # of twelve ways in the full run
        candidates = variants(self.subject.saved, self.folder, types, batches, self.max_tokens)
        best = fastest(candidates, lambda p: work(p, self.subject.tokenizer, some, beam_size), runs=2)
        assert isinstance(best, CTranslate2)
        self.best[file.name, beam_size] = best
        return best

    def _measure(
        self, peers: Sequence[Peer], texts: list[str], beam_size: int, runs: int = 0
    ) -> dict[str, list[float]]:
        works: dict[str, Work] = {p.name: work(p, self.subject.tokenizer, texts, beam_size) for p in peers}
        return alternate(works, runs or self.runs)

    def _tell(
        self, file: File, beam_size: int, seconds: dict[str, list[float]], peers: Sequence[Peer], cores: str
    ) -> None:
        sources = encode(self.subject.tokenizer, file.texts)
        exact = self._reference(sources) if beam_size == 1 and self.trained else None
        for peer in peers:
            found = peer.translate_ids(sources, beam_size)
            tokens = sum(min(len(ids) + 1, self.max_tokens) for ids in found)  # with the end of sentence
            rates = [len(sources) / s for s in seconds[peer.name]]
            like = None if exact is None else f"{agreement(found[: len(exact)], exact):.1%}"
            row = [file.name, f"{search(beam_size)}, {cores}", peer.name, spread(rates)]
            self.rows.append([*row, round(tokens / statistics.median(seconds[peer.name])), like])

    def _reference(self, sources: list[Ids]) -> list[Ids]:
        """What the network says in floating point, for some sentences of the file's beginning."""
        key = f"{len(sources)} {sources[0]}"
        if key not in self._references:
            few = sources[: self.profile.choose(60, 150)]
            self._references[key] = torch_eager.TorchEager(self.subject.saved.network).translate_ids(few, 1)
        return self._references[key]


def search(beam_size: int) -> str:
    return "greedy" if beam_size == 1 else f"beam {beam_size}"


def files(profile: Profile, subject: Subject) -> tuple[File, File]:
    texts = sentences(profile.sources, profile.choose(300, 1500), subject.bundle.pairs[0].source)
    texts = subject.fitting(texts)
    count = profile.choose(60, 150)
    return File("usual length", texts), File("long sentences", long_ones(subject.tokenizer, texts, count))


def _trained(offline: Offline, usual: File, long: File) -> None:
    full = not offline.profile.quick
    offline.one_core(usual, 1, bar=1.3)
    offline.one_core(long, 1, bar=1.2)
    offline.one_core(usual, BEAM, bar=1.1)
    if full:
        offline.one_core(long, BEAM, bar=1.1)
    for file, beam_size in [(usual, 1), *([(usual, BEAM)] if full else [])]:
        offline.two_cores(file, beam_size)
    offline.others(usual, 1, offline.profile.choose(64, 300))
    if full:
        offline.whole_output(usual)
        offline.others(long, 1, 48)


def _random_base(offline: Offline, usual: File) -> None:
    """The paper's base, whose arithmetic outweighs everything around it."""
    file = File("usual length, random base", evenly(usual.texts, 120))
    offline.one_core(file, 1, bar=1.3)


def run(profile: Profile) -> Report:
    with tempfile.TemporaryDirectory() as folder, steps(profile, "offline", profile.choose(12, 30)) as begin:
        subject = shipped(profile.model, profile.bundle)
        usual, long = files(profile, subject)
        with collected():
            offline = Offline(profile, subject, Path(folder) / "shipped", begin)
            _trained(offline, usual, long)
        parts = [offline]
        if not profile.quick:
            base = random_subject(PRESETS["base"], subject.tokenizer, Limits(96, 96))
            with collected():
                parts.append(Offline(profile, base, Path(folder) / "base", begin, RANDOM_TOKENS))
                _random_base(parts[-1], usual)
    rows = list(itertools.chain.from_iterable(part.rows for part in parts))
    ratios = list(itertools.chain.from_iterable(part.ratios for part in parts))
    ceilings = Table("What the integer peak allows", CEILING_COLUMNS, offline.ceilings)
    tables = [Table("Rates", COLUMNS, rows), ceilings]
    return Report("offline", "Whole files", tables, ratios, notes=_notes(subject, usual, long))


def _notes(subject: Subject, *of: File) -> list[str]:
    lengths = [statistics.mean(len(ids) for ids in encode(subject.tokenizer, file.texts)) for file in of]
    told = " and ".join(f"{len(f.texts)} ({mean:.1f} source tokens)" for f, mean in zip(of, lengths, strict=True))
    return [
        f"Sentences of the files: {told}. Rates are medians with their range; tokenization is counted for everyone.",
        "The last column is the share of sentences (of the file's first) that come out token for token as in torch.",
        "One core: CPU time of the process. Two cores: wall time; ours has two decode loops, CTranslate2 two workers.",
        f"Our bundle may write {output_columns(subject.bundle)} of {subject.bundle.architecture.vocab_size} tokens, "
        "the peers all of them; in the full run ours is measured with all, too.",
        "What the integer peak allows: greedy, if nothing but a sentence's products with weights were done, at the "
        "rate of a large int8 product measured at that moment; beside it ten times Hugging Face's rate.",
        f"The random base never ends a sentence: everyone generates {RANDOM_TOKENS} tokens for each.",
    ]


if __name__ == "__main__":
    command(run, __doc__)
