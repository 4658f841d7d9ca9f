"""The dashboard's panels: four rows, each a question. What is drawn how is `render.py`'s business.

A query names its unit's plain base (seconds, bytes, ratios); `@` stands for the labels that every series is chosen by.
"""

from dataclasses import dataclass

# Source tokens per second that one replica does well; the autoscaler's target, from deploy/capacity.
TARGET_TOKENS_PER_REPLICA = 11000


@dataclass(frozen=True)
class Panel:
    title: str
    description: str
    unit: str  # Grafana's name
    queries: tuple[tuple[str, str], ...]  # expression, legend
    threshold: float | None = None  # drawn as a line: above it is bad
    stacked: bool = False
    kind: str = "timeseries"


@dataclass(frozen=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


def _quantiles(metric: str, shares: tuple[float, ...], by: str = "pair") -> tuple[tuple[str, str], ...]:
    return tuple(
        (
            f'histogram_quantile({share}, sum by ({by}, le) (rate({metric}_bucket{{@, pair=~"$pair"}}'
            f"[$__rate_interval])))",
            f"p{share * 100:.0f} {{{{{by}}}}}",
        )
        for share in shares
    )


def _mean(metric: str) -> tuple[str, str]:
    sums, counts = (
        f'sum by (pair) (rate({metric}_{end}{{@, pair=~"$pair"}}[$__rate_interval]))' for end in ("sum", "count")
    )
    return f"{sums} / {counts}", "mean {{pair}}"


USERS = Row(
    "Are users fine?",
    (
        Panel(
            "Requests",
            "Requests per second by how they ended. `invalid` is the caller's mistake, `refused` is 429, 503 or 504, "
            "`failed` is ours, `cancelled` means that the caller left. Probes and scrapes are not counted.",
            "reqps",
            (
                (
                    'sum by (outcome) (rate(dragoman_requests_total{@, api!="operations"}[$__rate_interval]))',
                    "{{outcome}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Errors",
            "The share of requests that the server could not serve: failures, full queue, deadlines. The line is the "
            "rate at which the alert pages (14.4 times the monthly budget of 0.1 %).",
            "percentunit",
            (("job:dragoman_errors:ratio_rate5m", "last 5 min"), ("job:dragoman_errors:ratio_rate1h", "last hour")),
            threshold=0.0144,
        ),
        Panel(
            "Request duration",
            "From the first byte of a request to its last answer, by pair. Long documents are requests too. The line "
            "is the objective: 99 % within 2 s.",
            "s",
            _quantiles("dragoman_request_duration_seconds", (0.5, 0.95, 0.99)),
            threshold=2.0,
        ),
        Panel(
            "Time to the first token",
            "From a segment's submission to its first token: what a reader of a stream waits for.",
            "s",
            _quantiles("dragoman_first_token_seconds", (0.5, 0.95)),
        ),
        Panel(
            "Refusals by reason",
            "`queue_full` and `deadline` say that there is too little capacity, `internal` that something is broken; "
            "the others are the callers' own.",
            "reqps",
            (("sum by (reason) (rate(dragoman_rejected_total{@}[$__rate_interval]))", "{{reason}}"),),
            stacked=True,
        ),
        Panel(
            "How segments ended",
            "`eos` is a whole translation. `length` and `repetition` grow when texts are unlike what the model knows.",
            "ops",
            (
                (
                    'sum by (finish_reason) (rate(dragoman_segments_total{@, pair=~"$pair"}[$__rate_interval]))',
                    "{{finish_reason}}",
                ),
                ('sum(rate(dragoman_cancelled_total{@, pair=~"$pair"}[$__rate_interval]))', "caller left"),
            ),
        ),
    ),
)

TIME = Row(
    "Where does the time go?",
    (
        Panel(
            "Wait for a row",
            "From submission to a row of the batch. Near nothing is good; the line is the autoscaler's target for p90.",
            "s",
            _quantiles("dragoman_queue_wait_seconds", (0.5, 0.9, 0.99)),
            threshold=0.5,
        ),
        Panel(
            "Encoder run",
            "One run of the encoder for the segments that join. The batch stands still meanwhile, so runs are kept "
            "short (DRAGOMAN_ENCODE_BUDGET_TOKENS).",
            "s",
            (*_quantiles("dragoman_encode_seconds", (0.95,)), _mean("dragoman_encode_seconds")),
        ),
        Panel(
            "Decoder step",
            "One step of the batch: one token for each of its rows. Grows with the rows; a jump without more rows "
            "means crowded or throttled CPUs. The line is the budget at which bulk requests stop getting rows.",
            "s",
            (*_quantiles("dragoman_decode_step_seconds", (0.5, 0.95)), _mean("dragoman_decode_step_seconds")),
            threshold=0.015,
        ),
        Panel(
            "Where the loops' time goes",
            "Seconds of work per second, of all replicas: encoding, decoding, and all else that the loops do.",
            "short",
            (
                ('sum(rate(dragoman_encode_seconds_sum{@, pair=~"$pair"}[$__rate_interval]))', "encode"),
                ('sum(rate(dragoman_decode_step_seconds_sum{@, pair=~"$pair"}[$__rate_interval]))', "decode"),
                ('sum(rate(dragoman_engine_busy_seconds_total{@, pair=~"$pair"}[$__rate_interval]))', "busy"),
            ),
        ),
    ),
)

BATCH = Row(
    "Is the batch full?",
    (
        Panel(
            "Rows in a step",
            "How many rows a decoder step carries. Wide steps are cheap per token; p95 at the capacity means that "
            "segments wait.",
            "short",
            (*_quantiles("dragoman_batch_rows", (0.5, 0.95)), _mean("dragoman_batch_rows")),
        ),
        Panel(
            "Occupancy",
            "Rows in use, as a share of all. Near 1 for long: scale out.",
            "percentunit",
            (
                (
                    'sum by (pair) (dragoman_active_rows{@, pair=~"$pair"}) '
                    '/ sum by (pair) (dragoman_row_capacity{@, pair=~"$pair"})',
                    "{{pair}}",
                ),
            ),
            threshold=0.9,
        ),
        Panel(
            "Tokens per second",
            "Source tokens read and target tokens written, by pair: the throughput that capacity is planned with.",
            "short",
            (
                (
                    'sum by (pair) (rate(dragoman_target_tokens_total{@, pair=~"$pair"}[$__rate_interval]))',
                    "written {{pair}}",
                ),
                (
                    'sum by (pair) (rate(dragoman_source_tokens_total{@, pair=~"$pair"}[$__rate_interval]))',
                    "read {{pair}}",
                ),
            ),
        ),
        Panel(
            "Waiting",
            "Segments and source tokens that wait for a row. The queue refuses beyond DRAGOMAN_MAX_QUEUED_TOKENS for "
            "each replica.",
            "short",
            (
                ('sum(dragoman_queued_segments{@, pair=~"$pair"})', "segments"),
                ('sum(dragoman_queued_tokens{@, pair=~"$pair"})', "tokens"),
            ),
        ),
        Panel(
            "Cache",
            "How segments were found: `hit` in the cache, `shared` with the same segment in flight, `miss`: decoded.",
            "percentunit",
            (
                (
                    "sum by (result) (rate(dragoman_cache_lookups_total{@}[$__rate_interval])) "
                    "/ on () group_left () (sum(rate(dragoman_cache_lookups_total{@}[$__rate_interval])) > 0)",
                    "{{result}}",
                ),
            ),
            stacked=True,
        ),
    ),
)

CAPACITY = Row(
    "Should we scale?",
    (
        Panel(
            "Replicas, now and wanted",
            "Replicas that answer; and how many the autoscaler's first metric asks for (token demand, over "
            f"{TARGET_TOKENS_PER_REPLICA:,} per second for each).",
            "short",
            (
                ("count(up{@} == 1)", "now"),
                (f"ceil(sum(pod:dragoman_token_demand:rate1m{{@}}) / {TARGET_TOKENS_PER_REPLICA})", "wanted"),
            ),
        ),
        Panel(
            "Token demand per replica",
            "Source tokens translated per second, plus those waiting, as if done within 30 s. The line is the "
            "autoscaler's target.",
            "short",
            (("pod:dragoman_token_demand:rate1m{@}", "{{instance}}"),),
            threshold=float(TARGET_TOKENS_PER_REPLICA),
        ),
        Panel(
            "Tokens in flight per replica",
            "Tokens being decoded plus tokens waiting: what a replica holds at one moment. Grows faster than the load.",
            "short",
            (("pod:dragoman_tokens_in_flight:sum{@}", "{{instance}}"),),
        ),
        Panel(
            "Busy loops",
            "The share of time that the decode loops of a replica work. Above 0.7 for long, waits grow fast.",
            "percentunit",
            (("pod:dragoman_engine_busy:ratio_rate2m{@}", "{{instance}}"),),
            threshold=0.7,
        ),
        Panel(
            "CPUs used",
            "CPU seconds per second, of each replica, and the threads that decode.",
            "short",
            (
                ("rate(process_cpu_seconds_total{@}[$__rate_interval])", "used {{instance}}"),
                ("max(dragoman_runtime_threads{@})", "threads"),
            ),
        ),
        Panel(
            "Throttling",
            "Seconds per second for which the CPU quota stopped the container. Anything but 0 makes steps slow.",
            "percentunit",
            (("rate(dragoman_cpu_throttled_seconds_total{@}[$__rate_interval])", "{{instance}}"),),
            threshold=0.1,
        ),
        Panel(
            "Memory",
            "Resident memory of each replica. Flat under any load; a slope is a leak.",
            "bytes",
            (("process_resident_memory_bytes{@}", "{{instance}}"),),
        ),
        Panel(
            "Restarts in the last hour",
            "How often the process of a replica changed. A release is one; more is a loop.",
            "short",
            (("changes(process_start_time_seconds{@}[1h])", "{{instance}}"),),
        ),
        Panel(
            "Bundles that serve",
            "Name, version and precision of what translates each pair, and how many replicas serve it. Two versions of "
            "one pair: a release is under way, or stuck.",
            "short",
            (
                (
                    "count by (pair, name, version, precision) (dragoman_bundle_info{@})",
                    "{{pair}} {{version}} {{precision}}",
                ),
                ('sum(increase(dragoman_bundle_loads_total{@, outcome="failed"}[1h]))', "failed loads"),
            ),
        ),
    ),
)

ROWS = (USERS, TIME, BATCH, CAPACITY)
