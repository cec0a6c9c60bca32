"""MiniLM in full and SmolLM2 with LoRA as reward models: losses are those of TRL, and scores those of Transformers."""

import copy
from typing import NamedTuple

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from rewardlab.rm.backbones.loading import merged_copy
from rewardlab.rm.backbones.packing import packing_limit
from rewardlab.rm.backbones.tokenization import pad
from rewardlab.rm.data.solutions import Solution
from rewardlab.rm.kinds.process.model import load_process
from rewardlab.rm.kinds.process.training import ProcessTask, encode_solutions
from rewardlab.rm.kinds.scalar.model import ScalarRewardModel, load_scalar
from rewardlab.rm.kinds.scalar.training import ScalarTask, encode_pairs
from rewardlab.rm.losses.bradley_terry import bradley_terry
from rewardlab.rm.parity.parity import with_weights
from rewardlab.rm.training.trainer import RewardArguments, RewardTrainer
from rewardlab.rm.types import OVERALL, Example, user_turn
from rewardlab.tests.stand_ins.small_training import Fit, fit
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline
from trl import RewardConfig
from trl import RewardTrainer as PeerTrainer

from tests.pretrained.conftest import PAIRS

SETTINGS = {
    "max_steps": 4, "learning_rate": 1e-4, "per_device_train_batch_size": 2, "seed": 5, "save_strategy": "no",
    "use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "gradient_checkpointing": False,
    "logging_steps": 1,
}  # fmt: skip
EXAMPLES = [example for pair in PAIRS for example in pair.examples]
LORA = {"r": 16, "lora_alpha": 32, "target_modules": "all-linear"}
STEPS = [("France has a capital.", "It is Paris."), ("France has no capital.", "So there is none.")]


class Training(NamedTuple):
    """A model before and after its first steps, and the loss of each."""

    untrained: ScalarRewardModel
    trained: ScalarRewardModel
    losses: list[float]


def losses_of(trainer) -> list[float]:
    trainer.train()
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def rows_of(model):
    return encode_pairs(model.encoder, PAIRS, OVERALL).rows


def pair_loss(model) -> float:
    rewards = model.rate(EXAMPLES)[:, 0]
    return float(np.logaddexp(0, rewards[1::2] - rewards[::2]).mean())


@pytest.fixture(scope="module", params=["minilm", "smollm2"])
def training(request, tmp_path_factory) -> Training:
    source = request.getfixturevalue(request.param)
    special = {"lora": LoraConfig(**LORA)} if request.param == "smollm2" else {"chat_template": "plain"}
    untrained = load_scalar(source, fresh=True, max_length=64, **special)
    trained = copy.deepcopy(untrained)
    arguments = RewardArguments(output_dir=str(tmp_path_factory.mktemp("ours")), **SETTINGS)
    trainer = RewardTrainer(trained, arguments, ScalarTask(bradley_terry()), rows_of(trained))
    return Training(untrained, trained, losses_of(trainer))


def test_the_first_steps_lower_the_loss(training):
    before, after = pair_loss(training.untrained), pair_loss(training.trained)
    assert after < before - 0.05 and training.losses[-1] < training.losses[0]


def test_the_losses_of_steps_are_trls(training, tmp_path):
    peer = copy.deepcopy(training.untrained)
    data = [{"chosen_ids": row.chosen, "rejected_ids": row.rejected} for row in rows_of(peer)]
    trainer = PeerTrainer(
        peer.model,
        RewardConfig(output_dir=str(tmp_path), **SETTINGS),
        train_dataset=Dataset.from_list(data),
        processing_class=peer.encoder.tokenizer,
    )
    assert losses_of(trainer) == pytest.approx(training.losses, abs=1e-4)


def test_a_saved_and_merged_model_scores_in_plain_transformers_and_as_rewardbench_calls_it(training, large_folder):
    """One by one, in a padded batch of the saved tokenizer, and by the pipeline of texts that `rewardbench` builds."""
    model = training.trained
    plain = with_weights(model, merged_copy(model.model)) if isinstance(model.model, PeftModel) else model
    plain.save(large_folder)
    expected = pytest.approx(model.rate(EXAMPLES)[:, 0], abs=1e-4)
    assert load_scalar(str(large_folder)).rate(EXAMPLES)[:, 0] == expected
    tokenizer = AutoTokenizer.from_pretrained(large_folder)
    classifier = AutoModelForSequenceClassification.from_pretrained(large_folder, dtype=torch.float32).eval()
    texts = [tokenizer.apply_chat_template(example.turns, tokenize=False) for example in EXAMPLES]
    with torch.inference_mode():
        alone = [classifier(**tokenizer(text, return_tensors="pt")).logits.item() for text in texts]
        batch = classifier(**tokenizer(texts, padding=True, return_tensors="pt")).logits[:, 0].tolist()
    assert alone == expected and batch == expected
    scorer = pipeline("text-classification", model=classifier, tokenizer=tokenizer, device="cpu")
    options = {"truncation": True, "padding": True, "max_length": 64, "function_to_apply": "none"}
    assert [output["score"] for output in scorer(texts, batch_size=4, **options)] == expected


@pytest.fixture(scope="module")
def plain_text(smollm2) -> ScalarRewardModel:
    """SmolLM2 on turns as plain text, which ends with EOS."""
    return load_scalar(smollm2, fresh=True, chat_template="plain", max_length=64)


def test_a_text_that_ends_with_the_pad_token_of_the_backbone_is_read_to_its_end(plain_text, smollm2):
    """Transformers reads at the last token that is not the pad token, which would be the one before EOS."""
    original = AutoTokenizer.from_pretrained(smollm2)
    rows = [encoded.ids for encoded in plain_text.encoder.encode_all(EXAMPLES[:4])]
    assert original.pad_token_id == original.eos_token_id == rows[0][-1]
    with torch.inference_mode():
        states = [plain_text.model.model(torch.tensor([row])).last_hidden_state[0, -1] for row in rows]
        last = [plain_text.model.score(state).item() for state in states]
        padded = plain_text.encoder.tokenizer.pad({"input_ids": rows}, return_tensors="pt")
        batch = plain_text.model(**padded).logits[:, 0].tolist()
    assert plain_text.rate(EXAMPLES[:4])[:, 0] == pytest.approx(last, abs=1e-5)
    assert batch == pytest.approx(last, abs=1e-5)


def test_packed_scores_are_padded_ones(plain_text):
    examples = [Example(user_turn("Say which it is. " * 8), text) for text in ("Paris.", "Lyon, or Paris.", "No.")]
    tokens, attention = pad([encoded.ids for encoded in plain_text.encoder.encode_all(examples)])
    with torch.inference_mode():
        padded = plain_text.score(tokens, attention)[:, 0].tolist()
    assert packing_limit(plain_text.model) >= 64
    assert plain_text.rate(examples)[:, 0] == pytest.approx(padded, abs=1e-4)


def test_a_process_reward_model_learns_to_tell_steps_apart(smollm2):
    model = load_process(smollm2, fresh=True, lora=LoraConfig(**LORA), max_length=64)
    solutions = [Solution(str(i), user_turn("What is it?"), steps, (1.0 - i,) * 2) for i, steps in enumerate(STEPS)]
    rows = encode_solutions(model.encoder, solutions).rows
    examples = [solution.example("\n\n") for solution in solutions]
    before = model.step_scores(examples)
    fit(model, ProcessTask(), rows, Fit(steps=3, learning_rate=5e-4, batch=2, seed=0))
    after = model.step_scores(examples)
    assert (after[0] - after[1]).mean() > (before[0] - before[1]).mean() + 0.05
    assert model.rate(examples)[:, 0] == pytest.approx([scores.min() for scores in after])
