"""Language models as chats: opening, stored replies, usage counts, and dry runs for a cost estimate."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ....judges.backends.chat import Arrived, Ask, Chat, Reply, with_earlier
from ....judges.backends.cost import FREE, Bill, Budget, Prices, counter, estimate, read_prices
from ....judges.backends.openai_endpoint import Endpoint
from ....judges.backends.scripted import Scripted, dry_run_chat
from ....judges.store import FILE, LOCK, Store, StoredReplies
from ....rm.errors import DataError, UsageError
from ...runs.run_folder import log, trust
from .settings import ChatConfig

REPLIES = "replies"
MOST = "cost_at_most"
PRICES_MISSING = "; give them with --prompt_price and --completion_price, or with --prices"
SHOWN = 160  # characters of an error in a message

# ---- opening ----


def open_chats(config: ChatConfig, others: Sequence[str] = ()) -> dict[str, Chat]:
    """Open every model of the settings, and `others`, by its short name; local ones are loaded.

    All models at the endpoint share the limit of cost. The settings were checked before (`validate`).
    """
    budget = Budget(config.max_cost)
    return {short: _open(name, config, budget) for short, name in short_names([*config.names, *others]).items()}


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return short name -> name: the last part of a path, or the whole path if that is not unique.

    >>> short_names(["qwen", "runs/judge/", "runs/a/rm", "runs/b/rm"])
    {'qwen': 'qwen', 'judge': 'runs/judge/', 'runs/a/rm': 'runs/a/rm', 'runs/b/rm': 'runs/b/rm'}
    """
    distinct = list(dict.fromkeys(names))
    last = [Path(name).name for name in distinct]
    return {
        last_part if last.count(last_part) == 1 else name: name for last_part, name in zip(last, distinct, strict=True)
    }


def is_local(name: str, config: ChatConfig) -> bool:
    """Return whether a model runs in this process: given with --local, or an existing folder."""
    return name in config.local or (name not in config.model and Path(name).is_dir())


def prices_of(name: str, config: ChatConfig) -> Prices | None:
    """Return the prices of a model, None if the settings have none; a local one is free."""
    if is_local(name, config):
        return FREE
    if config.prices:
        return read_prices(Path(config.prices), name)
    if config.prompt_price is None or config.completion_price is None:
        return None
    return Prices(config.prompt_price, config.completion_price)


def _open(name: str, config: ChatConfig, budget: Budget) -> Chat:
    if is_local(name, config):
        from ....judges.backends.local_model import local

        options = {"batch_size": config.batch_size, "dtype": config.dtype, "chat_template": config.chat_template}
        return local(name, **options, **trust(config))
    if not config.endpoint:
        raise UsageError(f"{name}: no folder of that name, and no server to ask for it; give one with --endpoint")
    options = {} if config.key_variable is None else {"key_variable": config.key_variable}
    for setting in ("concurrency", "timeout", "retries", "requests_per_minute", "tokens_per_minute"):
        options[setting] = getattr(config, setting)
    opened = Endpoint(name, config.endpoint, prices=prices_of(name, config), **options)
    opened.bill = Bill(opened.prices, budget)
    return opened


def count_stored(chats: Iterable[Chat], store: Store) -> None:
    """Count the cost of the replies in a folder towards the chats' limit when a run is resumed."""
    for chat in chats:
        if isinstance(chat, Endpoint):
            chat.bill.budget.spent = store.spent


# ---- asking ----


class Asked:
    """A chat that counts requests; with `on_fault` stop, requests without a reply end the run."""

    def __init__(self, chat: Chat, prices: Prices | None = FREE, on_fault: str = "abstain"):
        self.chat, self.name, self.prices, self.on_fault = chat, chat.name, prices, on_fault
        self.total, self.replies = Reply("", "stop", requests=0), 0
        """Tokens and requests of all replies, and the number of those with a text."""
        self.faults: Counter[str] = Counter()

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """See `Chat`."""
        replies = self.chat.ask(asks, arrived)
        self.replies += sum(not reply.error for reply in replies)
        self.total = with_earlier(self.total, replies)
        faults = [reply.error for reply in replies if reply.error]
        self.faults.update(faults)
        if faults and self.on_fault == "stop":
            raise DataError(
                f"{len(faults)} of {len(asks)} requests have no reply, such as: {faults[0][:SHOWN]}; what has arrived "
                "is kept: go on with --resume, or do without the rest with --on_fault abstain"
            )
        return replies

    def account(self) -> dict[str, Any]:
        """Return the number of requests, tokens and cost; stored replies count as if they were requested now.

        `calls` are all requests that were or may have been billed, with those that had no reply and were sent again;
        the tokens of `estimated` of them are upper bounds. The cost is None without prices.
        """
        return {
            "calls": self.total.requests,
            "estimated": self.total.estimated,
            "without_reply": self.faults.total(),
            "prompt_tokens": self.total.prompt_tokens,
            "completion_tokens": self.total.completion_tokens,
            "cost": self.prices and self.prices.of(self.total),
        }


@contextmanager
def with_stored_replies(
    chats: Mapping[str, Chat], folder: Path, config: ChatConfig, names: Mapping[str, str], on_fault: str
) -> Iterator[dict[str, Asked]]:
    """Yield the chats by their short `names`; within the block replies are stored in a folder.

    The folder is removed if no reply arrived and nothing was paid.
    """
    store = Store(folder / REPLIES)
    count_stored(chats.values(), store)
    try:
        prices = {short: prices_of(name, config) for short, name in names.items()}
        yield {
            short: Asked(StoredReplies(chat, store, prices=prices[short] or FREE), prices[short], on_fault)
            for short, chat in chats.items()
        }
    finally:
        store.close()
        (store.folder / LOCK).unlink(missing_ok=True)
        if not store.replies and not store.spent:
            (store.folder / FILE).unlink()
            store.folder.rmdir()


# ---- dry runs ----


def dry_run_chats(names: Mapping[str, str]) -> dict[str, Scripted]:
    """Return chats without a model by the short names of models."""
    return {short: dry_run_chat(name) for short, name in names.items()}


def log_estimate(
    chats: Mapping[str, Scripted], config: ChatConfig, names: Mapping[str, str], tokenizer: str = "", total: str = MOST
) -> dict[str, Any]:
    """Log and return the estimated cost of each model, and of all under the name `total`; None without prices.

    The total is an upper bound, as if every later question were asked.
    """
    estimates = {}
    for short, chat in chats.items():
        tokenizer_name = names[short] if is_local(names[short], config) else ""
        cost_estimate = estimate(chat.asked, prices_of(names[short], config), counter(tokenizer or tokenizer_name))
        log(f"{short}: {cost_estimate}{PRICES_MISSING if cost_estimate.most is None else ''}")
        estimates[short] = cost_estimate._asdict()
    most = [estimated["most"] for estimated in estimates.values()]
    return {"dry_run": True, "models": estimates, total: None if None in most else sum(most)}
