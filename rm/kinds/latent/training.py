"""Training of latent reasoning reward models: pairs, steps aligned with rationales, and the number of steps."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import EvalPrediction

from ...backbones.forward_hooks import run_inside
from ...backbones.logprobs import head_logits, head_logprobs, head_reads_last_states
from ...backbones.tokenization import Encoded, Encoder, pad, position_limit
from ...errors import DataError, UsageError
from ...losses.bradley_terry import preference_nll
from ...training.encoding import Encoding, OnLong, encode_labelled
from ...training.protocol import Prepared, Task, TrainingData, count_pairs, pair_metrics
from ...types import PreferencePair
from .._training import ClassifierTraining, PairTraining, texts_of
from . import LatentSettings
from .model import DEPTH_HEAD, HEAD, LatentRewardModel, latent_from_config, load_heads, load_latent, save_heads
from .objectives import aligned_tokens, bidirectional_kl, pair_returns, reinforce
from .steps import latent_states

RATIONALE_TOKENS = 256


class LatentRow(NamedTuple):
    """A tokenised pair with P(chosen is better) and the tokens of both rationales; an absent rationale is empty."""

    chosen: list[int]
    rejected: list[int]
    wins: float
    rationales: tuple[list[int], list[int]]
    pair_index: int
    """Index of the pair in the data, on which random draws depend."""


class RationaleCounts(NamedTuple):
    """Number of completions with a rationale, and number of truncated rationales."""

    completions: int
    stated: int
    cut: int


def encode_latent(
    encoder: Encoder,
    pairs: Sequence[PreferencePair],
    objective: str,
    on_long: OnLong = "truncate",
    *,
    longest: int = RATIONALE_TOKENS,
    positions: int | None = None,
) -> tuple[Encoding, RationaleCounts]:
    """Tokenise pairs and their rationales, which follow the conversation and are truncated to `longest` tokens."""
    encoded = encoder.encode_all([example for pair in pairs for example in pair.examples])
    texts = [text for pair in pairs for text in pair.rationales]
    rationales = encoder.tokenizer(texts, add_special_tokens=False, verbose=False).input_ids if texts else []
    limits = [max(0, min(longest, (positions or 2**31) - len(some.ids))) for some in encoded]
    cut = sum(len(ids) > limit for ids, limit in zip(rationales, limits, strict=True))
    rationales = [ids[:limit] for ids, limit in zip(rationales, limits, strict=True)]

    def row(index: int, pair: PreferencePair, chosen: Encoded, rejected: Encoded) -> LatentRow:
        first, second = rationales[2 * index : 2 * index + 2]
        return LatentRow(chosen.ids, rejected.ids, pair.chance(objective), (first, second), index)

    encoding = encode_labelled(encoder, pairs, [objective], row, on_long=on_long, encode=lambda _: encoded)
    return encoding, RationaleCounts(len(texts), sum(map(bool, texts)), cut)


class Outputs(NamedTuple):
    """Outputs of a forward pass for the B chosen, then the B rejected sequences, after 0 to T steps (S = T + 1)."""

    scores: Float[Tensor, "M S"]
    """Reward after 0, ..., T steps."""
    depths: Float[Tensor, "M S"]
    """Logits of the depth head; zeros if the model has none."""
    divergences: Float[Tensor, "M S"]
    """Divergence (nats) of latent step t from its aligned rationale token; 0 for t = 0 and without a rationale."""
    rationale_nll: Float[Tensor, " M"]
    """Mean of -log p over a rationale's tokens, in nats; 0 without a rationale."""


class LatentTask(Task):
    """L = L_BT(r_T) + λ D + μ L_rationale + L_depth in nats, with weights λ and μ; each term is a mean over the batch

    L_BT = -log σ(r_T(chosen) - r_T(rejected)) on the scores after T steps. D compares p_t, which the LM head reads from
    the latent state h_t, with q_t, the same model's prediction of token m(t) of the written rationale when it reads the
    conversation and the rationale up to there: bidirectional KL, no gradient through q_t. L_rationale is the mean
    negative log-likelihood of the rationale's tokens, which keeps the LM head a language model.

    Stage 1, the first `stage_1_steps` optimizer steps: T = 0 and D = 0. Stage 2 with `latent_depth` fixed: T is the
    contract's number of steps and D the mean over them. With a depth head: T is drawn from it for every completion, D
    compares the last step only, with the rationale's last token, and L_depth is `objectives.reinforce` with a `price`
    per step. The depth head reads h_0 without gradient. Evaluation takes the number of steps that scoring takes.

    The stages, D and the depth head are described in LASAR's abstract (arXiv:2605.10207); λ, μ, m(t), q_t and h_0
    without gradient, and the price are ours.
    """

    def __init__(
        self,
        model: LatentRewardModel,
        *,
        alignment: float = 1.0,
        rationale_weight: float = 0.1,
        price: float = 0.01,
        stage_1_steps: int = 0,
        seed: int = 0,
    ):
        self.reward_model = model
        self.steps, self.chooses = model.contract.latent_steps, model.contract.latent_depth == "head"
        self.alignment, self.rationale_weight, self.price = alignment, rationale_weight, price
        self.stage_1_steps, self.seed = stage_1_steps, seed

    def check(self, rows: Sequence[LatentRow]) -> None:
        """Raise an error if no row has a rationale for the steps, or if logits are not head(last hidden state)."""
        stated = any(ids for row in rows for ids in row.rationales)
        if self.alignment and self.steps and not stated:
            raise UsageError(
                "latent steps are aligned with rationales, and no pair has one; add columns rationale_chosen and "
                "rationale_rejected, or set --latent_alignment 0"
            )
        if stated and not head_reads_last_states(self.reward_model.language_model):
            raise DataError("this model's logits are not the LM head of its last hidden states; remove rationales")

    def collate(self, rows: Sequence[LatentRow]) -> dict[str, Tensor]:
        """Collate rows into 2B sequences, the chosen ones first, and the same sequences with their rationales."""
        sides = [*(row.chosen for row in rows), *(row.rejected for row in rows)]
        rationales = [*(row.rationales[0] for row in rows), *(row.rationales[1] for row in rows)]
        batch, read = pad(sides), pad([[*ids, *more] for ids, more in zip(sides, rationales, strict=True)])
        return {
            "tokens": batch.tokens,
            "attention": batch.attention,
            "read_tokens": read.tokens,
            "read_attention": read.attention,
            "starts": torch.tensor([*map(len, sides)]),
            "rationale_lengths": torch.tensor([*map(len, rationales)]),
            "wins": torch.tensor([row.wins for row in rows]),
            "pair_index": torch.tensor([row.pair_index for row in rows]),
        }

    def items(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the number of pairs."""
        return count_pairs(inputs)

    def loss(self, model: Any, inputs: dict[str, Tensor], step: int = 0) -> tuple[Tensor, Tensor]:
        """Return the loss of the stage of `step`, and scores and numbers of steps of both completions [B, 4]."""
        steps = 0 if step < self.stage_1_steps else self.steps
        outputs = self.outputs(model, inputs, steps)
        if not (steps and self.chooses):
            return self._loss_at(outputs, inputs, torch.full_like(inputs["rationale_lengths"], steps), terminal=False)
        samples = self._sample_steps(outputs.depths, inputs["pair_index"], step)
        loss, scores = self._loss_at(outputs, inputs, samples, terminal=True)
        sides = outputs.scores.detach().chunk(2)
        returns = pair_returns(*sides, inputs["wins"], self.price)
        chosen, rejected = outputs.depths.chunk(2)
        first, second = samples.chunk(2)
        return loss + reinforce(returns, chosen, rejected, (first, second)).mean(), scores

    def evaluate(self, model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the loss (without the depth head's term) and outputs of `loss`, with as many steps as in scoring."""
        outputs = self.outputs(model, inputs, self.steps)
        fixed = torch.full_like(inputs["rationale_lengths"], self.steps)
        return self._loss_at(outputs, inputs, outputs.depths.argmax(dim=1) if self.chooses else fixed, self.chooses)

    def _loss_at(
        self, outputs: Outputs, inputs: dict[str, Tensor], steps: Int[Tensor, " M"], terminal: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the loss for given numbers of steps, without the depth head's term, and scores and steps [B, 4]."""
        chosen, rejected = outputs.scores.gather(1, steps[:, None])[:, 0].chunk(2)
        last = outputs.divergences.gather(1, steps[:, None])[:, 0]
        divergence = last if terminal else outputs.divergences.sum(dim=1) / steps.clamp_min(1)
        loss = preference_nll(chosen - rejected, inputs["wins"]).mean()
        loss = loss + self.alignment * divergence.mean() + self.rationale_weight * outputs.rationale_nll.mean()
        first, second = steps.to(chosen.dtype).chunk(2)
        return loss, torch.stack([chosen, rejected, first, second], dim=1)

    def _sample_steps(self, logits: Float[Tensor, "M S"], indices: Int[Tensor, " B"], step: int) -> Int[Tensor, " M"]:
        """Sample a number of steps for every completion, with one generator per pair, independently of the batch."""
        draws = []
        for index in indices.tolist():
            draw = torch.Generator().manual_seed(hash((self.seed, step, index)) % 2**63)
            draws.append(torch.rand(2, generator=draw))
        uniform = torch.stack(draws, dim=1).reshape(-1, 1).to(logits)
        return (logits.detach().softmax(dim=1).cumsum(dim=1) < uniform).sum(dim=1).clamp_max(logits.shape[1] - 1)

    def outputs(self, model: Any, inputs: dict[str, Tensor], steps: int) -> Outputs:
        """Return scores, depth logits, divergences and rationales' likelihoods of a collated batch."""
        return run_inside(model, partial(self._outputs, inputs=inputs, steps=steps))

    def _outputs(self, model: Any, inputs: dict[str, Tensor], steps: int) -> Outputs:
        states = latent_states(model, inputs["tokens"], inputs["attention"], steps)
        scores = model.get_submodule(HEAD)(states)[..., 0].float()
        depths = torch.zeros_like(scores)
        if steps and self.chooses:
            depths = model.get_submodule(DEPTH_HEAD)(states[:, 0].detach()).float()
        lengths = inputs["rationale_lengths"]
        aligns = bool(self.alignment and steps)
        if not lengths.any() or not (aligns or self.rationale_weight):
            return Outputs(scores, depths, torch.zeros_like(scores), torch.zeros_like(scores[:, 0]))
        read = model.get_decoder()(
            input_ids=inputs["read_tokens"], attention_mask=inputs["read_attention"].long(), use_cache=False
        ).last_hidden_state
        starts = inputs["starts"]
        nll = self._rationale_nll(model, read, inputs["read_tokens"], starts, lengths)
        divergences = torch.zeros_like(scores)
        if aligns:
            last = lengths[:, None].expand(-1, steps)
            tokens = last if self.chooses else aligned_tokens(lengths, steps)
            divergences = torch.cat([divergences[:, :1], _divergences(model, states[:, 1:], read, starts, tokens)], 1)
        return Outputs(scores, depths, divergences, nll)

    def _rationale_nll(
        self,
        model: Any,
        read: Float[Tensor, "M L D"],
        tokens: Int[Tensor, "M L"],
        starts: Int[Tensor, " M"],
        lengths: Int[Tensor, " M"],
    ) -> Float[Tensor, " M"]:
        """Return the mean negative log-likelihood of each rationale's tokens; 0 if its weight is 0."""
        if not self.rationale_weight:
            return torch.zeros_like(starts, dtype=torch.float32)
        columns = torch.arange(1, tokens.shape[1], device=tokens.device)
        written = (columns >= starts[:, None]) & (columns < (starts + lengths)[:, None])
        logprobs = head_logprobs(model, read[:, :-1][written], tokens[:, 1:][written]).logprob
        placed = torch.zeros(written.shape, dtype=logprobs.dtype, device=tokens.device)
        return -placed.masked_scatter(written, logprobs).sum(dim=1) / lengths.clamp_min(1)

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """Compute accuracy, margin and range of rewards (`pair_metrics`), and the mean number of latent steps."""
        outputs = np.asarray(prediction.predictions, float)
        pairs = EvalPrediction(outputs[:, :2], prediction.label_ids)
        return pair_metrics(pairs) | {"latent_steps": float(outputs[:, 2:].mean())}

    def save(self, folder: Path) -> None:
        """Save the heads, which the Trainer leaves out of an adapter's checkpoint."""
        save_heads(self.reward_model.language_model, folder)

    def load(self, folder: Path) -> None:
        """Load the heads from a checkpoint."""
        load_heads(self.reward_model.language_model, folder)


def _divergences(
    model: Any,
    states: Float[Tensor, "M T D"],
    read: Float[Tensor, "M L D"],
    starts: Int[Tensor, " M"],
    tokens: Int[Tensor, "M T"],
) -> Float[Tensor, "M T"]:
    """Return the divergence of every latent state from the rationale token aligned with it; 0 without a rationale."""
    predicting = (starts[:, None] + tokens - 2).clamp_min(0)  # the state before the token, counted from 1
    with torch.no_grad():
        teacher = head_logits(model, read.gather(1, predicting[..., None].expand(-1, -1, read.shape[-1])))
    divergence = bidirectional_kl(head_logits(model, states), teacher)
    return divergence.masked_fill(tokens == 0, 0.0)


class LatentTraining(PairTraining, ClassifierTraining):
    """Trains a causal language model and its heads on pairs, and on rationales if the data have them."""

    settings: LatentSettings
    summary_prefixes = (*PairTraining.summary_prefixes, "eval_latent")

    def prepare(self, data: TrainingData) -> Prepared:
        """Return a causal language model with its heads, the rows of the pairs, and the number of rationales."""
        settings, pairs, held = self.settings, data.train.pairs, data.held_out.pairs
        model = self.build(pairs)
        if model.contract.latent_steps and self.arguments.gradient_checkpointing:
            raise UsageError("--gradient_checkpointing disables the cache that latent steps need; remove the flag")
        self.report(f"the first sequence reads: {model.encoder.render(pairs[0].examples[0])[:300]!r}")
        encoding, counts = self._encode(model, pairs, "data")
        eval_rows = self._encode(model, held, "eval_data")[0].rows if held else None
        task = LatentTask(
            model,
            alignment=settings.latent_alignment,
            rationale_weight=settings.rationale_weight,
            price=settings.latent_price,
            stage_1_steps=settings.latent_stage_1,
            seed=self.arguments.seed,
        )
        task.check(encoding.rows)
        return Prepared(model, task, encoding, eval_rows, {"rationales": counts._asdict()})

    def build(self, pairs: list[PreferencePair]) -> LatentRewardModel:
        """Return the named language model with new heads, a saved model to continue, or a small one from scratch."""
        settings = self.settings
        options: dict[str, Any] = {"latent_steps": settings.latent_steps, "latent_depth": settings.latent_depth}
        if settings.model:
            return load_latent(settings.model, fresh=True, **options, **self.classifier_options())
        rationales = [text for pair in pairs for text in pair.rationales]
        tokenizer, shape = self.small_backbone(texts_of(pairs) + rationales)
        limits: Any = {"max_length": settings.max_length, "seed": self.arguments.seed}
        model = latent_from_config(shape, tokenizer, **options, **limits)
        self.log_small_model(model.model, tokenizer)
        return model

    def _encode(
        self, model: LatentRewardModel, pairs: list[PreferencePair], name: str
    ) -> tuple[Encoding, RationaleCounts]:
        positions = position_limit(model.language_model.config)
        limits = {"longest": self.settings.rationale_length, "positions": positions}
        encoding, counts = encode_latent(
            model.encoder, pairs, self.settings.objectives[0], self.settings.on_long, **limits
        )
        cut = f", of which {counts.cut} were cut" if counts.cut else ""
        self.report(f"{name}: {counts.stated} of {counts.completions} completions have a rationale{cut}")
        return self.log_encoding(name, encoding), counts
