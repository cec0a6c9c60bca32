"""The scoring contract: everything besides the weights that determines a completion's reward."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, TypeAdapter, ValidationError

from ..errors import UNREADABLE, DataError
from ..io.checked_files import from_json
from ..registry import kind_of, names
from ..types import content_hash

FILE = "scoring.json"
Edge = Literal["template", "once"]
"""Policy of BOS or EOS: as the chat template writes it, or added once if the template does not write it."""
PLAIN_TEMPLATE = "{% for m in messages %}{{ m.content }}{% if not loop.last %}{{ '\n\n' }}{% endif %}{% endfor %}"


@dataclass(frozen=True)
class ScoringContract:
    """Specification of how text becomes a reward. The same weights with two contracts are two different reward models.

    `kind` names the package of `rm.kinds` that loads the folder. Fields of a single kind are in a subclass in
    its package. A field that does not apply to a kind is None.
    """

    kind: str
    objectives: Annotated[tuple[str, ...], Field(min_length=1)] = ("reward",)
    """Names of the K rewards, in order."""
    dtype: Annotated[str, Field(pattern="^(float32|float64|bfloat16|float16)$")] = "float32"
    """The precision of the computation; rewards are returned as float64."""
    tokenizer: str | None = None
    """Content hash of the vocabulary."""
    template: str | None = None
    """Content hash of the chat template."""
    date_string: str = "26 Jul 2024"
    """The date for templates that print one (Llama 3), fixed so that scores do not change from day to day."""
    bos: Edge | None = None
    """`template`: as the template renders it. `once`: prepended unless the template already wrote it."""
    eos: Edge | None = None
    """`template`: as the template renders it. `once`: appended unless the text already ends with it."""
    truncation: Literal["left", "right"] | None = None
    """The side from which long sequences are truncated. `left` keeps the end of the completion, and a leading BOS."""
    max_length: PositiveInt | None = None
    """Maximum number of tokens, special tokens included."""
    pooling: Literal["last", "first", "mean", "model"] | None = None
    """Position that the head reads, by attention mask and not by token id. `model`: pooling of an encoder's head."""
    backbone: str | None = None
    """Content hash of a frozen model that is not stored in the folder."""
    weights: str | None = None
    """Original quantisation and file hash of weights that were dequantised when they were loaded."""

    def __post_init__(self) -> None:
        if repeated := [name for name in self.objectives if self.objectives.count(name) > 1]:
            raise DataError(f"two objectives are named '{repeated[0]}'; give each a distinct name")

    def hash(self) -> str:
        """Return a hash (16 hexadecimal digits) of the fields that differ from their defaults.

        The hash is the same in every process.
        """
        defaults = {field.name: field.default for field in fields(self)}
        return content_hash({name: value for name, value in vars(self).items() if value != defaults[name]})

    def facts(self) -> dict[str, str]:
        """Return entries of the model card that are specific to this kind, by name."""
        return {}

    def save(self, folder: Path) -> None:
        """Write `scoring.json`."""
        (folder / FILE).write_text(json.dumps(asdict(self) | {"hash": self.hash()}, indent=2) + "\n")


def contract_class(kind: str) -> type[ScoringContract]:
    """Return the contract class of a registered kind; `ScoringContract` for any other name."""
    form = kind_of(kind).contract if kind in names("rm.kinds") else None
    return form or ScoringContract


def contract_of(values: Mapping[str, Any]) -> ScoringContract:
    """Return the contract with these fields, as an instance of its kind's class; raise an error for invalid fields.

    Unknown fields that are null are ignored: earlier versions wrote the fields of all kinds.
    """
    form = contract_class(values["kind"])
    field_names = {field.name for field in fields(form)}
    stated = {name: value for name, value in values.items() if name in field_names or value is not None}
    contract = form(**stated | {"objectives": tuple(values["objectives"])})
    try:
        TypeAdapter(form).validate_json(json.dumps(asdict(contract)), strict=True)
    except ValidationError as error:
        raise ValueError(f"{error.errors()[0]['loc'][0]}: of the wrong type, or an unknown value") from error
    return contract


def load_contract(folder: Path) -> ScoringContract:
    """Load the contract of a model folder; raise an error if the file was edited, so that its hash does not match."""
    path = folder / FILE
    try:
        values = from_json(path.read_text(encoding="utf-8"))
        stated = values.pop("hash", None)
        contract = contract_of(values)
    except UNREADABLE as error:
        field_names = ", ".join(field.name for field in fields(ScoringContract))
        raise DataError(f"{path}: not a scoring contract ({error}); every kind has the fields {field_names}") from error
    if stated != contract.hash():
        raise DataError(
            f"{path}: the hash {stated} does not match these fields; restore the file that was saved with the model"
        )
    return contract
