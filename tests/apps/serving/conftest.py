"""Small models, a model that can be made to wait, and servers in threads."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import numpy as np
import pytest
from rewardlab.apps.serving.process import PROBE
from rewardlab.apps.serving.settings import ServeConfig
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.kinds.scalar.model import ScalarRewardModel, scalar_from_config
from rewardlab.rm.types import Example, user_turn

from tests.conftest import PATIENCE
from tests.stand_ins.scoring_server import serve_in_thread

TEXTS = [f"the quick brown fox number {number} jumps over the lazy dog" for number in range(60)]


def turns(example: Example) -> list[dict[str, str]]:
    return [*map(dict, example.prompt), {"role": "assistant", "content": example.completion}]


def asks(examples) -> dict[str, Any]:
    return {"conversations": [turns(example) for example in examples]}


EXAMPLES = [Example(user_turn(text), "the dog " * (1 + place % 9)) for place, text in enumerate(TEXTS)]


@pytest.fixture(scope="session")
def words():
    return small_tokenizer(TEXTS, 300)


@pytest.fixture(scope="session")
def model(words) -> ScalarRewardModel:
    """Two objectives, at most 64 tokens."""
    return scalar_from_config(small_config(words), words, objectives=("helpful", "brief"), max_length=64)


class GatedModel:
    """An answer's reward is its length; it waits for its gate and keeps what it was asked."""

    def __init__(self, *, refuses: str = "\n"):
        self.contract = ScoringContract(kind="linear", dtype="float64")
        self.gate, self.busy, self.refuses = threading.Event(), threading.Event(), refuses
        self.batches: list[list[str]] = []

    def rate(self, examples) -> np.ndarray:
        if [*examples] == [PROBE]:
            return np.zeros((1, 1))
        self.batches.append([example.completion for example in examples])
        self.busy.set()
        assert self.gate.wait(PATIENCE)
        if any(self.refuses in example.text for example in examples):
            raise RuntimeError(f"cannot read {self.refuses}")
        return np.array([[float(len(example.completion))] for example in examples])


@pytest.fixture
def gated() -> Iterator[GatedModel]:
    model = GatedModel()
    yield model
    model.gate.set()


@pytest.fixture
def serve():
    """A server for a model with the settings given; closed at the end."""
    with ExitStack() as stack:
        yield lambda model, **settings: stack.enter_context(serve_in_thread(model, config(**settings)))


def config(**settings: Any) -> ServeConfig:
    return ServeConfig(**({"model": "rm", "port": 0} | settings))


@pytest.fixture(scope="module")
def url(model) -> Iterator[str]:
    with serve_in_thread(model, config()) as address:
        yield address


@pytest.fixture(scope="session")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE, trust_env=False) as client:
        yield client
