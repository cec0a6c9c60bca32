"""Parity of process reward models: the scores of reasoning steps through Transformers and through vLLM."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

from ....rm.backbones.hub import parse_source
from ....rm.backbones.loading import load_tokenizer
from ....rm.backbones.tokenization import Encoder, describe_tokenizer, single_token_id
from ....rm.backbones.value_heads import refuse_pickles
from ....rm.contract.scoring_contract import ScoringContract
from ....rm.errors import DataError
from ....rm.kinds.process.model import ProcessRewardModel
from ....rm.parity.parity import Parity
from ....rm.parity.step_scores import StepOutputs, compare_steps, step_positions
from ....rm.types import Example
from ...runs.run_folder import trust
from .model_server import batches
from .settings import ParityConfig
from .vllm import ServedSteps, Vllm, token_classify_options


class StepModel:
    """A process reward model: a token classifier, or a causal language model that predicts a label at step tokens."""

    def __init__(self, config: ParityConfig):
        options = trust(config)
        self.tokenizer = load_tokenizer(config.model, **options)
        self.step_id = single_token_id(self.tokenizer, config.step_token or "", "step_token")
        self.label_ids = [single_token_id(self.tokenizer, label, "step_labels") for label in config.step_labels]
        auto = AutoModelForCausalLM if self.label_ids else AutoModelForTokenClassification
        self.model = _load(auto, config.model, options)
        described = describe_tokenizer(self.tokenizer, config.bos, config.eos)
        labels = config.step_labels or [*self.model.config.id2label.values()]
        self.contract = ScoringContract(kind="process", objectives=tuple(labels), **described)
        self.encoder = Encoder(self.tokenizer, self.contract)

    @torch.inference_mode()
    def outputs(self, examples: Sequence[Example]) -> list[StepOutputs]:
        """Return the logits of every conversation, computed alone, and where its step tokens are."""
        results = []
        for index, encoded in enumerate(self.encoder.encode_all(examples)):
            logits = self.model(input_ids=torch.tensor([encoded.ids])).logits[0].double()
            logits = logits[:, self.label_ids] if self.label_ids else logits
            steps = step_positions(encoded.ids, self.step_id)
            if not steps:
                raise DataError(
                    f"conversation {index + 1}: no token {self.tokenizer.convert_ids_to_tokens(self.step_id)!r} in it; "
                    "write it after every step of the completions of --data"
                )
            results.append(StepOutputs(encoded.ids, logits.numpy(), steps))
        return results


def step_parities(config: ParityConfig, examples: Sequence[Example]) -> tuple[ScoringContract, list[Parity], list[str]]:
    """Compare the step scores of each server, with its activation and without."""
    model = StepModel(config)
    outputs = model.outputs(examples)
    start = token_classify_options(model.tokenizer.convert_ids_to_tokens(model.label_ids))
    servers = [Vllm(asked.target, start=start) for asked in config.asked]
    results = [result for server in servers for result in _compared(server, outputs, half=config.half)]
    steps = sum(len(output.steps) for output in outputs)
    return model.contract, results, [f"n counts steps: {steps} in {len(outputs)} conversations of --data."]


def process_parities(config: ParityConfig, model: ProcessRewardModel, examples: Sequence[Example]) -> list[Parity]:
    """Compare the step scores of a loaded process reward model with those of vLLM and of `rewardlab serve`."""
    encoded = model.encoder.encode_steps(examples)
    logits = model.token_logits([some.ids for some in encoded])
    ends = [[end for end in some.ends if end < len(some.ids)] for some in encoded]
    outputs = [StepOutputs(some.ids, *read) for some, *read in zip(encoded, logits, ends, strict=True)]
    servers = [
        Vllm(asked.target, start=token_classify_options())
        if asked.kind == "vllm"
        else ServedSteps(asked.target, config.token)
        for asked in config.asked
        if asked.kind in ("vllm", "http")
    ]
    return [result for server in servers for result in _compared(server, outputs, half=config.half)]


def _compared(server: Vllm, outputs: Sequence[StepOutputs], *, half: bool) -> list[Parity]:
    rows = [list(output.ids) for output in outputs]

    def compared(way: str, activated: bool, **options: Any) -> Parity:
        theirs = [scores for some in batches(rows) for scores in server.token_classify(some, **options)]
        return compare_steps(way, outputs, theirs, activated=activated, half=half)

    return [
        compared(f"{server.program}, token_classify", False, use_activation=False),
        compared(f"{server.program}, token_classify, as it activates", True),
    ]


def _load(auto: Any, source: str, options: dict[str, Any]) -> Any:
    location = parse_source(source)
    if Path(source).is_dir():
        refuse_pickles(Path(source))
    try:
        model, facts = auto.from_pretrained(
            location.name,
            revision=location.revision or "main",
            use_safetensors=True,
            output_loading_info=True,
            dtype=torch.float32,
            **options,
        )
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{source}: cannot be loaded as a process reward model ({error})") from error
    if facts["missing_keys"]:
        missing = ", ".join(sorted(facts["missing_keys"])[:4])
        raise DataError(
            f"{source}: the weights lack {missing}, so its scores would be random; give a token classifier, or name "
            "the labels that a causal language model predicts with --step_labels"
        )
    return model.eval()
