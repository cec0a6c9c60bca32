"""Multi-head reward model: an ensemble of uncertain heads on one trained trunk, for the cost of one forward pass."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ...backbones.sequence_scores import decoder_head
from ...contract.scoring_contract import load_contract
from ...errors import UNREADABLE, DataError, UsageError
from ...io.checked_files import from_json
from ...types import Example, PreferencePair, content_hash
from ..ensemble.combination import MemberRewards, MemberRule, UncertainRewardModel
from ..ensemble.model import rule_of, rule_row
from ..r2m.model import reward_tokens
from ..scalar.model import ScalarRewardModel, load_scalar
from .uncertain_heads import HeadFit, Heads, fit_heads

BODY, HEADS, SETTINGS = "body", "heads.safetensors", "multi_head.json"


class MultiHeadRewardModel(UncertainRewardModel):
    """r(x, y) = rule((μ_1, σ_1), ..., (μ_M, σ_M)), with mean μ_m and standard deviation σ_m predicted by head m

    Bayesian reward model ensembles, Yan et al. 2024 (BRME, arXiv:2409.15360): first the trunk and one head are trained
    with Bradley-Terry (`body`). Then M heads on the reward token of `body` are fitted to its reward, with sampled
    noise. The trained head is their target and not a member, since it predicts no σ.
    """

    def __init__(self, body: ScalarRewardModel, heads: Heads, rule: MemberRule):
        check_body(body)
        super().__init__(rule)
        self.body, self.heads = body, heads
        self.encoder = body.encoder
        settings = [heads.mean.out_features, rule_row(rule)]
        self.contract = replace(body.contract, kind="multi_head", backbone=content_hash(settings))

    @classmethod
    def on(
        cls, body: ScalarRewardModel, pairs: Sequence[PreferencePair], objective: str, rule: MemberRule, fit: HeadFit
    ) -> "MultiHeadRewardModel":
        """Fit the heads on a trained reward model, each with the pairs labelled for its objective."""
        check_body(body)
        labelled = [pair for pair in pairs if not np.isnan(pair.chance(objective))]
        if not labelled:
            raise DataError(f"none of {len(pairs)} pairs has a label for '{objective}'; name a labelled objective")
        examples = [example for pair in labelled for example in pair.examples]
        with torch.inference_mode():
            tokens = reward_tokens(body, examples).float().cpu().clone()
        target = torch.from_numpy(body.rate(examples)[:, 0]).float()
        wins = torch.tensor([pair.chance(objective) for pair in labelled])
        return cls(body, fit_heads(tokens[::2], tokens[1::2], target.view(-1, 2).T, wins, fit), rule)

    def member_rewards(self, examples: Sequence[Example]) -> MemberRewards:
        """Return every head's mean and standard deviation, each [heads, N, 1]."""
        if not examples:
            nothing = np.zeros((self.heads.mean.out_features, 0, 1))
            return MemberRewards(nothing, nothing)
        with torch.inference_mode():
            outputs = self.heads(reward_tokens(self.body, examples).float().cpu())
        means, deviations = (output.double().numpy().T[..., None] for output in outputs)
        return MemberRewards(means, deviations)

    def save(self, folder: Path) -> None:
        """Save the trained reward model in a subfolder, and the heads, the rule and the contract in the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        self.body.save(folder / BODY)
        save_file({name: tensor.contiguous() for name, tensor in self.heads.state_dict().items()}, folder / HEADS)
        (folder / SETTINGS).write_text(json.dumps({"rule": rule_row(self.rule)}, indent=2) + "\n", encoding="utf-8")
        self.contract.save(folder)


def check_body(body: ScalarRewardModel) -> None:
    """Raise `UsageError` if a model has several rewards, or if its reward is not a head's output at the last token."""
    if len(body.contract.objectives) != 1:
        raise UsageError(f"heads are fitted to one reward, but this model has {', '.join(body.contract.objectives)}")
    if decoder_head(body.model) is None:
        name = body.model.config.model_type
        raise UsageError(f"a '{name}' reward model has no head at its last token, as this kind needs; give a decoder")


def load_multi_head(source: str, *, rule: MemberRule | None = None, **options: Any) -> MultiHeadRewardModel:
    """Load a reward model that `MultiHeadRewardModel.save` wrote. `options` are those of `load_scalar`."""
    folder = Path(source)
    body = load_scalar(str(folder / BODY), **options)
    try:
        combination = rule or rule_of(from_json((folder / SETTINGS).read_text(encoding="utf-8"))["rule"])
        weights = load_file(folder / HEADS)
        M, D = weights["mean.weight"].shape
        heads = Heads(D, M)
        heads.load_state_dict(weights)
    except (*UNREADABLE, SafetensorError, RuntimeError) as error:
        raise DataError(f"{folder}: not the heads of a reward model ({error}); give the full folder") from error
    model = MultiHeadRewardModel(body, heads.eval().requires_grad_(False), combination)
    if model.contract != load_contract(folder):
        raise DataError(f"{folder}: its {BODY}, heads or rule have changed since it was saved; give the full folder")
    return model
