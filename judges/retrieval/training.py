"""Contrastive training of a retrieval encoder on pairs prompt -> rubric (or case) and case -> case."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import TrainingArguments

from ...rm.backbones.packing.attention import attention_setting, set_attention
from ...rm.capacity.mixed_precision import check_bf16
from ...rm.errors import DataError, UsageError
from ...rm.training.checkpointing import MarkComplete
from ...rm.training.distributed import refuse_divided_batches
from ...rm.training.fault_tolerance import FaultTolerantTrainer
from ...rm.training.learning_signal import SignalCheck
from .encoder import FacetEncoder, TokenizedText, batch_of
from .pooling import diversity, similarity


class TextPair(NamedTuple):
    """A positive pair: a prompt and its rubric (q-doc), or two cases of the same type (doc-doc)."""

    first: str
    second: str
    group: str = ""
    """Group of the pair. Pairs of one group are not negatives of each other. Empty means a separate group."""


def pairs_within(texts: Sequence[str], groups: Sequence[str], *, per_text: int = 1, seed: int = 0) -> list[TextPair]:
    """Pair every text with `per_text` others of its group, drawn without replacement."""
    members = defaultdict(list)
    for index, group in enumerate(groups):
        members[group].append(index)
    rng = Random(seed)
    pairs = []
    for index, group in enumerate(groups):
        others = [other for other in members[group] if other != index] if group else []
        chosen = rng.sample(others, min(per_text, len(others)))
        pairs += [TextPair(texts[index], texts[other], group) for other in chosen]
    return pairs


def info_nce(similarities: Float[Tensor, "B B"], same: Bool[Tensor, "B B"], temperature: float) -> Float[Tensor, " B"]:
    """Compute the InfoNCE loss of each row with in-batch negatives, in nats.

        ℓ_i = -log( exp(s_ii / τ) / Σ_{j ∈ N_i} exp(s_ij / τ) ),   N_i = {i} ∪ {j : j is not of i's group}

    s_ij is the similarity of text i and candidate j, τ the `temperature`. van den Oord et al. 2018, arXiv:1807.03748.
    `same` is true for two pairs of one group or with a common text; these are not negatives of each other [ours].
    """
    others = same & ~torch.eye(len(same), dtype=torch.bool, device=same.device)
    logits = (similarities / temperature).masked_fill(others, torch.finfo(similarities.dtype).min)
    return cross_entropy(logits, torch.arange(len(logits), device=logits.device), reduction="none")


def both_directions(
    first: Float[Tensor, "B F W"], second: Float[Tensor, "B F W"], same: Bool[Tensor, "B B"], temperature: float,
    how: str,
) -> Float[Tensor, " B"]:  # fmt: skip
    """Return the mean of the InfoNCE losses first -> second and second -> first, by pair [ours]."""
    similarities = similarity(first, second, how)
    return (info_nce(similarities, same, temperature) + info_nce(similarities.T, same.T, temperature)) / 2


@dataclass
class RetrieverArguments(TrainingArguments):
    """Transformers' training arguments, with defaults for retrieval encoders, and the weights of the joint loss."""

    output_dir: str = field(default="", metadata={"help": "Same as --output."})
    learning_rate: float = field(default=1e-3, metadata={"help": "Peak learning rate of AdamW."})
    per_device_train_batch_size: int = field(
        default=32, metadata={"help": "Pairs of each kind per step; each pair is a negative of the others."}
    )
    num_train_epochs: float = field(default=10.0, metadata={"help": "Passes over the pairs."})
    warmup_steps: float = field(default=0.05, metadata={"help": "Steps of warm-up; below 1, a share of all steps."})
    save_strategy: str = field(default="steps", metadata={"help": "When a checkpoint is written."})
    save_steps: float = field(default=200, metadata={"help": "Steps between checkpoints."})
    save_total_limit: int | None = field(default=2, metadata={"help": "Checkpoints kept (at least 2)."})
    logging_steps: float = field(default=20, metadata={"help": "Steps between log lines."})
    report_to: str = field(default="none", metadata={"help": "none, tensorboard, wandb, trackio."})
    attn_implementation: str | None = attention_setting()
    temperature: float = field(default=0.05, metadata={"help": "Temperature τ of InfoNCE."})
    case_weight: float = field(
        default=0.5, metadata={"help": "Weight μ of case -> case pairs, in [0, 1]; prompt -> rubric pairs have 1 - μ."}
    )
    diversity_weight: float = field(
        default=0.0, metadata={"help": "Weight of the squared cosine between facets of a text."}
    )

    def __post_init__(self):
        check_bf16(self)
        super().__post_init__()
        if not self.temperature > 0:
            raise UsageError(f"--temperature must be a number > 0, got {self.temperature}")
        if not 0 <= self.case_weight <= 1:
            raise UsageError(f"--case_weight must lie in [0, 1], got {self.case_weight}")
        self.save_total_limit = max(2, self.save_total_limit or 2)
        self.remove_unused_columns = False
        self.dataloader_pin_memory = self.dataloader_pin_memory and torch.cuda.is_available()


class JointRow(NamedTuple):
    """A training row: one pair of each type. None for a type of weight 0."""

    question: TextPair | None
    case: TextPair | None


def joint_rows(
    questions: Sequence[TextPair], cases: Sequence[TextPair], case_weight: float, seed: int
) -> list[JointRow]:
    """Return the training rows in random order, as many as the larger type has pairs. The smaller type is repeated."""
    for pairs, weight, kind in ((questions, 1 - case_weight, "prompt -> rubric"), (cases, case_weight, "case -> case")):
        if weight and not pairs:
            raise DataError(
                f"there are no {kind} pairs, but --case_weight {case_weight:g} requires them; change --case_weight, or "
                "name the column of groups with --group_by"
            )
    question_pairs, case_pairs = (
        Random(seed + index).sample([*pairs], len(pairs)) for index, pairs in enumerate((questions, cases))
    )
    sizes = [len(pairs) for pairs, weight in ((question_pairs, 1 - case_weight), (case_pairs, case_weight)) if weight]
    return [
        JointRow(
            question_pairs[index % len(question_pairs)] if case_weight < 1 else None,
            case_pairs[index % len(case_pairs)] if case_weight > 0 else None,
        )
        for index in range(max(sizes))
    ]


class RetrieverTrainer(FaultTolerantTrainer):
    """Trainer of a retrieval encoder with the joint loss, based on Transformers' `Trainer`.

        L = (1 - μ) L_q-doc + μ L_doc-doc + ρ · mean over texts of `pooling.diversity`

    L_q-doc and L_doc-doc are the means of `both_directions` over a batch's pairs of each type, μ is the mixing weight,
    and ρ the weight of the diversity term. Training on both types of pairs is from UniFAR (arXiv:2602.23766); μ and ρ
    are ours.
    """

    loss_name = "the contrastive loss"

    def __init__(self, encoder: FacetEncoder, args: RetrieverArguments, rows: Sequence[JointRow]):
        texts = {
            text for row in rows for pair in (row.question, row.case) if pair is not None
            for text in (pair.first, pair.second)
        }  # fmt: skip
        ordered = sorted(texts)
        self.tokenized = dict(zip(ordered, encoder.tokenize(ordered), strict=True))
        refuse_divided_batches(self.loss_name, args)
        set_attention(encoder.backbone, args.attn_implementation)
        super().__init__(
            model=encoder,
            args=args,
            data_collator=self.collate,
            train_dataset=rows,
            processing_class=encoder.tokenizer,
            callbacks=[MarkComplete(), SignalCheck()],
        )
        self.model_accepts_loss_kwargs = False

    def collate(self, rows: Sequence[JointRow]) -> dict[str, Tensor]:
        """Return the texts of all pairs as one batch, [2 B] or [4 B], and a mask of pairs that are not negatives."""
        batch: dict[str, Tensor] = {}
        texts: list[TokenizedText] = []
        for name, column in zip(JointRow._fields, zip(*rows, strict=True), strict=True):
            pairs = [pair for pair in column if pair is not None]
            if pairs:
                batch[name] = torch.tensor([[_are_related(pair, other) for other in pairs] for pair in pairs])
                texts += [self.tokenized[text] for side in (0, 1) for text in (pair[side] for pair in pairs)]
        return batch | batch_of(texts)._asdict()

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """Return the joint loss in nats, and the vectors of all texts."""
        args: Any = self.args
        vectors = model(inputs["tokens"], inputs["attention"], inputs["sentence"])
        kinds = [name for name in ("question", "case") if name in inputs]
        parts = dict(zip(kinds, vectors.chunk(len(kinds)), strict=True))
        weights = {"question": 1 - args.case_weight, "case": args.case_weight}
        how = self.accelerator.unwrap_model(self.model).settings.similarity
        loss = args.diversity_weight * diversity(vectors)
        for name, of_kind in parts.items():
            first, second = of_kind.chunk(2)
            rows = both_directions(first, second, inputs[name], args.temperature, how)
            loss = loss + weights[name] * rows.mean()
        return (loss, vectors) if return_outputs else loss

    def rows_of(self, inputs):
        """Return None: the batch cannot be split, since the loss of a pair depends on all other pairs."""
        return None


def _are_related(pair: TextPair, other: TextPair) -> bool:
    """Return whether two pairs have the same group or a common text."""
    shared = pair.first == other.first or pair.second == other.second
    return shared or (bool(pair.group) and pair.group == other.group)
