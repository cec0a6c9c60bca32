"""Many clients at once: what each saw, how long it took, and how far its scores are from the offline ones."""

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import psutil
from rewardlab.apps.serving.client import ScoringClient
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import Example, user_turn

WINDOW = 20
"""Memory is the median of so many looks, as it swings with the batch at hand."""
WORDS = [f"{a}{b}{c}" for a in ("ro", "ka", "mi", "su") for b in ("ba", "no", "li") for c in ("", "t", "ken")]


def conversations(number: int, seed: int = 0, longest: int = 240) -> list[Example]:
    """Prompts and answers of 1 to `longest` words, most of them short."""
    draw = random.Random(seed)
    lengths = [max(1, int(longest * draw.random() ** 3)) for _ in range(2 * number)]
    texts = [" ".join(draw.choices(WORDS, k=length)) for length in lengths]
    return [Example(user_turn(prompt), answer) for prompt, answer in zip(texts[::2], texts[1::2], strict=True)]


@dataclass
class Tally:
    """What many clients saw."""

    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    asked: int = 0
    answered: int = 0
    scores: int = 0
    worst: float = 0.0
    lock: Any = field(default_factory=threading.Lock)

    def status(self, response: httpx.Response) -> None:
        """One answer of the server."""
        with self.lock:
            self.statuses[str(response.status_code)] += 1

    def answer(self, seconds: float, difference: np.ndarray) -> None:
        """One call that got its scores."""
        with self.lock:
            self.answered += 1
            self.seconds.append(seconds)
            self.scores += len(difference)
            self.worst = max(self.worst, float(np.nan_to_num(np.abs(difference), nan=np.inf).max()))


def client_loop(url: str, examples: Sequence[Example], truth: np.ndarray, tally: Tally, stop: Any, seed: int) -> None:
    """One client asks for 1 to 8 scores at a time until told to stop, or until nobody answers."""
    draw = random.Random(seed)
    http = httpx.Client(timeout=60, trust_env=False, event_hooks={"response": [tally.status]})
    with ScoringClient(url, patience=20, http=http) as client:
        while not stop.is_set():
            places = draw.sample(range(len(examples)), draw.randint(1, 8))
            started = time.perf_counter()
            with tally.lock:
                tally.asked += 1
            try:
                scores = client.rate([examples[place] for place in places])
            except UsageError:
                continue
            tally.answer(time.perf_counter() - started, scores - truth[places])


def watched(process: psutil.Process, seconds: float) -> np.ndarray:
    """The resident size of a process every quarter of a second: [time in s, MiB]."""
    began, found = time.monotonic(), []
    while (now := time.monotonic() - began) < seconds:
        found.append((now, process.memory_info().rss / 2**20))
        time.sleep(0.25)
    return np.array(found)


def load(url: str, examples: Sequence[Example], truth: np.ndarray, clients: int, seconds: float, pid: int) -> dict:
    """Many clients at once; numbers for the table."""
    tally, stop = Tally(), threading.Event()
    arguments = [(url, examples, truth, tally, stop, seed) for seed in range(clients)]
    threads = [threading.Thread(target=client_loop, args=one, daemon=True) for one in arguments]
    for thread in threads:
        thread.start()
    memory = watched(psutil.Process(pid), seconds)
    stop.set()
    for thread in threads:
        thread.join(60)
    early, late = (float(np.median(memory[memory[:, 0] <= end, 1][-WINDOW:])) for end in (seconds / 4, seconds))
    p50, p99 = np.percentile(tally.seconds, [50, 99]).tolist()
    return {
        "clients": clients,
        "seconds": seconds,
        "statuses": dict(tally.statuses),
        "calls": tally.asked,
        "answered within the clients' patience": tally.answered / tally.asked,
        "scores": tally.scores,
        "scores per second": tally.scores / seconds,
        "largest difference to offline": tally.worst,
        "latency p50 (s)": p50,
        "latency p99 (s)": p99,
        "resident MiB": {f"{seconds / 4:g} s": early, f"{seconds:g} s": late, "highest": float(memory[:, 1].max())},
        "growth": late / early - 1,
    }
