"""Settings of language models: by name at an endpoint, or local in this process."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...rm.errors import UsageError
from ...rm.io.server_rotation import addresses
from ...rm.registry.settings import ABOVE_0_OR_INF, AT_LEAST_0, AT_LEAST_1, DTYPES, SECONDS, Rule, Settings, setting


@dataclass
class ChatConfig(Settings):
    """Settings of language models: by name at an endpoint, or local in this process."""

    rules = (
        Rule(
            lambda config: config.model and not config.endpoint,
            "--model {model} is a model at a server; give the server's address with --endpoint",
        ),
        Rule(
            lambda config: config.prices and (config.prompt_price, config.completion_price) != (None, None),
            "--prices has every model's prices; remove --prompt_price and --completion_price",
        ),
        Rule(
            lambda config: (config.prompt_price is None) != (config.completion_price is None),
            "--prompt_price and --completion_price must be used together; give both, with 0 for a price of zero",
        ),
        Rule(
            lambda config: (
                config.max_cost is not None and config.endpoint and config.prompt_price is None and not config.prices
            ),
            "--max_cost {max_cost} needs prices; give --prompt_price and --completion_price, or --prices",
        ),
    )
    endpoint: list[str] = setting(
        [],
        "Address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1. Requests rotate over several "
        "servers with the same models; a failing server is skipped with back-off.",
        group="Language models that judge",
    )
    model: list[str] = setting([], "Model names at the endpoint.")
    local: list[str] = setting([], "Language models to run in this process: folders or Hub ids.")
    key_variable: str | None = setting(
        None,
        "Environment variable with the API key, by default OPENAI_API_KEY; '' for a server without a key.",
    )
    concurrency: int = setting(
        16, "Maximum number of concurrent requests.", group="Requests and cost", range=AT_LEAST_1
    )
    timeout: float = setting(120.0, "Time limit of one attempt in seconds.", range=SECONDS, advanced=True)
    retries: int = setting(6, "Number of retries after a transient error.", range=AT_LEAST_0, advanced=True)
    requests_per_minute: float = setting(
        math.inf, "Limit for each model at each server.", range=ABOVE_0_OR_INF, advanced=True
    )
    tokens_per_minute: float = setting(
        math.inf,
        "Limit of tokens per minute (prompt and reply together), for each model at each server.",
        range=ABOVE_0_OR_INF,
        advanced=True,
    )
    prices: str | None = setting(
        None, "TOML file with a table per model: prices of prompt and completion per million tokens."
    )
    prompt_price: float | None = setting(
        None, "Price per million prompt tokens, for all models at the endpoint.", range=AT_LEAST_0, advanced=True
    )
    completion_price: float | None = setting(
        None, "Price per million reply tokens, for all models at the endpoint.", range=AT_LEAST_0, advanced=True
    )
    max_cost: float | None = setting(
        None,
        "Limit of the total cost, including stored replies; no request that could exceed the limit is sent.",
        range=AT_LEAST_0,
    )
    batch_size: int = setting(16, "Batch size of local models.", group="Local models", range=AT_LEAST_1)
    dtype: str = setting("float32", "Precision of local models.", choices=DTYPES)
    chat_template: str | None = setting(None, "Chat template of local models: Jinja file, or plain.")
    trust_remote_code: bool = setting(False, "Run code that comes with a model.")

    def __post_init__(self):
        self.endpoint = [*addresses(self.endpoint, "--endpoint")] if self.endpoint else []
        super().__post_init__()

    @property
    def names(self) -> list[str]:
        """Names of all models, remote and local."""
        return [*self.model, *self.local]

    @property
    def loading(self) -> dict[str, bool]:
        """Return the options for opening models, except precision and chat template."""
        return {"trust_remote_code": True} if self.trust_remote_code else {}

    def validate(self, others: Sequence[str] = ()) -> None:
        """Raise a `UsageError` for contradictory settings. `others` are models named elsewhere in the settings."""
        super().validate()
        if self.endpoint and not [*self.model, *others]:
            raise UsageError(f"--endpoint {' '.join(self.endpoint)} needs the name of a model; give it with --model")

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine a reply.

        They must not change when a run is resumed; adding servers is allowed.
        """
        same = {name: vars(self)[name] for name in ("model", "local", "dtype", "chat_template")}
        return {"endpoint": self.endpoint[0] if self.endpoint else None} | same
