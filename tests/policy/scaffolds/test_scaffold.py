"""policy/scaffolds/_scaffold.py and policy/scaffolds: who is shown how much, and which prompt is trained on."""

import math
from collections import Counter
from random import Random
from types import SimpleNamespace

import pytest
from rewardlab.policy.scaffolds._scaffold import Hints, scaffold_rollouts, with_hints
from rewardlab.policy.scaffolds.ruscarl import ruscarl
from rewardlab.rm.registry import load, names
from rewardlab.rm.types import prompt_text, user_turn

pytestmark = pytest.mark.filterwarnings("ignore:You are using 'rollout_func'")
BEES = Hints(("bees", "hive", "wax"), ("venom",))


def test_help_falls_within_a_group_and_fades_around_a_fifth_of_training():
    assert ruscarl()(0.0, 5) == pytest.approx([1.0, 0.75, 0.5, 0.25, 0.0]) and ruscarl()(0.0, 1) == pytest.approx([1.0])
    # 1/(1 + exp(125 (τ - 0.2))): at 0.18 the exponent is -2.5, at 0.2 it is 0, at 0.22 it is 2.5.
    for progress, left in ((0.18, 1 / (1 + math.exp(-2.5))), (0.2, 0.5), (0.22, 1 / (1 + math.exp(2.5))), (1.0, 0.0)):
        assert ruscarl()(progress, 3) == pytest.approx([left, left / 2, 0.0], abs=1e-12)
    assert ruscarl(steepness=2.0, middle=0.5)(0.0, 2)[0] == pytest.approx(1 / (1 + math.exp(-1)))
    assert names("policy.scaffolds") == ["guide", "ruscarl"] and load("policy.scaffolds", "ruscarl") is ruscarl


def test_a_share_of_the_hints_is_drawn_and_keeps_its_order():
    """0.4 of 4 is 1.6, so 2; over many draws each is drawn as often as any other."""
    drawn = [BEES.sample(0.4, Random(seed)) for seed in range(400)]
    assert {len(one.include) + len(one.avoid) for one in drawn} == {2}
    assert all(list(one.include) == sorted(one.include, key=BEES.include.index) for one in drawn)
    often = Counter(text for one in drawn for texts in one for text in texts)
    assert all(abs(often[text] - 200) < 1.96 * 10 * 1.5 for text in ("bees", "hive", "wax", "venom"))
    assert BEES.sample(1.0, Random(0)) == BEES and BEES.sample(0.1, Random(0)) == Hints(())


def test_hints_stand_in_the_system_message():
    prompt = user_turn("Tell me of bees.")
    (system, user) = with_hints(prompt, Hints(("Names wax.",), ("Invents.",)))
    assert system["role"] == "system" and user == prompt[0]
    assert system["content"].split("\n")[:4] == [
        "Points that the answer should make:", "- Names wax.", "What the answer should avoid:", "- Invents.",
    ]  # fmt: skip
    told = with_hints(({"role": "system", "content": "Be kind."}, *prompt), Hints(("Names wax.",)))
    assert (
        len(told) == 2
        and told[0]["content"].startswith("Be kind.\n\nPoints that")
        and "avoid" not in told[0]["content"]
    )
    assert with_hints(prompt, Hints(())) == prompt


class Engine:
    """What a rollout function sees of a trainer: encodes a prompt as its words, and answers with their number."""

    num_generations, max_completion_length = 2, 4

    def __init__(self, step=0, training=True):
        self.model, self.state = SimpleNamespace(training=training), SimpleNamespace(global_step=step, max_steps=11)
        self.encoder, self.noted = SimpleNamespace(encode_prompt=lambda prompt: prompt_text(prompt).split()), []

    def _tokenize_prompts(self, prompts):
        return [prompt_text(one).split() for one in prompts], None, {}

    def _generate_single_turn(self, ids, images, fields, num_generations):
        return [[len(one)] for one in ids], None

    def _note(self, name, value):
        self.noted.append((name, value))


def written(engine, longest=None, **options):
    """How many words more than the plain prompt has each answer's prompt had."""
    prompts = [[{"role": "user", "content": "Tell me."}]] * 4
    found = scaffold_rollouts(lambda prompt: BEES, ruscarl(), longest=longest, **options)(prompts, engine)
    assert found["prompt_ids"] == [["user:", "Tell", "me."]] * 4 and found["logprobs"] is None
    return [said - 3 for (said,) in found["completion_ids"]]


def test_answers_are_written_with_hints_and_handed_over_without_whoever_writes_them():
    engine = Engine()
    first, second, *others = written(engine)
    assert first > 20 and second == 0 and others == [first, 0] and engine.noted == [("scaffold/hinted", 0.5)]
    assert written(Engine(step=10)) == [0] * 4  # the last step
    assert written(Engine(training=False)) == [0] * 4
    assert written(Engine(), longest=3 + first) == [first, 0] * 2 and written(Engine(), longest=2 + first) == [0] * 4

    def twice(prompts, trainer):
        return {"completion_ids": [[2 * len(prompt_text(one).split())] for one in prompts], "logprobs": [[0.0]] * 4}

    assert written(Engine(), rollouts=twice)[1] == 3
