"""Planted causes: models that are trained on one cause, which an explanation names first."""

from rewardlab.benchmarks.explanation.explain import explain

from tests.benchmarks.explanation.planted import earlier, linear, longer, marked, pairs, scalar

PLANTED = [
    (linear, longer, "length"),
    (scalar, longer, "length"),
    (scalar, earlier, "the order of the sentences"),
    (scalar, marked, "the word 'kano'"),
]
CASES = 5
"""Held-out pairs of each model."""


def test_the_planted_cause_is_named_first_in_eighteen_of_twenty_cases():
    named = []
    for train, cause, name in PLANTED:
        model = train(cause)
        for pair in pairs(cause, CASES, seed=1):
            explanation = explain("rm", model, pair.prompt, pair.texts)
            named.append((name, explanation.lead(0)))
    right = [lead.lower().startswith(f"{name} explains") and "first response" in lead for name, lead in named]
    assert len(named) == 20 and sum(right) >= 18, named
