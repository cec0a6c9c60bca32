"""The settings of `rewardlab sample`."""

from dataclasses import dataclass
from typing import Literal

from ....policy.decoding.settings import DecodingSettings
from ....rm.io.server_rotation import addresses
from ....rm.registry.settings import AT_LEAST_0, AT_LEAST_1, SHARE, SHARE_ABOVE_0, Rule, changed_settings, setting

SELECTIONS = ("best", "pairs", "top")
OF_PAIRS = ("rejected", "margin", "min_wins")
"""Settings of the selection of pairs."""


@dataclass
class SampleConfig(DecodingSettings):
    """Settings of sampling: prompts, policy, rewards, and the selection of rows."""

    required = ("data", "reward", "output", "select")
    rules = (
        Rule(
            lambda settings: not (settings.base or settings.arm or settings.endpoint),
            "--base is missing; name a language model, or a server with --endpoint and --model",
        ),
        Rule(
            lambda settings: bool(settings.endpoint) != bool(settings.model),
            "--endpoint and --model are given together; add the server's address, or the name of its model",
        ),
        Rule(
            lambda settings: settings.endpoint and (settings.base or settings.arm),
            "the policy is {model} at --endpoint {endpoint}; leave --base and --arm out",
        ),
        Rule(
            lambda settings: settings.temperature == 0 and settings.n > 1,
            "--temperature 0 makes all {n} completions of a prompt equal; raise the temperature, or use --n 1",
        ),
        Rule(lambda settings: settings.n < 2 and "pairs" in settings.select, "--select pairs needs --n 2 or more"),
        Rule(
            lambda settings: "pairs" not in settings.select and {*OF_PAIRS} & {*changed_settings(settings)},
            "--rejected, --margin and --min_wins belong to --select pairs; add --select pairs, or remove them",
        ),
        Rule(
            lambda settings: "top" not in settings.select and "share" in changed_settings(settings),
            "--share {share} belongs to --select top; add --select top, or remove --share",
        ),
    )
    data: list[str] = setting(
        [], "Prompt files, preference files, .txt with a prompt per line, or hub-id[@revision][:split].", group="Data"
    )
    output: str = setting("", "Run folder: all completions, and files of selected rows and random controls.")
    on_bad_row: Literal["refuse", "skip"] = setting("refuse", "What to do with a row that has no prompt.")
    reward: list[str] = setting(
        [],
        "Rewards as NAME=SOURCE: a model, file.py:function or judge(...). The total reward is their mean.",
        group="Rewards and selection",
    )
    watch: list[str] = setting([], "More rewards as NAME=SOURCE, which are reported and do not affect the selection.")
    on_fault: Literal["stop", "skip"] = setting(
        "stop", "What to do if a reward function raises an error or returns infinity; skip makes the reward missing."
    )
    n: int = setting(8, "Number of completions of each prompt.", range=AT_LEAST_1)
    select: list[str] = setting(
        ["best"],
        "Files to write: best (one completion of each prompt), pairs (chosen and rejected), top (the best overall).",
        choices=SELECTIONS,
    )
    rejected: Literal["worst", "random"] = setting("worst", "Rejected completion of a pair: the worst or a random one.")
    margin: float = setting(0.0, "Smallest difference in reward of a pair.", range=AT_LEAST_0)
    min_wins: float = setting(
        0.0,
        "Smallest share of an ensemble's members, or of several rewards, that prefer the chosen completion of a pair.",
        range=SHARE,
    )
    length_penalty: float = setting(
        0.0, "Length penalty of the selection, in reward per unit of length.", range=AT_LEAST_0
    )
    length_unit: Literal["characters", "share"] = setting(
        "characters",
        "Unit of length: characters, or tokens as a share of the prompt's longest completion.",
        requires="length_penalty",
    )
    share: float = setting(0.1, "Share of all completions that top selects.", range=SHARE_ABOVE_0)
    endpoint: list[str] = setting(
        [],
        "Addresses of one or more OpenAI-compatible servers of the policy, such as http://127.0.0.1:8000/v1.",
        group="Policy behind a server",
    )
    model: str | None = setting(None, "Name of the policy at the server.")
    key_variable: str | None = setting(
        None,
        "Environment variable with the API key, by default OPENAI_API_KEY; '' for a server that needs none.",
        requires="endpoint",
    )
    concurrency: int = setting(16, "Maximum number of concurrent requests.", range=AT_LEAST_1, requires="endpoint")
    resume: bool = setting(False, "Continue a run that was cut off.", group="Run")
    overwrite: bool = setting(False, "Replace the run folder.")

    def __post_init__(self) -> None:
        """Check the addresses of servers."""
        self.endpoint = [*addresses(self.endpoint, "--endpoint")] if self.endpoint else []
        super().__post_init__()
