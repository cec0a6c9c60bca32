"""Language models built from settings, with short names and prices, or replaced by stubs for a dry run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...rm.errors import UsageError
from .chat import Chat
from .cost import FREE, Bill, Budget, CostEstimate, Prices, counter, estimate, read_prices
from .openai_endpoint import Endpoint
from .scripted import Scripted, dry_run_chat
from .settings import ChatConfig

TOTAL = "cost_at_most"
"""Name of the upper bound of the cost in an estimate."""
PRICES_MISSING = "; give them with --prompt_price and --completion_price, or with --prices"


@dataclass(frozen=True)
class LanguageModels:
    """The language models of the settings and of `others`, each by its short name. The settings must be valid."""

    config: ChatConfig
    others: Sequence[str] = ()

    @cached_property
    def names(self) -> dict[str, str]:
        """Full name of each model by its short name."""
        return short_names([*self.config.names, *self.others])

    @property
    def prices(self) -> dict[str, Prices | None]:
        """Prices by short name. None if the settings have no prices, `FREE` for a local model."""
        return {short: self._prices(name) for short, name in self.names.items()}

    def open(self) -> dict[str, Chat]:
        """Open every model and load local ones. All models at the endpoint share one cost limit."""
        budget = Budget(self.config.max_cost)
        return {short: self._open(name, budget) for short, name in self.names.items()}

    def dry_run(self) -> dict[str, Scripted]:
        """Return a chat for each model that records the requests of a dry run and sends none."""
        return {short: dry_run_chat(name) for short, name in self.names.items()}

    def estimate(
        self, chats: Mapping[str, Scripted], log: Callable[[str], None], *, tokenizer: str = "", total: str = TOTAL
    ) -> dict[str, Any]:
        """Log and return the estimated cost of each model, and the total under the name `total`. None without prices.

        Tokens are counted with the tokenizer if one is given. The total is an upper bound: it assumes that every
        conditional request is sent.
        """
        estimates: dict[str, CostEstimate] = {}
        for short, chat in chats.items():
            own_tokenizer = self.names[short] if self._is_local(self.names[short]) else ""
            estimates[short] = estimate(chat.asked, self.prices[short], counter(tokenizer or own_tokenizer))
            log(f"{short}: {estimates[short]}{PRICES_MISSING if estimates[short].most is None else ''}")
        costs = [model.most for model in estimates.values()]
        models = {short: model._asdict() for short, model in estimates.items()}
        return {"dry_run": True, "models": models, total: None if None in costs else sum(filter(None, costs))}

    def _is_local(self, name: str) -> bool:
        """Return whether a model runs in this process: named by `--local`, or an existing folder."""
        return name in self.config.local or (name not in self.config.model and Path(name).is_dir())

    def _prices(self, name: str) -> Prices | None:
        config = self.config
        if self._is_local(name):
            return FREE
        if config.prices:
            return read_prices(Path(config.prices), name)
        if config.prompt_price is None or config.completion_price is None:
            return None
        return Prices(config.prompt_price, config.completion_price)

    def _open(self, name: str, budget: Budget) -> Chat:
        config = self.config
        if self._is_local(name):
            from .local_model import local

            options = {"batch_size": config.batch_size, "dtype": config.dtype, "chat_template": config.chat_template}
            return local(name, **options, **config.loading)
        if not config.endpoint:
            raise UsageError(f"{name} is not a folder, and no server is given; give a server's address with --endpoint")
        options: dict[str, Any] = {} if config.key_variable is None else {"key_variable": config.key_variable}
        for setting in ("concurrency", "timeout", "retries", "requests_per_minute", "tokens_per_minute"):
            options[setting] = vars(config)[setting]
        endpoint = Endpoint(name, config.endpoint, prices=self._prices(name), **options)
        endpoint.bill = Bill(endpoint.prices, budget)
        return endpoint


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return short name -> name: the last part of a path, or the whole path if that is not unique.

    >>> short_names(["qwen", "runs/judge/", "runs/a/rm", "runs/b/rm"])
    {'qwen': 'qwen', 'judge': 'runs/judge/', 'runs/a/rm': 'runs/a/rm', 'runs/b/rm': 'runs/b/rm'}
    """
    distinct = list(dict.fromkeys(names))
    last = [Path(name).name for name in distinct]
    return {
        last_part if last.count(last_part) == 1 else name: name for last_part, name in zip(last, distinct, strict=True)
    }
