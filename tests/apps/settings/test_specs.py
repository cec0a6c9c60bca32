"""rm/registry/specs.py: what a flag says of a formula."""

import re
from collections.abc import Sequence

import pytest
from rewardlab.rm.errors import UsageError
from rewardlab.rm.registry.specs import Spec, accepts_argument, build, is_function, parse_spec, split_name


def listed(sizes, *, scale=1):
    return sizes, scale


def annotated(
    *,
    share: float | None = None,
    count: int | None = None,
    name: str | None = None,
    folder: str = "",
    exact: bool = False,
    weights: Sequence[float] | None = None,
    words: Sequence[str] = (),
    width: float | Sequence[float] = 0.0,
    rate: float | str = 0.0,
):
    return dict(locals())


def test_a_spec_is_a_name_and_arguments_and_a_source_is_called_by_its_last_part():
    for text, spec in {
        "grpo": Spec("grpo", {}),
        "grpo()": Spec("grpo", {}),
        " gae ( lam = 0.95 ) ": Spec("gae", {"lam": "0.95"}),
        "gate(reward=rm-1.helpful, by=form)": Spec("gate", {"reward": "rm-1.helpful", "by": "form"}),
        "my.code:fn(sizes=[1, 2], scale=3)": Spec("my.code:fn", {"sizes": "[1, 2]", "scale": "3"}),
    }.items():
        assert parse_spec(text) == spec
    for text in ("", "gae(", "gae)lam=1(", "gae(0.95)", "gae(lam=)", "gae(lam=1, lam=2)", "a b"):
        with pytest.raises(UsageError, match="cannot read"):
            parse_spec(text)
    for text, name, source in (
        ("safe=runs/rm", "safe", "runs/rm"),
        ("runs/rm/", "rm", "runs/rm/"),
        ("runs/lr=0.1/rm", "rm", "runs/lr=0.1/rm"),
        ("Skywork/Reward-V2", "Reward-V2", "Skywork/Reward-V2"),
        ("my.code:compiles", "compiles", "my.code:compiles"),
        ("gold=my.code:gold(objectives=['a', 'b'])", "gold", "my.code:gold(objectives=['a', 'b'])"),
        ("my.code:gold(objectives=['a/b'])", "gold", "my.code:gold(objectives=['a/b'])"),
    ):
        assert split_name(text) == (name, source)
        assert is_function(source) == source.startswith("my.code:")
    assert is_function("my.code:fn(a=1)") and not is_function("org/model") and not is_function("grpo(a=1)")


def test_values_are_what_the_function_annotates_or_else_read_as_python_reads_them(monkeypatch):
    assert build("policy.losses", "cispo(high=5, low=1e-3)").positive == (0.001, 5.0)
    assert build("policy.losses", "dual_clip(c=inf)").negative == (0.8, float("inf"))
    transform = build("policy.transforms", "length(correct=3, name=short)")
    assert transform.slot == "reward"
    monkeypatch.setattr("rewardlab.rm.registry.specs.load", lambda folder, name: listed)
    assert build("policy.schedulers", "x:listed(sizes=[1, 2.5, 'a'])") == ([1, 2.5, "a"], 1)
    assert build("policy.schedulers", "x:listed(sizes=oak, scale=1e-4)") == ("oak", 1e-4)
    assert accepts_argument("policy.schedulers", "x:listed", "scale") and not accepts_argument(
        "policy.schedulers", "x:listed", "weights"
    )


def test_values_become_one_of_the_annotated_types_or_the_message_says_what_they_are(monkeypatch):
    monkeypatch.setattr("rewardlab.rm.registry.specs.load", lambda folder, name: annotated)
    for argument, value in {
        "share=1": 1.0, "share=None": None, "count=2": 2, "name=5": "5", "name=None": None, "folder='a b'": "a b",
        "exact=True": True, "weights=[1, 0.5]": [1.0, 0.5], "weights=1": [1.0], "words=a": ["a"],
        "words=[a, 'b']": ["a", "b"], "words=[]": [],
        "width=2": 2.0, "width=(1, 2)": [1.0, 2.0], "rate=0.5": 0.5, "rate=column": "column",
    }.items():  # fmt: skip
        converted = build("policy.schedulers", f"x:annotated({argument})")[argument.partition("=")[0]]
        assert (converted, type(converted)) == (value, type(value)), argument
    for argument, message in {
        "share=x": "'share' must be None or a number, got 'x'",
        "count=1.5": "'count' must be None or a whole number, got '1.5'",
        "exact=yes": "'exact' must be True or False, got 'yes'",
        "weights=[1, x]": "'weights' must be None or a [list], each a number",
        "width=a(b=1)": "'width' must be a number or a [list], each a number, got 'a(b=1)'",
    }.items():  # fmt: skip
        with pytest.raises(UsageError, match=re.escape(message)):
            build("policy.schedulers", f"x:annotated({argument})")


WRONG = [
    ("advantages", "gea", "no 'gea' in policy.advantages; did you mean 'gae'?"),
    ("advantages", "gae(x=1)", r"gae\(x=1\): no argument 'x'; there is gamma, lam"),
    ("advantages", "gae(lamb=1)", "no argument 'lamb'; did you mean 'lam'?"),
    ("advantages", "rloo(epsilon=1)", "no argument 'epsilon'; it has none"),
    ("advantages", "grpo(epsilon=small)", "'epsilon' must be a number, got 'small'"),
    ("aggregations", "fixed_length(length=1.5)", "'length' must be a whole number, got '1.5'"),
    ("aggregations", "fixed_length(length=0)", "length, the maximum completion length, must be at least 1, got 0"),
    ("transforms", "gate(reward=rm)", r"argument 'by' is missing; write gate\(reward=rm, by=..., threshold=...\)"),
    ("schedulers", "pf_ppo(kind=worst)", "kind must be one of power, best_worst, best_random, got 'worst'"),
    ("losses", "no_such_package.code:fn", "write it as 'file.py:function' or 'package.module:function'"),
]


def test_a_wrong_choice_is_answered_with_what_there_is_and_what_we_give_is_for_nobody_else_to_set():
    for folder, text, message in WRONG:
        with pytest.raises(UsageError, match=message):
            build(f"policy.{folder}", text)
    assert callable(build("policy.advantages", "gdpo(epsilon=0.1)", weights=[1.0, 2.0]))
    with pytest.raises(UsageError, match="no argument 'weights'; there is partial, epsilon"):
        build("policy.advantages", "gdpo(weights=[1, 2])", weights=[1.0, 2.0])
