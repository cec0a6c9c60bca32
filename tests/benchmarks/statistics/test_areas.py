"""Which subsets a section's figure depends on."""

from rewardlab.benchmarks.statistics.figures import section_members
from rewardlab.rm.registry import load

CHAT, CODE = ["alpacaeval-easy", "mt-bench-med"], ["hep-cpp", "hep-rust"]


def test_sections_have_the_subsets_that_move_them():
    for suite, subsets, members in [
        ("rewardbench", [*CODE, *CHAT], {"Chat": CHAT, "Reasoning": CODE}),
        ("rewardbench2", ["Math", "Ties"], {"Math": ["Math"], "Ties": ["Ties"]}),
        ("judgebench", ["mmlu-pro-law", "mmlu-pro-math"], {"knowledge": ["mmlu-pro-law", "mmlu-pro-math"]}),
        ("pairs", ["a", "b"], {}),
        ("pairs", [], {}),
    ]:
        assert section_members(load("benchmarks.suites", suite)(), subsets) == members


def test_a_level_of_rm_bench_depends_on_every_domain():
    members = section_members(load("benchmarks.suites", "rm_bench")(), ["chat", "safety-refuse", "safety-response"])
    assert members["safety"] == ["safety-refuse", "safety-response"] and members["chat"] == ["chat"]
    assert members["hard"] == members["easy"] == ["chat", "safety-refuse", "safety-response"]
