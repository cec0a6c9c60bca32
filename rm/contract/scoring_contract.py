"""The scoring contract: everything that decides which number a completion gets, kept beside the weights."""

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Literal

from ..errors import UNREADABLE, DataError
from ..io.checked_files import from_json
from ..types import content_hash

FILE = "scoring.json"
PLAIN_TEMPLATE = "{% for m in messages %}{{ m.content }}{% if not loop.last %}{{ '\n\n' }}{% endif %}{% endfor %}"


@dataclass(frozen=True)
class ScoringContract:
    """How text becomes a reward. Two models with one weights file and two contracts are two reward models.

    `kind` is the file of `rm/models` that reads the folder. A field that does not apply to a kind is None.
    """

    kind: str
    objectives: tuple[str, ...] = ("reward",)
    """Names of the K numbers, in order."""
    dtype: str = "float32"
    """The precision in which the model computes; rewards leave it as float64."""
    tokenizer: str | None = None
    """Content hash of the vocabulary."""
    template: str | None = None
    """Content hash of the chat template."""
    date_string: str = "26 Jul 2024"
    """The date that dated templates (Llama 3) are rendered with, so that a score is the same tomorrow."""
    bos: Literal["template", "once"] | None = None
    """`template`: as the template renders it. `once`: put in front unless the template did."""
    eos: Literal["template", "once"] | None = None
    """`template`: as the template renders it. `once`: appended unless the text ends with it."""
    truncation: Literal["left", "right"] | None = None
    """Which end of an over-long sequence goes. Left keeps the completion's end; a leading BOS stays."""
    max_length: int | None = None
    """In tokens, special tokens included."""
    pooling: Literal["last", "first", "mean", "model"] | None = None
    """Where the head reads: by the attention mask, never by a token's id. `model`: inside an encoder's own head."""
    beta: float | None = None
    """The factor of a reward that sums log-probabilities."""
    backbone: str | None = None
    """Content hash of a frozen model that is not in the folder."""

    def hash(self) -> str:
        """Sixteen hexadecimal digits; equal contracts have equal hashes, in every process.

        Fields at their default do not enter, so that a field which a later version adds leaves old hashes as they are.
        """
        stated = {field.name: getattr(self, field.name) for field in fields(self)}
        return content_hash({name: stated[name] for name in stated if stated[name] != _DEFAULTS.get(name)})

    def save(self, folder: Path) -> None:
        """Write `scoring.json`."""
        (folder / FILE).write_text(json.dumps(asdict(self) | {"hash": self.hash()}, indent=2) + "\n")


_DEFAULTS = {field.name: field.default for field in fields(ScoringContract)}


RENAMED_KINDS = {"feedback": "r2m"}
"""Kinds under their names in folders of earlier versions, and their names now."""
DTYPES = ("float32", "float64", "bfloat16", "float16")


def _check(contract: ScoringContract) -> None:
    """Refuse a field of another kind than the class says: a file from elsewhere may hold anything."""
    texts = (contract.kind, contract.date_string, *contract.objectives)
    optional = (contract.tokenizer, contract.template, contract.backbone)
    length, beta = contract.max_length, contract.beta
    right = {
        "kind, date_string, objectives": all(isinstance(text, str) for text in texts) and contract.objectives,
        "tokenizer, template, backbone": all(value is None or isinstance(value, str) for value in optional),
        "dtype": contract.dtype in DTYPES,
        "bos, eos": {contract.bos, contract.eos} <= {"template", "once", None},
        "truncation": contract.truncation in ("left", "right", None),
        "pooling": contract.pooling in ("last", "first", "mean", "model", None),
        "max_length": length is None or (type(length) is int and length > 0),
        "beta": beta is None or (isinstance(beta, int | float) and math.isfinite(beta)),
    }
    if wrong := [name for name, holds in right.items() if not holds]:
        raise ValueError(f"{wrong[0]}: of another kind, or no such choice")


def load_contract(folder: Path) -> ScoringContract:
    """The contract in a model folder; a file that was edited by hand no longer has its hash and is refused."""
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
    return replace(contract, kind=RENAMED_KINDS.get(contract.kind, contract.kind))
