"""The HorizontalPodAutoscaler's arithmetic: from metrics to replicas, with its tolerance, policies and patience.

As documented for autoscaling/v2: the ratio of each metric to its target, the largest wish wins, changes within a tenth
are ignored, scaling up and down are each limited per period, and scaling down takes the largest wish of the last
minutes.
"""

import math
from collections import deque
from dataclasses import dataclass, field

SYNC_SECONDS = 15
TOLERANCE = 0.1


@dataclass(frozen=True)
class Behavior:
    """What components/hpa/horizontalpodautoscaler.yaml says."""

    min_replicas: int
    max_replicas: int
    target_demand: float  # source tokens per second, per replica
    target_wait_seconds: float
    up_percent: int = 100
    up_pods: int = 2
    up_period_seconds: int = 30
    down_percent: int = 25
    down_period_seconds: int = 60
    down_window_seconds: int = 300


def wish(replicas: int, behavior: Behavior, demand_per_replica: float, wait_seconds: float) -> int:
    """What the metrics alone ask for."""
    ratios = (demand_per_replica / behavior.target_demand, wait_seconds / behavior.target_wait_seconds)
    wishes = [replicas if abs(ratio - 1) <= TOLERANCE else math.ceil(replicas * ratio) for ratio in ratios]
    return min(max(*wishes, behavior.min_replicas), behavior.max_replicas)


@dataclass
class Autoscaler:
    behavior: Behavior
    replicas: int
    _wishes: deque[tuple[float, int]] = field(default_factory=deque)  # when, and how many
    _changes: deque[tuple[float, int]] = field(default_factory=deque)  # when, and by how many

    def sync(self, now: float, demand_per_replica: float, wait_seconds: float) -> int:
        """Decide, `SYNC_SECONDS` after the last time; returns the replicas from now on."""
        wanted = wish(self.replicas, self.behavior, demand_per_replica, wait_seconds)
        self._wishes.append((now, wanted))
        while self._wishes[0][0] < now - self.behavior.down_window_seconds:
            self._wishes.popleft()
        before = self.replicas
        self.replicas = self._up(now, wanted) if wanted > before else self._down(now)
        if self.replicas != before:
            self._changes.append((now, self.replicas - before))
        return self.replicas

    def _up(self, now: float, wanted: int) -> int:
        behavior = self.behavior
        start = self.replicas - self._changed(now - behavior.up_period_seconds, 1)
        limit = max(math.ceil(start * (1 + behavior.up_percent / 100)), start + behavior.up_pods)
        return max(self.replicas, min(wanted, limit))

    def _down(self, now: float) -> int:
        behavior = self.behavior
        start = self.replicas + self._changed(now - behavior.down_period_seconds, -1)
        limit = math.floor(start * (1 - behavior.down_percent / 100))
        patient = max(count for _, count in self._wishes)
        return min(self.replicas, max(patient, limit, behavior.min_replicas))

    def _changed(self, since: float, sign: int) -> int:
        """Replicas added (1) or taken away (-1) after a moment: what policies limit."""
        return sum(abs(change) for when, change in self._changes if when > since and change * sign > 0)
