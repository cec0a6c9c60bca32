"""Length reward model."""

import json
from pathlib import Path

import numpy as np

from ...contract.scoring_contract import ScoringContract


class LengthRewardModel:
    """r(x, y) = w |y|^p"""

    def __init__(self, weight: float, power: float):
        self.weight, self.power = weight, power
        self.contract = ScoringContract(kind="length", dtype="float64")

    def rate(self, examples):
        """Return rewards [N, 1]."""
        lengths = np.array([len(example.completion) for example in examples], float)
        return self.weight * lengths[:, None] ** self.power

    def save(self, folder: Path) -> None:
        """Save weight, power and contract."""
        (folder / "length.json").write_text(json.dumps([self.weight, self.power]))
        self.contract.save(folder)


def load_length(source: str) -> LengthRewardModel:
    """Load the model in a folder."""
    return LengthRewardModel(*json.loads((Path(source) / "length.json").read_text()))
