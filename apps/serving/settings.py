"""Settings of the scoring server, which are those of `rewardlab serve`."""

import os
from dataclasses import dataclass

from ...rm.contract.loading_settings import bos_setting, eos_setting
from ...rm.contract.scoring_contract import Edge
from ...rm.io.api_keys import clean_token
from ...rm.registry.settings import AT_LEAST_1, PORT, SECONDS, Settings, setting

TOKEN = "REWARDLAB_TOKEN"


@dataclass
class ServeConfig(Settings):
    """Settings of a reward server: model, address, authentication and limits.

    Tokens are counted with the model's tokenizer; without one, a token is four characters.
    """

    required = ("model",)
    model: str = setting("", "Model folder or Hub id; can be given as a positional argument.")
    host: str = setting("127.0.0.1", "Address to listen on; any other than 127.0.0.1 requires a token.")
    port: int = setting(8000, "Port; 0 selects a free one.", range=PORT)
    token: str | None = setting(
        None, f"Bearer token that every request must have; by default the environment variable {TOKEN}."
    )
    objective: str | None = setting(
        None,
        "Objective that /get_reward returns; by default the mean of all objectives. For a classifier without a scoring "
        "contract (scoring.json), the output that is the reward.",
    )
    bos: Edge | None = bos_setting()
    eos: Edge | None = eos_setting()
    batch_tokens: int = setting(16_384, "Maximum size of a padded batch in tokens.", range=AT_LEAST_1)
    queue_tokens: int = setting(
        262_144, "Maximum number of queued tokens; beyond it, requests are answered with 429.", range=AT_LEAST_1
    )
    request_items: int = setting(512, "Maximum number of conversations in a request.", range=AT_LEAST_1)
    request_tokens: int = setting(131_072, "Maximum number of tokens in a request.", range=AT_LEAST_1)
    item_tokens: int = setting(
        32_768, "Maximum number of tokens in a conversation, before truncation.", range=AT_LEAST_1
    )
    body_bytes: int = setting(4_194_304, "Maximum size of a request in bytes.", range=AT_LEAST_1)
    timeout: float = setting(60.0, "Seconds until a queued request is removed and answered with 504.", range=SECONDS)
    drain: float = setting(30.0, "Seconds to finish queued requests after SIGTERM.", range=SECONDS)
    check: bool = setting(True, "First check that the model reproduces the scores that are stored beside its weights.")
    trust_remote_code: bool = setting(False, "Run code that comes with a model.")

    def __post_init__(self):
        self.token = clean_token(self.token or os.environ.get(TOKEN))
