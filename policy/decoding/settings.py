"""Settings of a policy that generates in this process: base model, guides, sampling."""

from dataclasses import dataclass
from typing import Any

from ...rm.registry.settings import AT_LEAST_0, AT_LEAST_1, DTYPES, SEED, SHARE, SHARE_ABOVE_0, Settings, setting

SAMPLING = ("weight", "temperature", "top_k", "top_p", "min_p", "max_new_tokens")


@dataclass
class DecodingSettings(Settings):
    """Settings of a policy that generates in this process: base model, guides, sampling."""

    base: str | None = setting(
        None,
        "Base model to guide: path or Hub id; by default the base model of the adapter.",
        group="Models and guidance",
    )
    arm: list[str] = setting(
        [], "Autoregressive reward model: folder or Hub id, or one per objective as NAME=FOLDER; by default unguided."
    )
    preference: str | None = setting(
        None, "Weight of each objective, such as helpful=0.7,harmless=0.3.", requires="arm"
    )
    weight: float = setting(1.0, "Guidance weight, 1 / beta.", range=AT_LEAST_0, requires="arm")
    temperature: float = setting(1.0, "Sampling temperature; 0 decodes greedily.", group="Sampling", range=AT_LEAST_0)
    top_k: int = setting(0, "Sample from the k most probable tokens; 0 disables it.", range=AT_LEAST_0)
    top_p: float = setting(1.0, "Probability mass of nucleus sampling; 1 disables it.", range=SHARE_ABOVE_0)
    min_p: float = setting(0.0, "Smallest probability relative to the most probable token; 0 disables it.", range=SHARE)
    seed: int = setting(
        0, "Random seed; the generator of each prompt is seeded with this seed plus the prompt's index.", range=SEED
    )
    max_new_tokens: int = setting(256, "Maximum length of a completion in tokens.", range=AT_LEAST_1)
    stop: list[str] = setting([], "Strings that end a completion.")
    batch_size: int = setting(64, "Number of completions decoded together.", group="Run", range=AT_LEAST_1)
    chat_template: str | None = setting(None, "Base model's chat template: Jinja file, or 'plain'.")
    dtype: str | None = setting(None, "Precision of the base model; by default the reward model's.", choices=DTYPES)
    trust_remote_code: bool = setting(False, "Run code that comes with a model.")

    def request_settings(self, *, guided: bool) -> dict[str, Any]:
        """Return the fields of `Request` that are the same for all prompts. The weight is 0 without a guide."""
        common = {name: vars(self)[name] for name in SAMPLING} | {"stop": tuple(self.stop)}
        return common if guided else common | {"weight": 0.0}
