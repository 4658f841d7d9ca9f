"""The simulator of queue and autoscaler: small cases worked out by hand, and its figures on the page."""

import itertools

import pytest
import yaml

from deploy.capacity import page
from deploy.capacity.autoscaler import SYNC_SECONDS, Autoscaler, Behavior, wish
from deploy.capacity.day import Demand, Measured, curve, play_day, read_measured
from deploy.capacity.replica import Costs, Segment, simulate
from deploy.grafana.panels import TARGET_TOKENS_PER_REPLICA
from tests.deploy.manifests import KUBERNETES

# A step takes 1 and 0.5 for each row, an encoder run 2 and 0.1 for each token.
COSTS = Costs(steps=((1, 1.5), (3, 2.5)), encodings=((10, 3.0), (20, 4.0)), request=10.0)
BEHAVIOR = Behavior(min_replicas=2, max_replicas=20, target_demand=100, target_wait_seconds=0.5)
HPA = KUBERNETES / "components" / "hpa" / "horizontalpodautoscaler.yaml"


def test_a_segment_alone_takes_its_encoding_and_its_steps() -> None:
    """2 + 10 x 0.1 to encode, 3 steps of 1.5, 10 outside the loop."""
    outcome = simulate([Segment(5.0, 10, 3)], COSTS)
    assert outcome.waits == (0.0,)
    assert outcome.totals == pytest.approx((17.5,))
    assert outcome.busy_seconds == pytest.approx(7.5)
    assert outcome.ends_at == pytest.approx(12.5)


def test_who_finds_no_row_waits_for_one() -> None:
    """With one row, the second begins when the first is done."""
    first, second = simulate([Segment(0.0, 10, 2), Segment(0.0, 10, 2)], COSTS, max_rows=1).waits
    assert (first, second) == pytest.approx((0.0, 6.0))


def test_a_newcomer_joins_at_the_next_step() -> None:
    """It pays for its own encoding, and so does everybody who is there."""
    outcome = simulate([Segment(0.0, 10, 4), Segment(3.1, 10, 1)], COSTS)
    assert outcome.waits == pytest.approx((0.0, 1.4))  # 3 + 1.5 = 4.5 is the next step's begin
    assert outcome.totals == pytest.approx((4.5 + 3 + 2 - 3.1 + 10, 4.5 + 3 + 2 + 1.5 + 1.5 + 10))


def test_encoding_is_spread_over_steps() -> None:
    """The budget keeps those who decode from standing still."""
    outcome = simulate([Segment(0.0, 6, 5), Segment(0.0, 6, 5)], COSTS, encode_budget=10)
    assert outcome.waits == pytest.approx((0.0, 2.6 + 1.5))


def test_the_autoscaler_ignores_small_changes() -> None:
    """Within a tenth of the target nothing happens."""
    assert wish(4, BEHAVIOR, demand_per_replica=109, wait_seconds=0.5) == 4
    assert wish(4, BEHAVIOR, demand_per_replica=120, wait_seconds=0.5) == 5
    assert wish(4, BEHAVIOR, demand_per_replica=10, wait_seconds=0.0) == 2
    assert wish(4, BEHAVIOR, demand_per_replica=100, wait_seconds=60.0) == 20


def test_it_doubles_at_most_every_half_minute() -> None:
    """Its policy for scaling up: 100 percent or 2 pods in 30 s."""
    scaler = Autoscaler(BEHAVIOR, 2)
    assert [scaler.sync(now, 10_000, 0.0) for now in (0, 15, 30, 45, 60)] == [4, 4, 8, 8, 16]


def test_it_scales_down_with_patience() -> None:
    """Five minutes after the last high wish, and a quarter a minute."""
    scaler = Autoscaler(BEHAVIOR, 8)
    scaler.sync(0, 100, 0.0)
    replicas = {now: scaler.sync(now, 10, 0.0) for now in range(SYNC_SECONDS, 600, SYNC_SECONDS)}
    assert replicas[285] == 8
    assert replicas[315] == 6
    assert all(one - other <= 2 for one, other in itertools.pairwise(replicas.values()))
    assert min(replicas.values()) == 2


def test_the_simulated_autoscaler_is_the_one_of_the_manifest() -> None:
    """Figures of the page are about what will really run."""
    spec = yaml.safe_load(HPA.read_text())["spec"]
    up, down = spec["behavior"]["scaleUp"], spec["behavior"]["scaleDown"]
    assert [(policy["type"], policy["value"], policy["periodSeconds"]) for policy in up["policies"]] == [
        ("Percent", BEHAVIOR.up_percent, BEHAVIOR.up_period_seconds),
        ("Pods", BEHAVIOR.up_pods, BEHAVIOR.up_period_seconds),
    ]
    assert down["stabilizationWindowSeconds"] == BEHAVIOR.down_window_seconds
    assert [(policy["value"], policy["periodSeconds"]) for policy in down["policies"]] == [
        (BEHAVIOR.down_percent, BEHAVIOR.down_period_seconds)
    ]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (BEHAVIOR.min_replicas, BEHAVIOR.max_replicas)


@pytest.fixture(scope="module")
def quick() -> Measured:
    return Measured(
        "a fast one", "here", Costs(((1, 0.0011), (11, 0.0021)), ((50, 0.002), (100, 0.003)), 0.002), 20.0, 20.0
    )


def test_more_load_is_more_waiting(quick: Measured) -> None:
    """And more tokens in flight, which is why the autoscaler can use them."""
    points = curve(quick).points
    assert all(one[1] < other[1] and one[2] < other[2] for one, other in itertools.pairwise(points))


def test_a_day_scales_up_and_down_again(quick: Measured) -> None:
    """The spike is served, and paid for only as long as it lasts."""
    one = curve(quick)
    target = 2 * 0.65 * one.saturation * quick.source_tokens
    night = one.saturation
    day = play_day(quick, Behavior(2, 20, target, 0.5), 2, Demand(night, 8 * night, 8 * night))
    assert day.replicas[4 * 3600] == 2
    assert day.replicas[10 * 3600 + 500] > day.replicas[10 * 3600 - 60]
    assert day.replicas[-1] == 2
    assert 0 < day.refused < 0.01 * sum(day.rates)  # in its first seconds more arrives than the queues hold
    assert day.waits[-1] < 1


def test_the_target_is_what_was_measured() -> None:
    """The autoscaler and the dashboard aim at what a replica here does well."""
    assert pytest.approx(page.good_demand(read_measured()), rel=0.1) == TARGET_TOKENS_PER_REPLICA


def test_the_page_has_the_measured_figures() -> None:
    """Written by `python -m deploy.capacity.page`; measured by measure.py."""
    assert page.table(read_measured()) in page.PAGE.read_text("utf-8")
