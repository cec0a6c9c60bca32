"""HiLL: reward of a hint by the answers of a reasoner that reads it."""

from collections.abc import Sequence
from math import exp
from statistics import fmean

from ...policy.decoding.engines import language_model, positions
from ...policy.rewards.reference_probability import mean_logprob, reference_probabilities
from ...policy.rollouts._partners import open_partner, sample_texts, seeds_of
from ...policy.types import RewardFunction
from ...rm.errors import UsageError
from ...rm.types import Example, prompt_text, user_turn
from ._answers import BOXED, last_answer
from ._open import RunFacts


def hill(
    *,
    run: RunFacts,
    reasoner: str,
    n: int = 8,
    question: str = "question",
    reference: str = "reference",
    answer: str = BOXED,
    temperature: float = 0.3,
    leaked: float = -0.2,
    longest: int = 256,
) -> RewardFunction:
    """r = (1 - p̂ⁿ - (1 - p̂)ⁿ) exp(min(Δ, 0) / T),  Δ = mean[log p(y | q) - log p(y | q, h)]     HiLL 2026, 2604.00698

    The policy writes a hint h. The frozen model `reasoner` samples n answers y to the question q (column `question`)
    followed by h, at temperature 1. p̂ is the share of answers equal to column `reference`. Δ is the mean, over the
    right answers, of their mean log-probability (nats per token) without the hint minus that with the hint. T =
    `temperature` and r = `leaked` for a hint that contains the reference are those of the released code.
    """
    if n < 2 or temperature <= 0 or longest < 1:
        raise UsageError(f"hill: n >= 2, temperature > 0 and longest >= 1, got {n}, {temperature} and {longest}")
    questions, references = run.texts_by_prompt(question), run.texts_by_prompt(reference)
    read, device = last_answer(answer), str(language_model(run.policy).device)
    model = open_partner(reasoner, device=device, **run.loading)

    def transfer(plain: str, hinted: str, texts: Sequence[str]) -> float:
        logprobs = [
            reference_probabilities(
                language_model(model), model.encoder, [user_turn(prompt)] * len(texts), [""] * len(texts), texts,
                longest=positions(model), formula=mean_logprob,
            )
            for prompt in (plain, hinted)
        ]  # fmt: skip
        return float((logprobs[0] - logprobs[1]).nanmean())

    def reward(example: Example) -> float:
        plain, right = questions[prompt_text(example.prompt)], references[prompt_text(example.prompt)].strip()
        if right in example.text or not example.text.strip():
            return leaked
        hinted = f"{plain}\n\n{example.text}"
        seeds = seeds_of(run.seed, [plain, example.text], n)
        texts = sample_texts(model, [user_turn(hinted)] * n, seeds, longest)
        verdicts = [read(text) == right for text in texts]
        signal = informative(fmean(verdicts), n)
        good = [text for text, verdict in zip(texts, verdicts, strict=True) if verdict]
        return signal * exp(min(transfer(plain, hinted, good), 0) / temperature) if signal else 0.0

    return lambda examples: [reward(example) for example in examples]


def informative(rate: float, n: int) -> float:
    """1 - p̂ⁿ - (1 - p̂)ⁿ: the probability that n answers are neither all right nor all wrong.

    >>> informative(0.5, 3), informative(1.0, 3)
    (0.75, 0.0)
    """
    return 1 - rate**n - (1 - rate) ** n
