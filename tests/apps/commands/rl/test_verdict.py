"""`rewardlab rl --reward verdict`: prompts in both orders of a pair, and a reward for the right verdict."""

from tests.apps.conftest import rollouts_of, steps_of, write


def rows(number=8):
    return [
        {
            "prompt": f"tell me about bees {'please ' * index}",
            "prompt_variants": [f"describe bees {'please ' * index}"],
            "labels": ["A", "B"],
            "responses": ["honey", "hives"],
        }
        for index in range(number)
    ]


def test_both_orders_are_in_one_group_and_no_verdict_is_missing_or_a_penalty(rl, tmp_path):
    data = write(tmp_path / "verdicts.jsonl", rows())
    flags = ["--data", data, "--max_steps", 1, "--reward"]
    code, _, told, folder = rl(*flags, "verdict(no_verdict=nan)", "--rollout_steps", 1)
    assert code == 5 and "(missing: verdict 16)" in told
    step = steps_of(folder)[0]
    assert step["verdict/no_verdict"] == 1.0 and step["rewards/verdict/missing"] == 16
    groups: dict[int, list[str]] = {}
    for row in rollouts_of(folder):
        groups.setdefault(row["group"], []).append(row["prompt"])
    assert all(["tell" in prompt for prompt in group] == [True, True, False, False] for group in groups.values())
    assert all(len({prompt.count("please") for prompt in group}) == 1 for group in groups.values())
    code, _, told, folder = rl(*flags, "v=verdict(no_verdict=-1)", output="penalty")
    assert code == 5 and steps_of(folder)[0]["rewards/v/mean"] == -1.0, told


def test_rows_that_are_not_of_a_pair_are_refused(rl, tmp_path):
    for change, code, says in (
        ({"labels": ["A"]}, 2, "'labels' has A or B for each of its 2 requests"),
        ({"prompt_variants": "describe bees"}, 3, "'prompt_variants' is a list of prompts"),
        ({"prompt_variants": ["a", "b"], "labels": ["A", "B", "A"]}, 2, "--num_generations is 4 and a prompt has 3"),
    ):
        data = write(tmp_path / "verdicts.jsonl", [row | change for row in rows()])
        found, _, told, _ = rl("--data", data, "--reward", "verdict")
        assert (found, says in told) == (code, True), told
