"""Parity of process reward models: the scores of reasoning steps through Transformers and through vLLM."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import expit, softmax
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

from ..backbones.loading import load_pretrained, load_tokenizer
from ..backbones.tokenization import Encoder, describe_tokenizer, single_token_id
from ..contract.scoring_contract import Edge, ScoringContract
from ..errors import DataError
from ..kinds.process.model import ProcessRewardModel
from ..types import Example
from .known_faults import EXPLAINED
from .model_server import ServedSteps, Vllm, batches, token_classify_options
from .parity import FULL, HALF, Parity, flipped_share
from .targets import Against


class StepOutputs(NamedTuple):
    """Outputs of a process reward model for one conversation."""

    ids: Sequence[int]
    """Token ids [L]."""
    logits: np.ndarray
    """The head's output at every token [L, C], without activation."""
    steps: Sequence[int]
    """Positions of the step tokens [S]."""


def step_activation(logits: np.ndarray) -> np.ndarray:
    """Return probabilities of logits [S, C]: softmax over the labels, or the sigmoid for a single label."""
    return softmax(logits, axis=1) if logits.shape[1] > 1 else expit(logits)


def select_steps(outputs: StepOutputs, theirs: Sequence[Sequence[float]]) -> np.ndarray | str:
    """Return step scores [S, C] from rows for all tokens or for step tokens only, else the reason as text."""
    scores = np.array(theirs, float)
    if scores.ndim != 2 or scores.shape[1] != outputs.logits.shape[1]:
        return f"output of shape {scores.shape}, where {outputs.logits.shape[1]} labels per token are expected"
    if len(scores) == len(outputs.ids):
        return scores[list(outputs.steps)]
    if len(scores) == len(outputs.steps):
        return scores
    return f"{len(scores)} rows, where the conversation has {len(outputs.ids)} tokens and {len(outputs.steps)} steps"


def compare_steps(
    way: str,
    outputs: Sequence[StepOutputs],
    theirs: Sequence[Sequence[Sequence[float]]],
    *,
    activated: bool,
    half: bool = False,
) -> Parity:
    """Compare the scores of all steps with our model's, with or without activation; `conversations` counts steps."""
    ours = _our_scores(outputs, activated)
    spread = float(ours.std(0).max())
    tolerance = max((HALF if half else FULL) * spread, 1e-6)
    rows = [select_steps(output, other) for output, other in zip(outputs, theirs, strict=True)]
    refused = [f"conversation {index + 1}: {row}" for index, row in enumerate(rows) if isinstance(row, str)]
    usable = [row for row in rows if not isinstance(row, str)]
    scores = np.full_like(ours, np.nan) if refused else np.concatenate(usable)
    gaps = np.nan_to_num(np.abs(scores - ours), nan=np.inf)
    size, why = (len(ours), float(gaps.max()), float(gaps.mean()), spread), refused[0] if refused else ""
    result = Parity(way, *size, tolerance, flipped_share(ours, scores), "", why)
    return result if result.same or refused else result._replace(culprit=step_culprit(outputs, scores, activated))


def step_culprit(outputs: Sequence[StepOutputs], scores: np.ndarray, activated: bool) -> str:
    """Return the name of the fault that explains `scores` [S, C], or else a sentence that says that none does."""
    gap = np.abs(scores - _our_scores(outputs, activated)).max()
    if not np.isfinite(gap):
        return "scores that are missing or not finite"
    for name, other in step_faults(outputs, activated):
        if np.abs(scores - other).max() <= EXPLAINED * gap:
            return name
    return "other weights, another head or other tokens: no known fault explains the scores"


def step_faults(outputs: Sequence[StepOutputs], activated: bool) -> Iterator[tuple[str, np.ndarray]]:
    """Yield names of faults, and the scores of the steps [S, C] that our model gives with each."""
    logits, ours = _logits_at_steps(outputs, 0), _our_scores(outputs, activated)
    if activated:
        yield "no activation: logits, not probabilities", logits
        yield "activation applied twice", step_activation(ours)
        yield "sigmoid instead of softmax", expit(logits)
    else:
        yield "activated: probabilities, not logits", step_activation(logits)
    yield "labels in the opposite order", ours[:, ::-1]
    for name, offset in (("read one token before the step token", -1), ("read one token after the step token", 1)):
        moved = _logits_at_steps(outputs, offset)
        yield name, step_activation(moved) if activated else moved


def _our_scores(outputs: Sequence[StepOutputs], activated: bool) -> np.ndarray:
    logits = _logits_at_steps(outputs, 0)
    return step_activation(logits) if activated else logits


def _logits_at_steps(outputs: Sequence[StepOutputs], offset: int) -> np.ndarray:
    """Return the logits [S, C] at the tokens that are `offset` positions after the step tokens."""
    rows: list[Any] = []
    for output in outputs:
        last = len(output.ids) - 1
        rows += [output.logits[min(max(position + offset, 0), last)] for position in output.steps]
    return np.array(rows, float)


class StepModel:
    """A process reward model: a token classifier, or a causal language model that predicts a label at step tokens."""

    def __init__(
        self,
        source: str,
        step_token: str,
        labels: Sequence[str] = (),
        *,
        bos: Edge | None = None,
        eos: Edge | None = None,
        trust_remote_code: bool = False,
    ):
        self.tokenizer = load_tokenizer(source, trust_remote_code=trust_remote_code)
        self.step_id = single_token_id(self.tokenizer, step_token, "step_token")
        self.label_ids = [single_token_id(self.tokenizer, label, "step_labels") for label in labels]
        auto = AutoModelForCausalLM if self.label_ids else AutoModelForTokenClassification
        self.model, absent = load_pretrained(auto, source, "process reward model", trust_remote_code=trust_remote_code)
        if absent:
            raise DataError(
                f"{source}: the weights lack {', '.join(absent[:4])}, so its scores would be random; give a token "
                "classifier, or name the labels that a causal language model predicts with --step_labels"
            )
        self.model.eval()
        described = describe_tokenizer(self.tokenizer, bos, eos)
        objectives = tuple(labels or self.model.config.id2label.values())
        self.contract = ScoringContract(kind="process", objectives=objectives, **described)
        self.encoder = Encoder(self.tokenizer, self.contract)

    @torch.inference_mode()
    def outputs(self, examples: Sequence[Example]) -> list[StepOutputs]:
        """Return logits and positions of step tokens of every conversation, computed one at a time."""
        results = []
        for index, encoded in enumerate(self.encoder.encode_all(examples)):
            logits = self.model(input_ids=torch.tensor([encoded.ids])).logits[0].double()
            logits = logits[:, self.label_ids] if self.label_ids else logits
            steps = [position for position, token in enumerate(encoded.ids) if token == self.step_id]
            if not steps:
                raise DataError(
                    f"conversation {index + 1}: no token {self.tokenizer.convert_ids_to_tokens(self.step_id)!r} in it; "
                    "write it after every step of the completions of --data"
                )
            results.append(StepOutputs(encoded.ids, logits.numpy(), steps))
        return results


def step_parities(
    model: StepModel, targets: Sequence[Against], examples: Sequence[Example], *, half: bool
) -> tuple[list[Parity], str]:
    """Compare the step scores of each server, with and without its activation; also return a note for the report."""
    outputs = model.outputs(examples)
    start = token_classify_options(model.tokenizer.convert_ids_to_tokens(model.label_ids))
    servers = [Vllm(target.target, start=start) for target in targets]
    results = [result for server in servers for result in _server_parities(server, outputs, half=half)]
    steps = sum(len(output.steps) for output in outputs)
    return results, f"n counts steps: {steps} in {len(outputs)} conversations of --data."


def process_parities(
    model: ProcessRewardModel,
    targets: Sequence[Against],
    examples: Sequence[Example],
    *,
    token: str | None = None,
    half: bool = False,
) -> list[Parity]:
    """Compare the step scores of a loaded process reward model with those of vLLM and of `rewardlab serve`."""
    encoded = model.encoder.encode_steps(examples)
    logits = model.token_logits([row.ids for row in encoded])
    ends = [[end for end in row.ends if end < len(row.ids)] for row in encoded]
    outputs = [StepOutputs(row.ids, *read) for row, *read in zip(encoded, logits, ends, strict=True)]
    start, served = token_classify_options(), [target for target in targets if target.kind in ("vllm", "http")]
    servers = [Vllm(t.target, start=start) if t.kind == "vllm" else ServedSteps(t.target, token) for t in served]
    return [result for server in servers for result in _server_parities(server, outputs, half=half)]


def _server_parities(server: Vllm, outputs: Sequence[StepOutputs], *, half: bool) -> list[Parity]:
    rows = [list(output.ids) for output in outputs]

    def compared(way: str, activated: bool, **options: Any) -> Parity:
        theirs = [scores for some in batches(rows) for scores in server.token_classify(some, **options)]
        return compare_steps(way, outputs, theirs, activated=activated, half=half)

    return [
        compared(f"{server.program}, token_classify", False, use_activation=False),
        compared(f"{server.program}, token_classify, as it activates", True),
    ]
