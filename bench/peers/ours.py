"""Ours: the service's engine (scheduler, search, loop, runner). The only file of the benchmarks that builds one."""

import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from bench.peers.peer import MAX_TOKENS, Ids
from dragoman.service.bundles.manifest import Bundle
from dragoman.service.engine.job import DecodingOptions, DecodingRules, Job
from dragoman.service.engine.loop import Engine
from dragoman.service.engine.runner import OrtRunner
from dragoman.service.engine.scheduler import EngineSettings
from dragoman.service.engine.sessions import OrtSessions


class Ours:
    """One loop is turned by hand on the calling thread; several run on threads of their own, as in the service.

    The repetition guard is off: it would end a looping translation earlier than the peers do. A file is submitted
    longest first, so that the batch does not end in one long row.
    """

    def __init__(
        self,
        bundle: Bundle,
        rows: int = 64,
        tokens: float = math.inf,  # source tokens of all rows
        loops: int = 1,
        max_tokens: int = MAX_TOKENS,
        name: str = "ours",
        guard: bool = False,
        wrap: Callable[[Any], Any] = lambda session: session,
    ) -> None:
        """`wrap` may put something around the runtime's sessions, to measure them."""
        self.name, self._max_tokens, self._guard, self._loops = name, max_tokens, guard, loops
        sessions = OrtSessions(bundle, threads=1, provider="cpu")
        sessions.encoder, sessions.decoder = wrap(sessions.encoder), wrap(sessions.decoder)
        sessions.multi_step = sessions.multi_step and wrap(sessions.multi_step)
        self.encoder, self.decoder, self.multi_step = sessions.encoder, sessions.decoder, sessions.multi_step
        runners = [OrtRunner(sessions, rows) for _ in range(loops)]
        # For files: nobody else's lines wait, so no rows are kept for them, and the queue takes everything.
        settings = EngineSettings(max_queued_tokens=1 << 40, interactive_share=0.0, max_batch_tokens=tokens)
        self.engine = Engine(runners, DecodingRules.of(bundle), settings)
        self._requests = count()
        if loops > 1:
            self.engine.start()

    def translate_ids(self, sources: Sequence[Ids], beam_size: int) -> list[Ids]:
        jobs = self.jobs(sources, beam_size)
        longest_first = sorted(jobs, key=lambda job: -job.num_source_tokens)
        self.engine.submit_all(longest_first)
        if self._loops == 1:
            for job in longest_first:
                while not job.future.done():  # as a caller waits: what is tidied up after an answer keeps nobody
                    self.engine.turn()
        return [list(job.future.result().hypotheses[0].ids) for job in jobs]

    def jobs(self, sources: Sequence[Ids], beam_size: int) -> list[Job]:
        """One request; each request is another, as from another caller."""
        options = DecodingOptions(beam_size, max_new_tokens=self._max_tokens, repetition_guard=self._guard)
        request = f"bench {next(self._requests)}"
        return [Job(ids, options, request=request) for ids in sources]

    def active_rows(self) -> int:
        return self.engine.snapshot().active_rows

    def close(self) -> None:
        self.engine.stop()
