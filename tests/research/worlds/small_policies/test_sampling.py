import torch
from rewardlab.benchmarks.garden import questions
from rewardlab.research.worlds.small_policies import completion_readings, sample_completions
from rewardlab.research.worlds.small_policies.sampling import policy_encoder
from scipy.stats import chisquare

PROMPTS = [questions()[index] for index in (0, 50, 101, 0)]


def test_log_probabilities_equal_those_of_the_finished_text(policy):
    drawn = sample_completions(policy, PROMPTS * 8, seed=0)
    torch.testing.assert_close(drawn.logprob, completion_readings(policy, drawn.rows).logprob, atol=1e-4, rtol=1e-4)


def test_rows_hold_prompt_and_completion(policy):
    drawn = sample_completions(policy, PROMPTS, seed=3, longest=5)
    encoder, end = policy_encoder(), policy_encoder().tokenizer.eos_token_id
    for row, prompt in enumerate(PROMPTS):
        tokens = drawn.rows.tokens[row][drawn.rows.attention[row]].tolist()
        start = int(drawn.rows.start[row])
        completion = tokens[start:]
        assert tokens[:start] == encoder.encode_prompt(prompt)
        assert len(completion) == int(drawn.rows.response[row].sum()) <= 5
        assert end not in completion[:-1]
        assert (completion[-1] == end) == bool(drawn.finished[row])
        assert drawn.examples[row].completion == encoder.tokenizer.decode(completion, skip_special_tokens=True)


def test_first_tokens_follow_the_policys_distribution(policy):
    N = 4000
    drawn = sample_completions(policy, PROMPTS[:1] * N, seed=5, longest=1)
    ids = torch.tensor([policy_encoder().encode_prompt(PROMPTS[0])])
    with torch.no_grad():
        expected = policy(input_ids=ids).logits[0, -1].double().softmax(-1) * N
    counts = drawn.rows.tokens[:, ids.shape[1]].bincount(minlength=len(expected)).double()
    assert expected.min() > 5  # the approximation's condition
    assert chisquare(counts, expected).pvalue > 1e-3


def test_later_tokens_follow_the_policys_distribution(policy):
    """The mean of -log p of samples is the entropy: their difference has mean 0 at every position."""
    drawn = sample_completions(policy, PROMPTS * 250, seed=7)
    read = completion_readings(policy, drawn.rows)
    surprise = torch.where(drawn.rows.response, -read.logprob - read.entropy, 0).detach().double()
    assert len(drawn.rows.tokens) == 1000
    for position in (1, 4, 9):
        live = surprise[drawn.rows.response[:, position], position]
        assert len(live) > 300
        assert abs(live.mean()) < 4 * live.std() / len(live) ** 0.5
