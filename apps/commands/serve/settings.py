"""The settings of `rewardlab serve`."""

import os
from dataclasses import dataclass

from ....rm.errors import UsageError
from ...settings.fields import given, setting

TOKEN = "REWARDLAB_TOKEN"


@dataclass
class ServeConfig:
    """Which model, for whom, and how much at a time.

    Tokens are counted as the model reads them; a model without a tokenizer counts a quarter of the characters.
    """

    model: str = setting("Model folder or Hub id; may stand without the flag.", default="")
    host: str = setting("Address to listen on; another than 127.0.0.1 needs a token.", default="127.0.0.1")
    port: int = setting("Port; 0 takes a free one.", default=8000)
    token: str | None = setting(f"Bearer token that every request has to carry; by default {TOKEN}.", default=None)
    objective: str | None = setting(
        "Objective of /get_reward, which has one number an answer; by default the mean of all.", default=None
    )
    batch_tokens: int = setting("Largest padded batch.", default=16_384)
    queue_tokens: int = setting("While so much waits, requests are answered 429.", default=262_144)
    request_items: int = setting("Conversations of one request.", default=512)
    request_tokens: int = setting("Tokens of one request.", default=131_072)
    item_tokens: int = setting("Tokens of one conversation before truncation.", default=32_768)
    body_bytes: int = setting("Size of one request.", default=4_194_304)
    timeout: float = setting("Seconds until a request is answered 504 and leaves the queue.", default=60.0)
    drain: float = setting("Seconds that SIGTERM leaves for what is queued.", default=30.0)
    check: bool = setting("First prove that the model still gives its golden scores.", default=True)
    trust_remote_code: bool = setting("Run code that comes with a model.", default=False)

    def __post_init__(self):
        self.token = self.token or os.environ.get(TOKEN) or None

    def validate(self) -> None:
        """Refuse what cannot be run."""
        given("model", self.model)
        for name in ("batch_tokens", "queue_tokens", "request_items", "request_tokens", "item_tokens", "body_bytes"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name} is at least 1, got {getattr(self, name)}")
        for name in ("timeout", "drain"):
            if not getattr(self, name) > 0:
                raise UsageError(f"--{name} is above 0 seconds, got {getattr(self, name)}")
