"""SmolLM2 as a language model: plain and guided decoding, a step of GRPO, and a judge in this process."""

import copy

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from rewardlab.judges.backends.local_model import chat_from_model
from rewardlab.judges.kinds.pairwise import pairwise
from rewardlab.judges.prompts import Sampling
from rewardlab.judges.types import Case
from rewardlab.policy.advantages.grpo import grpo
from rewardlab.policy.aggregations.token_mean import token_mean
from rewardlab.policy.decoding.engines import SeparateModels, SharedBackbone, decoding_model
from rewardlab.policy.decoding.guided import decode
from rewardlab.policy.decoding.requests import Request
from rewardlab.policy.losses.ppo import ppo
from rewardlab.policy.rewards.sources import RewardSources
from rewardlab.policy.step.algorithm import Algorithm
from rewardlab.policy.training.arguments import PolicyArguments
from rewardlab.policy.training.trainer import PolicyTrainer
from rewardlab.rm.adapters.settings import AdapterSettings
from rewardlab.rm.backbones.loading import load_causal_lm, load_tokenizer
from rewardlab.rm.data.preference_vectors import dirichlet
from rewardlab.rm.kinds.autoregressive.model import load_autoregressive
from rewardlab.rm.kinds.autoregressive.preference_task import PreferenceTask, encode_preferences
from rewardlab.rm.losses.sequence_logistic import sequence_logistic
from rewardlab.rm.types import PreferencePair, user_turn
from rewardlab.tests.stand_ins.small_training import Fit, fit

from tests.conftest import SMALL_RUN
from tests.pretrained.conftest import ANSWERS, PAIRS

CAPITAL = user_turn("What is the capital of France?")
BOTH = ("helpful", "harmless")


@pytest.fixture(scope="module")
def tokenizer(smollm2):
    return load_tokenizer(smollm2)


@pytest.fixture(scope="module")
def pretrained(smollm2, tokenizer):
    """The pretrained model, for nobody to change."""
    return load_causal_lm(smollm2, tokenizer).eval()


@pytest.fixture
def model(pretrained):
    """A copy to train."""
    return copy.deepcopy(pretrained)


def test_greedy_decoding_names_the_capital_as_generate_does(pretrained, tokenizer):
    request = Request(CAPITAL, temperature=0.0, max_new_tokens=12)
    (completion,) = decode(SeparateModels(decoding_model(pretrained, tokenizer)), [request])
    prompt = tokenizer.apply_chat_template(list(CAPITAL), add_generation_prompt=True, return_tensors="pt")
    tokens = pretrained.generate(**prompt, do_sample=False, max_new_tokens=12)[0, prompt.input_ids.shape[1] :]
    assert "Paris" in completion.text and completion.finished == "eos"
    assert completion.tokens == tuple(tokens.tolist())


def test_a_guide_after_a_step_gives_the_log_probabilities_of_whole_prefixes(model, pretrained, tokenizer, smollm2):
    settings = AdapterSettings("moslora", BOTH)
    guide = load_autoregressive(smollm2, adapter=settings, base=model, max_length=64)
    labels = {"helpful": 1.0, "harmless": 0.0}
    pairs = [PreferencePair(pair.id, pair.prompt, pair.chosen, pair.rejected, wins=labels) for pair in PAIRS[:2]]
    rows = encode_preferences(guide.encoder, pairs, BOTH).rows
    fit(guide, PreferenceTask(guide.adapter, BOTH, sequence_logistic(0.02), dirichlet(2)), rows, Fit(1, 1e-2, 2, 0))
    preference = {"helpful": 0.9, "harmless": 0.1}
    request = Request(CAPITAL, preference, weight=2.0, temperature=0.0, max_new_tokens=8, ignore_eos=True)
    (completion,) = decode(SharedBackbone(guide), [request])
    prompt = tokenizer.apply_chat_template(list(CAPITAL), add_generation_prompt=True, return_dict=False)
    tokens = torch.tensor([[*prompt, *completion.tokens]])
    guide.adapter.set_preference(preference)
    with torch.inference_mode():
        base, arm = (lm(tokens).logits[0, len(prompt) - 1 : -1].log_softmax(-1) for lm in (pretrained, guide.model))
    mixed = (base + 2.0 * arm).log_softmax(-1)
    assert completion.tokens == tuple(mixed.argmax(-1).tolist()) and not torch.allclose(base, arm, atol=1e-2)
    for logprobs, values in ((base, completion.base), (arm, completion.guides["guide"]), (mixed, completion.mixed)):
        expected = logprobs.gather(1, tokens[0, len(prompt) :, None])[:, 0]
        np.testing.assert_allclose(values, expected, atol=1e-3)


def test_a_step_of_grpo_trains_an_adapter_on_the_rewards_of_its_completions(model, tokenizer, tmp_path):
    lengths = []

    def length(examples):
        lengths.extend(float(len(example.completion)) for example in examples)
        return lengths[-len(examples) :]

    settings = SMALL_RUN | {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "max_steps": 1}
    trainer = PolicyTrainer(
        model,
        RewardSources({"length": length}),
        Algorithm(grpo(), ppo(), token_mean()),
        PolicyArguments(str(tmp_path / "run"), **settings | {"max_completion_length": 12}),
        Dataset.from_list([{"prompt": [dict(turn) for turn in CAPITAL]}]),
        tokenizer=tokenizer,
        peft_config=LoraConfig(r=8, target_modules=["q_proj", "v_proj"]),
    )
    trainer.train()
    (logged,) = [row for row in trainer.state.log_history if "reward" in row]
    assert logged["reward"] == pytest.approx(np.mean(lengths)) and len({*lengths}) > 1
    weights = dict(trainer.model.named_parameters())
    assert any(weight.abs().sum() > 0 for name, weight in weights.items() if "lora_B" in name)


def test_a_judge_scores_both_responses_or_abstains_with_a_reason(pretrained, tokenizer):
    judge = pairwise(chat_from_model(pretrained, tokenizer), orders="one", sampling=Sampling(max_tokens=24))
    (judgment,) = judge([Case("capital", CAPITAL, ANSWERS)])
    assert judgment.raw and judgment.raw[0] and judgment.tokens[1] <= 24
    assert len(judgment.scores) == 2 or judgment.abstained
