"""Where the time goes: a sentence alone by its parts, a served request by its threads; and what would make it shorter.

    python -m bench.anatomy [quick | full] [--sources FILE]

The other benchmarks say how we stand against others. This one opens us up, so that a bar that is missed has its reasons
beside it: what is spent where, and which part would have to change.
"""

import statistics
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Sequence

import uvloop

from bench.harness import Cell, Profile, Report, Table, collected, command, pinned, steps
from bench.load import Plan, poisson, probe
from bench.models import Subject, shipped
from bench.overhead import Decoders, TimedSession
from bench.peers.ours import Ours
from bench.peers.peer import encode
from bench.processes import Server, ours, serving
from bench.questions import questions, whole_sentences, wire
from bench.texts import of_length, sentences
from dragoman.service.bundles.manifest import Bundle

LENGTHS = (5, 20, 60)  # source tokens
WARM_RATE, RATES = 50.0, (100.0, 200.0)  # requests per second
BUSY = 0.9  # of the core, at what a request costs at the last of those rates: a crowd costs less, so it is less
ALONE_COLUMNS = ["source tokens", "steps", "all, ms", "encoder", "decoder", "Python", "tokenizer", "µs a step"]
SERVED_COLUMNS = ["requests/s", "event loop, ms", "decoding, ms", "encoder runs", "steps", "rows a step", "p99, ms"]
NOTES = [
    "A sentence alone: wall time on one core, medians over sentences; the parts are shares of the whole. A served "
    "request: CPU time by thread, counts by the server's own metrics, per request (one in 25 has several sentences).",
    "**One at a time, to halve it:** the decoder takes one step after another, and a step of one row is bound by "
    "reading the weights and by some sixty small operators, not by arithmetic (see the roof in The machine's limit). "
    "CTranslate2 reads the same weights. Only fewer steps would do, several tokens verified in one; the drafts that "
    "were tried are right too seldom for what their rows cost (bench/LOG.md).",
    "**Served, to double the rate:** the event loop's part is HTTP, JSON, splitting, metrics and the log, in Python, "
    "and no decoder makes it smaller: it would take another process or another language. In the decoding thread a "
    "lone sentence's encoder run is the largest part. Sentences that come one by one are encoded one by one; packing "
    "them would save a sixth of that on AVX2, nothing on Zen 4 (bench/LOG.md).",
    "**Served, to cut the p99 to a third:** at 80 % of the peer's capacity we use over nine tenths of the core, and a "
    "twentieth less CPU for a request would be a third less waiting; what a request costs is in the table. Whole "
    "batches are level with joining there. Lines that wait for company (as many as run, eight steps at most) had a "
    "fifth less p99 near the end of the core's capacity and none at 80 %, and took a tenth of their rate from few "
    "callers that take turns (bench/LOG.md).",
    "**Hugging Face, to reach ten times:** its generate computes in fp32, at the best batch of those tried, and on a "
    "CPU without VNNI integer products are only about twice as fast as float ones (The machine's limit). Whole files "
    "has the ceiling: a sentence's products alone, all at the integer peak. On Zen 5 it is 21 times Hugging Face's "
    "rate and we reach 9.5: the encoder, at 69 % of the peak, takes half of our time, Python a tenth.",
    "**Beam 4, to win more than a tenth:** of a file on one core, 256 rows, the runtime's steps take 69 %, the "
    "encoder 19, Python 12, most of it choosing and moving rows (1,000 sentences, AVX2); on Zen 4 67, 18 and 15. The "
    "choice would have to move into the graph. A third of a step is attention, twice of what it is when caches are "
    "near, which is why a batch is bounded by its tokens. Four beams have four copies of one source's keys; one copy "
    "for all was measured, and is no faster than near ones (bench/LOG.md).",
    "**Greedy files, to win a third:** of the usual file the encoder takes 46 %, the steps 44, Python 10 (800 "
    "sentences, 64 rows, AVX2); of the random base's 31, 66 and 3, and two thirds of its steps are products, a "
    "quarter attention. Encoder and products are near the integer peak, so what is left is attention over float "
    "caches and Python. Runs of one day differ by a tenth and more on shared machines.",
    "**Long sentences, to win a fifth:** of such a file on Zen 4, 32 rows, the steps take 53 %, the encoder 40, "
    "Python 7. Caches that are not near are read at a third of the memory's speed, because a head's keys are short "
    "and gaps follow (bench/LOG.md): the batch is bounded by tokens for that. An operator that reads caches without "
    "gaps would do more.",
    "**Decoder, to pass 60 % of the integer peak at 64 rows:** its products alone are at 82 to 99 % of it on AVX2, at "
    "71 to 99 % with VNNI; a quarter to a third of the step is attention over float caches; rounding, norms and the "
    "choice of tokens are a fifth (The machine's limit). Attention would have to read caches of 8 bits faster than "
    "the runtime does for short sentences (bench/LOG.md).",
]


def alone(subject: Subject, texts: Sequence[str], tokens: int) -> list[Cell]:
    """One sentence after another, each twice, the second time counted."""
    engine = Ours(subject.bundle, rows=8, wrap=lambda session: TimedSession(session, time.perf_counter_ns))
    decoders = Decoders(engine)
    found: dict[str, list[float]] = defaultdict(list)
    for text in texts:
        for counts in (False, True):
            before = engine.encoder.nanoseconds, decoders.nanoseconds, decoders.num_steps
            began = time.perf_counter_ns()
            (source,) = encode(subject.tokenizer, [text])
            encoded = time.perf_counter_ns()
            (ids,) = engine.translate_ids([source], 1)
            translated = time.perf_counter_ns()
            subject.tokenizer.decode(ids)
            ended = time.perf_counter_ns()
            if counts:
                found["all"].append(ended - began)
                found["encoder"].append(engine.encoder.nanoseconds - before[0])
                found["decoder"].append(decoders.nanoseconds - before[1])
                found["steps"].append(decoders.num_steps - before[2])
                found["tokenizer"].append(ended - translated + encoded - began)
    middle = {name: statistics.median(values) for name, values in found.items()}
    parts = [middle["encoder"], middle["decoder"], 0.0, middle["tokenizer"]]
    parts[2] = middle["all"] - sum(parts)
    shares: list[Cell] = [f"{part / middle['all']:.0%}" for part in parts]
    step = round(middle["decoder"] / middle["steps"] / 1000, 1)
    return [tokens, middle["steps"], round(middle["all"] / 1e6, 2), *shares, step]


def served(server: Server, bundle: Bundle, texts: Sequence[str], rate: float, seconds: float) -> list[Cell]:
    """One rate: what a request costs in which thread."""
    at, pair = poisson(rate, seconds, 20_000, seed=int(rate)), bundle.pairs[0]
    asked = [wire(question, pair.source, pair.target) for question in questions(texts, len(at), seed=int(rate))]
    before, counted = threads(server), metrics(server)
    answer = uvloop.run(probe(server.port, Plan(rate, at, asked)))
    after, counts = threads(server), metrics(server)
    cpu = [1000 * (late - early) / len(at) for early, late in zip(before, after, strict=True)]
    runs, num_steps, rows = (
        counts[name] - counted[name] for name in ("encode_seconds_count", "decode_step_seconds_count", "batch_rows_sum")
    )
    per_request = [round(number / len(at), 2) for number in (runs, num_steps)]
    numbers: list[Cell] = [round(value, 2) for value in cpu]
    return [rate, *numbers, *per_request, round(rows / max(1, num_steps), 1), round(1000 * answer.percentile(99), 1)]


def threads(server: Server) -> tuple[float, float]:
    """CPU seconds of the event loop, which is the process's first thread, and of all others."""
    times = {thread.id: thread.user_time + thread.system_time for thread in server.process.threads()}
    return times.pop(server.process.pid), sum(times.values())


def metrics(server: Server) -> dict[str, float]:
    """The sums and counts of the server's histograms, without their prefix; those of several loops together."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    found: defaultdict[str, float] = defaultdict(float)
    for line in lines:
        if line.startswith("dragoman_"):
            name, value = line.rsplit(" ", 1)
            found[name.partition("{")[0].removeprefix("dragoman_")] += float(value)
    return found


def _alone_table(profile: Profile, subject: Subject, begin: Callable[[str], None]) -> Table:
    texts = sentences(profile.sources, 4000, subject.bundle.pairs[0].source)
    rows = []
    for tokens in LENGTHS:
        begin(f"{tokens} tokens alone")
        rows.append(alone(subject, of_length(subject.tokenizer, texts, tokens, profile.choose(10, 100)), tokens))
    return Table("A sentence alone", ALONE_COLUMNS, rows)


def _served_table(profile: Profile, subject: Subject, begin: Callable[[str], None]) -> Table:
    texts, rows = whole_sentences(profile, subject.bundle), []
    begin("starting the server")
    with serving({"ours": ours(profile.bundle)}, core=0) as servers:
        for rate in (WARM_RATE, *RATES):
            begin(f"served, {rate:.0f} requests/s")
            rows.append(served(servers["ours"], subject.bundle, texts, rate, profile.choose(2.0, 12.0)))
        begin("served, busy")
        busy = round(1000 * BUSY / sum(float(cell or 0) for cell in rows[-1][1:3]))  # event loop and decoding, ms
        rows.append(served(servers["ours"], subject.bundle, texts, busy, profile.choose(2.0, 12.0)))
    return Table("A served request, server on one core", SERVED_COLUMNS, rows[1:])


def run(profile: Profile) -> Report:
    subject = shipped(profile.model, profile.bundle)
    with steps(profile, "anatomy", len(LENGTHS) + len(RATES) + 3) as begin:
        with pinned(0), collected():
            tables = [_alone_table(profile, subject, begin)]
        with pinned(1):
            tables.append(_served_table(profile, subject, begin))
    return Report("anatomy", "Where the time goes", tables, [], [], NOTES)


if __name__ == "__main__":
    command(run, __doc__)
