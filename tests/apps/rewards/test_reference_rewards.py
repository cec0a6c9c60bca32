"""`--reward rlpr`, `--reward rlvrr`: rewards that know each prompt's row, from the files of prompts to the steps."""

import pytest
from rewardlab.apps.rewards._open import RunFacts
from rewardlab.apps.rewards.rlpr import rlpr
from rewardlab.apps.rewards.rlvrr import rlvrr
from rewardlab.benchmarks import garden
from rewardlab.policy.decoding.engines import decoding_model
from rewardlab.policy.rewards.reference_probability import reasoning_prefix, reference_probabilities
from rewardlab.rm.backbones.loading import load_causal_lm, load_tokenizer
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.registry.specs import build
from rewardlab.rm.types import Example, prompt_text, user_turn

from tests.apps.conftest import rollouts_of, steps_of, write

GOLD = "gold=rewardlab.benchmarks.garden:gold"
QUESTION, OTHER = user_turn("what is it?"), user_turn("and that?")
TAGS = ("for", "near")
"""Words of the garden, which its policy writes by itself."""


def facts(policy=None, **columns) -> RunFacts:
    return RunFacts(policy, 1, 0, {}, {prompt_text(QUESTION): [columns], prompt_text(OTHER): [columns]})


def start_of(world):
    words = load_tokenizer(str(world / "start"))
    return decoding_model(load_causal_lm(str(world / "start"), words), words)


@pytest.fixture
def prompts(tmp_path):
    """Every prompt of the garden with a reference, keywords and a check."""
    beside = {"reference": "bees hive wax", "keywords": [[["bees", "hive", "wax"]]]}
    beside |= {"checks": [{"weight": 0.5, "most": 8}]}
    return write(tmp_path / "prompts.jsonl", ({"prompt": list(one), **beside} for one in garden.prompts(40, 0)))


def test_content_and_style_are_added_up():
    """Of the reference's two keywords one is said, 1/2; the check is worth 0.3."""
    columns = {"reference": "sun and sea", "keywords": [[["sun", "sea"]]], "checks": [{"weight": 0.3, "has": "!"}]}
    answers = [Example(QUESTION, "the sea"), Example(OTHER, "the sea!")]
    assert rlvrr(run=facts(**columns))(answers) == [0.5, 0.8]
    assert rlvrr(run=facts(**columns), content_weight=2.0, style_weight=0.0)(answers) == [1.0, 1.0]
    assert rlvrr(run=facts(reference=["x", "sea"], keywords=[[["sea"]]]))(answers) == [1.0, 1.0]


def test_a_run_learns_from_references(rl, prompts):
    flags = ["--reward", "rlvrr(style_weight=2)", "--max_steps", 1, "--rollout_steps", 1]
    code, found, err, folder = rl(*flags, data=prompts)
    assert code == 0 and found["rewards"].keys() == {"rlvrr"}, err
    short = [row for row in rollouts_of(folder) if len(row["completion"].split()) < 9]
    assert all(row["reward/sources/rlvrr"] >= 1 for row in short)
    assert steps_of(folder)[0]["rewards/rlvrr/mean"] > 0


def test_a_reward_is_what_the_reasoning_adds_and_the_form(rl_world):
    """Two answers with a form, one without its end, one without anything, and one whose tag stands there twice."""
    policy = start_of(rl_world)
    said = ["bees wax hive for a near b", "ponds for wax near", "bees wax hive for", "bees", "bees for for near"]
    prompts = [QUESTION, OTHER, QUESTION, QUESTION, OTHER]
    reward = rlpr(run=facts(policy, reference="bees hive wax"), tags=TAGS, form=0.25, together=2)
    found = reward([Example(*one) for one in zip(prompts, said, strict=True)])

    def chance(prompt, opening):
        return float(reference_probabilities(policy.model, policy.encoder, [prompt], [opening], ["bees hive wax"]))

    gains = [chance(*one) - chance(one[0], "for") for one in zip(prompts, map(reasoning_of, said), strict=True)]
    assert gains[0] > 0.01 and gains[0] == pytest.approx(gains[2])
    expected = [max(gain, 0) if reasoning_prefix(one, TAGS) else 0 for gain, one in zip(gains, said, strict=True)]
    forms = [0.75 * gain + 0.25 * form for gain, form in zip(expected, [1, 1, 0, 0, 0], strict=True)]
    assert found == pytest.approx(forms, abs=1e-6)


def test_an_answer_that_leaves_no_room_for_the_reference_has_no_reward(rl_world, capsys):
    """The policy reads as many tokens as the short answer and the reference have; the form alone is no reward."""
    policy = start_of(rl_world)
    short, long = Example(QUESTION, "bees for near"), Example(QUESTION, "bees wax hive for near")
    room = len(policy.encoder.encode_prompt(QUESTION)) + len(["bees", "for"]) + len(["bees", "hive"])
    run = facts(policy, reference="bees hive")
    (alone,) = rlpr(run=run, tags=TAGS)([short])
    policy.encoder.tokenizer.model_max_length = room
    assert rlpr(run=run, tags=TAGS)([short, long]) == [pytest.approx(alone), None]
    assert "rlpr: the reference exceeds the policy's context after 1 of 2 completions" in capsys.readouterr().err


def reasoning_of(answer: str) -> str:
    return reasoning_prefix(answer, TAGS) or "for"


def test_a_run_is_rewarded_by_its_own_policy(rl, rl_world, prompts):
    """In the second step it is no longer the one that training starts from."""
    flags = ["--reward", GOLD, "--watch", f"rlpr(tags={list(TAGS)})", "--max_steps", 2, "--rollout_steps", 1]
    flags += ["--per_device_train_batch_size", 32, "--learning_rate", 1e-2]
    code, _, err, folder = rl(*flags, data=prompts)
    assert code == 0, err
    start = start_of(rl_world)
    off = {0: [], 1: []}
    for row in rollouts_of(folder):
        asked = Example(user_turn(row["prompt"].removeprefix("user: ")), row["completion"])
        run = facts()._replace(policy=start, rows={prompt_text(asked.prompt): [{"reference": "bees hive wax"}]})
        off[row["step"]].append(abs(rlpr(run=run, tags=TAGS)([asked])[0] - row["reward/sources/rlpr"]))
    assert max(off[0]) < 1e-6 and max(off[1]) > 1e-5


def test_a_row_without_what_is_needed_and_settings_that_make_no_sense_are_refused(rl, tmp_path):
    for spec, columns, message in (
        ("rlvrr", {}, "the row of the prompt 'user: what is it?': no column 'reference'"),
        ("rlvrr(reference=gold)", {"reference": "a"}, "no column 'gold'"),
        ("rlvrr", {"reference": "a"}, "no column 'keywords'"),
        ("rlvrr", {"reference": [], "keywords": [[["a"]]]}, "'reference' must be a string or a list of strings"),
        ("rlpr", {"reference": ["a"]}, "'reference' must be a text, got"),
    ):
        with pytest.raises(DataError, match="user: what is it") as error:
            build("apps.rewards", spec, run=facts(**columns))
        assert message in str(error.value), spec
    with pytest.raises(UsageError, match="tags must be two or more texts and form in"):
        rlpr(run=facts(reference="a"), tags=["<answer>"])
    with pytest.raises(UsageError, match="content_weight and style_weight are both 0; set one of them"):
        rlvrr(run=facts(), content_weight=0.0, style_weight=0.0)
    two = facts()._replace(rows={prompt_text(QUESTION): [{"reference": "a"}, {"reference": "b"}]})
    with pytest.raises(DataError, match="the rows of the prompt 'user: what is it\\?' differ: 'a' and 'b'"):
        rlpr(run=two)
    (tmp_path / "prompts.txt").write_text("hello tell me about bees\n" * 4)
    code, _, err, _ = rl("--reward", "rlvrr", data=tmp_path / "prompts.txt")
    assert code == 3 and "rlvrr: the row of the prompt 'user: hello tell me about bees': no column 'reference'" in err
