"""The golden check: a bundle serves only after its own sentences were translated here exactly as they were exported."""

import time
from collections.abc import Sequence

from dragoman.service.bundles.manifest import Bundle, BundleError, Golden, read_golden
from dragoman.service.catalog.served import Tokenizer
from dragoman.service.engine.job import DecodingOptions, DecodingResult, FinishReason, Job
from dragoman.service.engine.loop import Engine

TOLERANCE = 1e-3  # of a log-probability: softmax and norms differ between CPU types
MAX_SECONDS = 60.0


def check_golden(bundle: Bundle, tokenizer: Tokenizer, engine: Engine) -> None:
    """Translate the golden sentences; raise BundleError unless tokens are equal and log-probabilities within 1e-3."""
    goldens = read_golden(bundle)
    if not goldens:
        raise BundleError(f"bundle {bundle.path} has no golden sentences to check it with: export it again")
    for number, golden in enumerate(goldens, 1):
        _check_source(bundle, tokenizer, number, golden)
    late_at = time.monotonic() + MAX_SECONDS
    _replay(bundle, engine, goldens, late_at)
    _replay(bundle, engine, goldens[:1], late_at)  # a sentence alone runs on another graph


def _replay(bundle: Bundle, engine: Engine, goldens: Sequence[Golden], late_at: float) -> None:
    options = DecodingOptions(log_probs=True)
    jobs = [Job(golden.source_ids, options) for golden in goldens]
    futures = engine.submit_all(jobs)  # together: an empty queue takes any number of tokens, however short it is
    for number, (golden, future) in enumerate(zip(goldens, futures, strict=True), 1):
        try:
            error = future.exception(max(0.0, late_at - time.monotonic()))
        except TimeoutError:
            raise BundleError(
                f"bundle {bundle.path} needs more than {MAX_SECONDS:.0f} s for its golden sentences, so it is not "
                "served: use a faster machine, or a smaller model"
            ) from None
        if error is not None:
            raise BundleError(f"bundle {bundle.path} failed on golden sentence {number}: {error}") from error
        _check_result(bundle, number, golden, future.result())


def _check_source(bundle: Bundle, tokenizer: Tokenizer, number: int, golden: Golden) -> None:
    pairs = [pair for pair in bundle.pairs if (pair.source, pair.target) == (golden.source, golden.target)]
    ids = (*tokenizer.encode([golden.text]), *bundle.source_end_ids)
    wanted = [(*pair.source_prefix_ids, *ids) for pair in pairs]
    if golden.source_ids not in wanted:
        raise BundleError(
            f"bundle {bundle.path} has a tokenizer that does not give the tokens of golden sentence {number}: "
            "export it again"
        )


def _check_result(bundle: Bundle, number: int, golden: Golden, result: DecodingResult) -> None:
    best = result.hypotheses[0] if result.hypotheses else None
    if best is None or best.ids != golden.target_ids or result.finish_reason is not FinishReason.EOS:
        raise BundleError(
            f"bundle {bundle.path} gives another translation of golden sentence {number} on this machine than where "
            "it was exported, so it is not served: export it again"
        )
    if len(best.log_probs) != len(golden.log_probs):
        raise BundleError(
            f"bundle {bundle.path} has the wrong number of scores in golden sentence {number}: export it again"
        )
    gap = max((abs(here - there) for here, there in zip(best.log_probs, golden.log_probs, strict=True)), default=0.0)
    if not gap <= TOLERANCE:
        raise BundleError(
            f"bundle {bundle.path} gives golden sentence {number} a log-probability that differs by {gap:.4f} from "
            f"the exported one (allowed: {TOLERANCE}), so it is not served: export it again"
        )
