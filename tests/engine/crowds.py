"""Jobs through an engine that is turned by hand, alone and in company: used by the tests and by `proof.py`."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from dragoman.service.engine.job import DecodingResult, Job
from dragoman.service.engine.loop import Engine

Arrival = tuple[Job, int]  # and the turn at which it comes


def play(engine: Engine, arrivals: Sequence[Arrival]) -> list[DecodingResult]:
    """Submit each job at its turn, and turn until all are done."""
    coming, turn, busy = deque(sorted(arrivals, key=lambda arrival: arrival[1])), 0, False
    while coming or busy:
        while coming and coming[0][1] <= turn:
            engine.submit(coming.popleft()[0])
        busy = engine.turn()
        turn += 1
    return [job.future.result(timeout=0) for job, _ in arrivals]


def answer(result: DecodingResult) -> tuple[object, ...]:
    """What must not depend on the company: every hypothesis and the end, floats as their bits."""
    hypotheses = [
        (found.ids, found.score.hex(), tuple(log_prob.hex() for log_prob in found.log_probs))
        for found in result.hypotheses
    ]
    return (*hypotheses, result.finish_reason)
