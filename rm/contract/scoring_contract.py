"""The scoring contract: everything besides the weights that determines a completion's reward."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError

from ..errors import UNREADABLE, DataError
from ..io.checked_files import from_json
from ..types import content_hash

FILE = "scoring.json"
Edge = Literal["template", "once"]
"""Policy of BOS or EOS: as the chat template writes it, or added once where it did not."""
PLAIN_TEMPLATE = "{% for m in messages %}{{ m.content }}{% if not loop.last %}{{ '\n\n' }}{% endif %}{% endfor %}"


@dataclass(frozen=True)
class ScoringContract:
    """How text becomes a reward. The same weights with two different contracts are two different reward models.

    `kind` names the module of `rm.kinds` that loads the folder. A field that does not apply to a kind is None.
    """

    kind: str
    objectives: Annotated[tuple[str, ...], Field(min_length=1)] = ("reward",)
    """Names of the K numbers, in order."""
    dtype: Annotated[str, Field(pattern="^(float32|float64|bfloat16|float16)$")] = "float32"
    """The precision of the computation; rewards are returned as float64."""
    tokenizer: str | None = None
    """Content hash of the vocabulary."""
    template: str | None = None
    """Content hash of the chat template."""
    date_string: str = "26 Jul 2024"
    """The date for templates that print one (Llama 3), fixed so that scores do not change from day to day."""
    bos: Edge | None = None
    """`template`: as the template renders it. `once`: prepended unless the template already did."""
    eos: Edge | None = None
    """`template`: as the template renders it. `once`: appended unless the text already ends with it."""
    truncation: Literal["left", "right"] | None = None
    """The side from which too long sequences are cut. `left` keeps the end of the completion; a leading BOS stays."""
    max_length: PositiveInt | None = None
    """Maximum number of tokens, special tokens included."""
    pooling: Literal["last", "first", "mean", "model"] | None = None
    """Position that the head reads, by attention mask and not by token id. `model`: pooling of an encoder's head."""
    beta: FiniteFloat | None = None
    """Factor of a reward that sums log-probabilities."""
    token_offset: FiniteFloat | None = None
    """Nats added to the log-probability of every token of such a reward."""
    token_baseline: Literal["base"] | None = None
    """`base`: from every token's log-probability its expectation under the base model is subtracted."""
    step_separator: str | None = None
    """Text between the steps of a completion, for kinds that score steps."""
    step_token: str | None = None
    """Token that such a kind reads in place of every separator."""
    aggregate: Literal["min", "product", "last", "mean"] | None = None
    """Combination of the steps' scores to one reward."""
    latent_steps: NonNegativeInt | None = None
    """Largest number T of steps in hidden space that such a kind takes before it scores."""
    latent_depth: Literal["fixed", "head"] | None = None
    """`fixed`: T steps for every conversation. `head`: a head of the model chooses 0 to T of them."""
    reward_mean: FiniteFloat | None = None
    """Mean that the head subtracts from the reward of a model whose own software normalises rewards, in its units."""
    reward_std: FiniteFloat | None = None
    """Standard deviation by which the head then divides it."""
    backbone: str | None = None
    """Content hash of a frozen model that is not stored in the folder."""
    weights: str | None = None
    """Quantisation, and hash of the file, of weights that were quantised and are dequantised now."""

    def __post_init__(self) -> None:
        if repeated := [name for name in self.objectives if self.objectives.count(name) > 1]:
            raise DataError(f"two objectives are named '{repeated[0]}'; give each a name of its own")

    def hash(self) -> str:
        """Return sixteen hexadecimal digits of the fields that differ from their defaults; equal in every process."""
        stated = {field.name: getattr(self, field.name) for field in fields(self)}
        return content_hash({name: stated[name] for name in stated if stated[name] != _DEFAULTS.get(name)})

    def save(self, folder: Path) -> None:
        """Write `scoring.json`."""
        (folder / FILE).write_text(json.dumps(asdict(self) | {"hash": self.hash()}, indent=2) + "\n")


_DEFAULTS = {field.name: field.default for field in fields(ScoringContract)}


def _check(contract: ScoringContract) -> None:
    """Raise `ValueError` for a field of the wrong type or with an unknown value: the file may come from anywhere."""
    try:
        TypeAdapter(ScoringContract).validate_json(json.dumps(asdict(contract)), strict=True)
    except ValidationError as error:
        raise ValueError(f"{error.errors()[0]['loc'][0]}: of the wrong type, or an unknown value") from error


def load_contract(folder: Path) -> ScoringContract:
    """Load the contract of a model folder; refuse a file that was edited by hand, which no longer matches its hash."""
    path = folder / FILE
    try:
        values = from_json(path.read_text(encoding="utf-8"))
        stated = values.pop("hash", None)
        contract = ScoringContract(**values | {"objectives": tuple(values["objectives"])})
        _check(contract)
    except UNREADABLE as error:
        known = ", ".join(field.name for field in fields(ScoringContract))
        raise DataError(f"{path}: not a scoring contract ({error}); its fields are {known}") from error
    if stated != contract.hash():
        raise DataError(
            f"{path}: the hash {stated} does not belong to these fields; restore the file that was saved with the model"
        )
    return contract
