"""A reward model behind `rewardlab serve`, local or remote."""

from collections.abc import Sequence
from typing import Any

from ..serving.replicas import Replicas, open_replicas


def served(*, run: Any, urls: Sequence[str], in_flight: int = 2, patience: float = 120.0) -> Replicas:
    """Reward by a served model at one or several addresses, such as `urls=[http://a:8000, http://b:8000]`.

    The server tokenizes and truncates by the model's scoring contract, so the rewards equal those of the model's
    folder. The access token is read from the environment variable REWARDLAB_TOKEN. For retries, see `Replicas`.
    """
    return open_replicas(urls, in_flight=in_flight, patience=patience)
