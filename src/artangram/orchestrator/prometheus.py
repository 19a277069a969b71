"""Metrics of a cluster for Prometheus: how actions of each kind end, and what is in use now.

- Actions are counted as they end; the rest is read from a status at every scrape.
- What jobs used is read from their accounts, of which the first `MOST_JOBS` have figures.
- Callers make kinds up, so only the first `MOST_KINDS` of moderate length have figures of their
  own; all others are counted as `OTHER`.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from artangram.orchestrator.records import ActionResult, ClusterStatus
from artangram.orchestrator.use import UseReport

MOST_KINDS = 100
MOST_KIND_CHARACTERS = 100
MOST_JOBS = 100
"""Pairs of job and task."""
OTHER = "other"
BUCKETS_S = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)
"""From a tool call to a long test suite."""

Rows = list[tuple[tuple[str, ...], float]]


class Exposition:
    """See the module."""

    def __init__(
        self,
        status: Callable[[], ClusterStatus],
        *,
        use: Callable[[], UseReport] | None = None,
    ) -> None:
        self._registry = CollectorRegistry()
        self._kinds: set[str] = set()
        self._act = self._histogram("action_completion", "From submission to end, by kind.")
        self._wait = self._histogram("action_wait", "From submission to start, by kind.")
        self._ended = Counter(
            "artangram_actions_ended",
            "Actions, by kind and how they ended.",
            ["kind", "outcome"],
            registry=self._registry,
        )
        self._core_s = Counter(
            "artangram_core_seconds",
            "Cores held times how long, by kind.",
            ["kind"],
            registry=self._registry,
        )
        self._registry.register(_Now(status))
        if use is not None:
            self._registry.register(_Used(use))

    def count(self, result: ActionResult) -> None:
        """An action has ended."""
        record = result.record
        kind = self._known(record.kind)
        self._ended.labels(kind, record.outcome.value).inc()
        self._core_s.labels(kind).inc(result.core_s)
        self._act.labels(kind).observe(record.act_s)
        self._wait.labels(kind).observe(record.wait_s)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)

    def _known(self, kind: str) -> str:
        if len(self._kinds) < MOST_KINDS and len(kind) <= MOST_KIND_CHARACTERS:
            self._kinds.add(kind)
        return kind if kind in self._kinds else OTHER

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(
            f"artangram_{name}_seconds", text, ["kind"], buckets=BUCKETS_S, registry=self._registry
        )


class _Now(Collector):
    """Gauges, read when asked."""

    def __init__(self, status: Callable[[], ClusterStatus]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        for name, (text, labels, rows) in _gauges(self._status()).items():
            family = GaugeMetricFamily(f"artangram_{name}", text, labels=labels)
            for values, value in rows:
                family.add_metric(values, value)
            yield family

    def describe(self) -> Iterator[Metric]:
        """Nothing: the cluster is asked at a scrape, not at registration."""
        return iter(())


_USED = {
    "core_s": ("core_seconds", "Cores held times how long"),
    "memory_mb_s": ("memory_megabyte_seconds", "Memory of sandboxes times how long"),
    "device_s": ("device_seconds", "Devices held times how long"),
    "slot_s": ("function_slot_seconds", "Function slots held times how long"),
    "calls": ("api_calls", "Requests to outside APIs"),
    "tokens": ("tokens", "Tokens that answers of APIs and services tell"),
    "actions": ("actions", "Actions that ended"),
}


class _Used(Collector):
    """Counters by job and task, read when asked."""

    def __init__(self, use: Callable[[], UseReport]) -> None:
        self._use = use

    def collect(self) -> Iterator[Metric]:
        rows = self._use().rows
        # In the order in which they came, so that no row goes away again.
        shown, rest = rows[:MOST_JOBS], UseReport(began_at=0.0, at=0.0, rows=rows[MOST_JOBS:])
        for field, (name, text) in _USED.items():
            labels = ["job", "task"]
            family = CounterMetricFamily(f"artangram_job_{name}", f"{text}, by job.", labels=labels)
            for row in shown:
                family.add_metric((row.job, row.task), getattr(row, field))
            if rest.rows:
                family.add_metric((OTHER, OTHER), getattr(rest.total, field))
            yield family

    def describe(self) -> Iterator[Metric]:
        """Nothing: as above."""
        return iter(())


def _gauges(now: ClusterStatus) -> dict[str, tuple[str, tuple[str, ...], Rows]]:
    """What is called what, its labels, and its values."""
    services, apis, functions = now.services, now.apis, now.functions
    found: dict[str, tuple[str, tuple[str, ...], Rows]] = {
        "actions_queued": ("Actions that wait.", (), [((), now.queued)]),
        "actions_running": ("Actions that hold a lease.", (), [((), now.running)]),
        "trajectories": ("Open trajectories.", (), [((), now.trajectories)]),
        "warnings": ("What an operator should look after.", (), [((), len(now.warnings))]),
        "draining": ("1 while nothing new is taken.", (), [((), now.is_draining)]),
        "cores_used": ("By node.", ("node",), [((n.node,), n.cores_used) for n in now.nodes]),
        "service_copies": (
            "Of a service, on devices.",
            ("service",),
            [((s.service,), len(s.resident)) for s in services],
        ),
        "calls_queued": (
            "Calls that wait for a service or an API.",
            ("callee",),
            [*(((s.service,), s.queued) for s in services), *(((a.api,), a.queued) for a in apis)],
        ),
        "api_window_used": (
            "Calls in the present window, by API.",
            ("api",),
            [((a.api,), a.window_used) for a in apis],
        ),
    }
    if functions is not None:
        rows: Rows = [(("busy",), functions.busy), (("alive",), functions.workers)]
        found["function_workers"] = ("Workers of functions, by state.", ("state",), rows)
    return found
