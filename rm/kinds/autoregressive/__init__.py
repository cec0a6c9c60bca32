"""Autoregressive reward model: the log-probability of a completion under a causal language model is its reward."""

from dataclasses import dataclass
from typing import Literal

from pydantic import FiniteFloat

from ...adapters import ADAPTER_OF_METHOD
from ...contract.scoring_contract import ScoringContract
from ...registry import Kind
from ...registry.settings import ABOVE_0, AT_LEAST_0, Range, Rule, setting
from .._settings import BackboneSettings, EosSettings, LabelSettings, StreamSettings


def autoregressive() -> Kind:
    """Reward r(x, y) = β Σ_t log π_r(y_t | x, y_<t) of a causal language model π_r; for GenARM, PARM or UniARM."""
    return Kind(
        __name__,
        "model:load_autoregressive",
        "training:AutoregressiveTraining",
        AutoregressiveSettings,
        contract=AutoregressiveContract,
        by_gradient=True,
    )


HALF = Range("a share in [0, 0.5)", 0, 0.5, below=True)


@dataclass
class AutoregressiveSettings(LabelSettings, BackboneSettings, EosSettings, StreamSettings):
    """Settings of a guide (an autoregressive reward model that guides decoding): adapter, loss, sampled preferences."""

    several = True
    rules = (
        Rule(
            lambda settings: not settings.model,
            "an autoregressive reward model needs the language model to start from; name it with --model",
        ),
        Rule(
            lambda settings: settings.adapter == "none" and len(settings.objectives) > 1,
            "without an adapter a model learns one objective, got {objectives}; name one, or choose an --adapter",
        ),
        Rule(
            lambda settings: settings.concentration != 0.5 and settings.preferences != "dirichlet",
            "--concentration {concentration} is for --preferences dirichlet; remove one of them",
        ),
    )
    adapter: str = setting(
        "uniarm",
        "Adapter to train, or the method that uses it; none trains all weights.",
        group="Guides (--kind autoregressive)",
        choices=("none", *ADAPTER_OF_METHOD, *ADAPTER_OF_METHOD.values()),
    )
    texts: list[str] = setting(
        [], "A description of each objective, for --embedding text; by default its name.", advanced=True
    )
    shared_rank: int = setting(
        0, "Rank of PARM's preference-independent branch, beside --lora_r.", range=AT_LEAST_0, advanced=True
    )
    from_layer: int = setting(
        0, "First decoder layer with an adapter; late-branching guides share the layers below it.", range=AT_LEAST_0
    )
    generator: str = setting(
        "linear", "UniARM's generator of preference-dependent features.", choices=("linear", "trunk", "alpha")
    )
    embedding: str = setting("text", "Embedding of an objective.", choices=("text", "one_hot", "random"), advanced=True)
    scale: bool = setting(True, "UniARM: scale the features.", advanced=True)
    shift: bool = setting(True, "UniARM: shift the features.", advanced=True)
    train_beta: float = setting(0.01, "β of the loss, and factor of the reward.", range=ABOVE_0)
    objective_betas: list[str] = setting(
        [],
        "β of the loss for single objectives, as NAME=β (else --train_beta); a larger β makes a weaker guide.",
        advanced=True,
    )
    ignore_ties: bool = setting(False, "Treat a tie as unlabelled, instead of learning equal log-probabilities.")
    rate_of_a: float = setting(1.0, "Learning rate of the adapter's A, relative to --learning_rate.", range=ABOVE_0)
    rate_of_modulation: float = setting(
        1.0,
        "Learning rate of UniARM's generators or PARM's cores, relative to --learning_rate.",
        range=ABOVE_0,
        advanced=True,
    )
    monitor_steps: int = setting(
        25,
        "Steps between measurements of whether the guide reads its context; 0: none.",
        range=AT_LEAST_0,
        advanced=True,
    )
    restarts: int = setting(
        0,
        "Restarts after a collapse in the first half of training; each halves the learning rate of A.",
        range=AT_LEAST_0,
    )
    global_weight: float = setting(0.5, "Weight of the global term of the loss.", range=AT_LEAST_0)
    global_form: str = setting(
        "scalarised", "Global term's form.", choices=("scalarised", "mixed_label", "vertices", "scores"), advanced=True
    )
    label_smoothing: float = setting(0.0, "Assumed share of wrong labels, in [0, 0.5).", range=HALF)
    preferences: str = setting(
        "dirichlet", "Distribution of training preferences.", choices=("dirichlet", "vertices", "grid")
    )
    concentration: float = setting(0.5, "Concentration of the Dirichlet distribution.", range=ABOVE_0)
    per_batch: bool = setting(False, "Sample one preference per batch, not per pair, for comparison.", advanced=True)
    subtract_reference: bool = setting(False, "Subtract the log-probabilities of the base model.")
    normalise_length: bool = setting(False, "Average log-probabilities over tokens instead of summing.", advanced=True)
    token_baseline: str = setting(
        "none",
        "Baseline of every token's log-probability: the base model's mean, or its expectation at each token.",
        choices=("none", "constant", "expected"),
    )
    span: bool = setting(
        False, "UniARM: replace objective vectors by their K coordinates in their span.", advanced=True
    )

    def __post_init__(self) -> None:
        """Set the adapter that belongs to the method."""
        super().__post_init__()
        self.adapter = ADAPTER_OF_METHOD.get(self.adapter, self.adapter)


@dataclass(frozen=True, kw_only=True)
class LogprobContract(ScoringContract):
    """Scoring contract fields of autoregressive and implicit reward models, whose reward sums log-probabilities."""

    beta: FiniteFloat
    """Factor β of the sum of log-probabilities."""


@dataclass(frozen=True, kw_only=True)
class AutoregressiveContract(LogprobContract):
    """Scoring contract fields of autoregressive reward models: constants added to log-probabilities of tokens."""

    token_offset: FiniteFloat | None = None
    """Nats added to the log-probability of every token."""
    token_baseline: Literal["base"] | None = None
    """`base`: subtract from each token's log-probability its expectation under the base model."""
