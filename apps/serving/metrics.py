"""Prometheus metrics: requests, items, tokens, the queue, batches and latency, without any request text."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from .request_queue import Batch, RequestQueue
from .requests import Item

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ITEMS = tuple(2.0**power for power in range(11))
TOKENS = tuple(float(2**power) for power in range(5, 18, 2))


class Metrics:
    """Metrics of one server, in a separate registry."""

    def __init__(self, contract: str):
        self.registry = CollectorRegistry()
        here = {"registry": self.registry, "namespace": "rewardlab"}
        self.requests = Counter("requests", "Requests answered.", ["route", "status"], **here)
        self.latency = Histogram("request_seconds", "From arrival to answer.", ["route"], buckets=SECONDS, **here)
        self.items = Counter("items", "Conversations scored.", **here)
        self.tokens = Counter("tokens", "Tokens scored.", **here)
        self.truncated = Counter("truncated", "Scored conversations that were truncated.", **here)
        self.omitted = Counter("omitted", "Scored conversations from which the chat template left out text.", **here)
        self.busy = Counter("scoring_seconds", "Time that the model computed.", **here)
        self.batch_items = Histogram("batch_items", "Conversations of a batch.", buckets=ITEMS, **here)
        self.batch_tokens = Histogram("batch_tokens", "Tokens of a batch.", buckets=TOKENS, **here)
        self.depth = Gauge("queue_items", "Conversations that wait.", **here)
        self.waiting = Gauge("queue_tokens", "Tokens that wait.", **here)
        Gauge("scoring_contract", "The contract that is served.", ["hash"], **here).labels(contract).set(1)

    def watch(self, queue: RequestQueue) -> None:
        """Register gauges that read the queue at every scrape."""
        self.depth.set_function(lambda: queue.depth)
        self.waiting.set_function(lambda: queue.tokens)

    def batch(self, batch: Batch) -> None:
        """Record a scored batch."""
        self.items.inc(batch.items)
        self.tokens.inc(batch.tokens)
        self.busy.inc(batch.seconds)
        self.batch_items.observe(batch.items)
        self.batch_tokens.observe(batch.tokens)

    def partial(self, items: Iterable[Item]) -> None:
        """Record the scored conversations that the model read only in part."""
        for item in items:
            self.truncated.inc(bool(item.truncated))
            self.omitted.inc(bool(item.omitted))

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Record an answered request."""
        self.requests.labels(route, str(status)).inc()
        self.latency.labels(route).observe(seconds)

    def page(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def totals(self) -> dict[str, int]:
        """Return the total numbers of requests and scored items."""
        sums = {"requests": 0.0, "items": 0.0, "tokens": 0.0}
        for metric in self.registry.collect():
            for sample in metric.samples:
                name = sample.name.removeprefix("rewardlab_").removesuffix("_total")
                if name in sums and sample.name.endswith("_total"):
                    sums[name] += sample.value
        return {name: int(value) for name, value in sums.items()}
