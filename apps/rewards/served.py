"""A reward model behind `rewardlab serve`, local or remote."""

from collections.abc import Sequence
from typing import Any

from ..serving.replicas import Replicas, open_replicas


def served(*, run: Any, urls: Sequence[str], in_flight: int = 2, patience: float = 120.0) -> Replicas:
    """The model behind one address, or several such as `urls=[http://a:8000, http://b:8000]`; see `Replicas`.

    It tokenizes and truncates by its contract, so its rewards are those of its folder. The servers' token is read from
    the environment variable REWARDLAB_TOKEN.
    """
    return open_replicas(urls, in_flight=in_flight, patience=patience)
