"""The settings of `rewardlab serve`."""

import os
from dataclasses import dataclass

from ....rm.contract.loading_settings import bos_setting, eos_setting
from ....rm.contract.scoring_contract import Edge
from ....rm.io.api_keys import clean_token
from ....rm.settings import AT_LEAST_1, PORT, SECONDS, Settings, setting

TOKEN = "REWARDLAB_TOKEN"


@dataclass
class ServeConfig(Settings):
    """Settings of a reward server: model, address, authentication and limits.

    Tokens are counted with the model's tokenizer; without one, a token is four characters.
    """

    required = ("model",)
    model: str = setting("Model folder or Hub id; can be given as a positional argument.", default="")
    host: str = setting("Address to listen on; any other than 127.0.0.1 requires a token.", default="127.0.0.1")
    port: int = setting("Port; 0 selects a free one.", range=PORT, default=8000)
    token: str | None = setting(
        f"Bearer token required of every request; by default the environment variable {TOKEN}.", default=None
    )
    objective: str | None = setting(
        "Objective of /get_reward, which returns one number per response; by default the mean of all. Of a "
        "classifier without a scoring contract, the output that is the reward.",
        default=None,
    )
    bos: Edge | None = bos_setting()
    eos: Edge | None = eos_setting()
    batch_tokens: int = setting("Maximum size of a padded batch in tokens.", range=AT_LEAST_1, default=16_384)
    queue_tokens: int = setting(
        "Maximum number of queued tokens; beyond it, requests are answered with 429.", range=AT_LEAST_1, default=262_144
    )
    request_items: int = setting("Maximum number of conversations in a request.", range=AT_LEAST_1, default=512)
    request_tokens: int = setting("Maximum number of tokens in a request.", range=AT_LEAST_1, default=131_072)
    item_tokens: int = setting(
        "Maximum number of tokens in a conversation, before truncation.", range=AT_LEAST_1, default=32_768
    )
    body_bytes: int = setting("Maximum size of a request in bytes.", range=AT_LEAST_1, default=4_194_304)
    timeout: float = setting(
        "Seconds until a queued request is removed and answered with 504.", range=SECONDS, default=60.0
    )
    drain: float = setting("Seconds to finish queued requests after SIGTERM.", range=SECONDS, default=30.0)
    check: bool = setting("First check that the model reproduces its golden scores.", default=True)
    trust_remote_code: bool = setting("Run code that comes with a model.", default=False)

    def __post_init__(self):
        self.token = clean_token(self.token or os.environ.get(TOKEN))
