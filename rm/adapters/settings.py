"""Settings of a preference adapter, saved as a JSON file beside its weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import UNREADABLE, DataError, UsageError
from ..io.checked_files import from_json
from .modulation import Embedding, Generator

SETTINGS = "preference_adapter.json"
Kind = Literal["lora", "pblora", "moslora"]


@dataclass(frozen=True)
class AdapterSettings:
    """Settings that, with the weights, determine an adapter."""

    kind: Kind
    objectives: tuple[str, ...]
    """Names of the objectives, in the order of the preference vector α."""
    texts: tuple[str, ...] = ()
    """One description per objective, for `embedding="text"`; by default the names."""
    rank: int = 8
    shared_rank: int = 0
    """PBLoRA: rank r1 of the branch that does not depend on the preference; `rank` is r2, of the other branch."""
    factor: float = 2.0
    """Scaling factor s of the adapter's output."""
    dropout: float = 0.0
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    """Names of the linear layers, or `("all-linear",)`."""
    from_layer: int = 0
    """First adapted decoder layer; late-branching guides start in the last quarter."""
    generator: Generator = "linear"
    embedding: Embedding = "text"
    centred: bool = True
    span: bool = False
    """Whether objective vectors are replaced by their K coordinates in their span; see `span_coordinates`."""
    hidden: int = 64
    """Width of the trunk generator."""
    scale: bool = True
    shift: bool = True
    seed: int = 0
    base: str = ""
    """Path or Hub id of the base model."""
    base_fingerprint: str = ""

    def __post_init__(self):
        if self.kind not in ("lora", "pblora", "moslora"):
            raise UsageError(f"kind must be 'lora', 'pblora' or 'moslora', got '{self.kind}'")
        if not self.objectives or len({*self.objectives}) < len(self.objectives):
            raise UsageError(f"the objectives of an adapter must have distinct names, got {self.objectives}")
        if self.kind == "lora" and len(self.objectives) > 1:
            raise UsageError(f"a plain LoRA has one objective, got {self.objectives}; train several LoRAs, or pblora")
        if self.rank < 1 or self.shared_rank < 0 or (self.shared_rank and self.kind != "pblora"):
            raise UsageError(f"rank >= 1 and shared_rank >= 0 (0 unless pblora), got {self.rank}, {self.shared_rank}")
        if self.texts and len(self.texts) != len(self.objectives):
            raise UsageError(f"{len(self.objectives)} objectives have {len(self.texts)} texts; give one per objective")

    @property
    def total_rank(self) -> int:
        """Total rank: the number of rows of the LoRA matrix A."""
        return self.rank + self.shared_rank

    @property
    def follows_preference(self) -> bool:
        """Whether outputs depend on α."""
        return self.kind != "lora"


def load_settings(folder: Path) -> AdapterSettings:
    """Load the adapter settings from a folder."""
    try:
        values = from_json((folder / SETTINGS).read_text(encoding="utf-8"))
        lists = {name: tuple(values[name]) for name in ("objectives", "texts", "targets")}
        return AdapterSettings(**values | lists)
    except UNREADABLE as error:
        raise DataError(f"{folder / SETTINGS}: missing or damaged ({error}); restore it") from error
