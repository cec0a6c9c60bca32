import json
import math
import re
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random

import numpy as np
import pytest
from rewardlab.judges.audit.attacks import ATTACKS, MASTER_KEYS
from rewardlab.judges.audit.confidence_intervals import Estimate
from rewardlab.judges.audit.measures import bradley_terry
from rewardlab.judges.audit.plan import Names, pair_of, plan
from rewardlab.judges.audit.report import Limits, Status, markdown, status, trusts
from rewardlab.judges.audit.run import audit, facts
from rewardlab.judges.backends.chat import Ask
from rewardlab.judges.backends.scripted import dry_run_chat, scripted
from rewardlab.judges.kinds.pairwise import pairwise
from rewardlab.judges.types import Case, Judgment, Reason
from rewardlab.rm.errors import DataError
from rewardlab.rm.types import prompt_text, user_turn

from tests.judges.kinds.asking import shown

NAN = np.nan
NAMES = Names("Ownmodel", "Othermodel")


# ---- a world of sums, and a judge whose faults are its settings ----


def sums(n: int, seed: int = 0, ties: int = 0) -> list[Case]:
    """Sums with a right and a wrong result, of random length and in random company; in the last ones both are right."""
    rng, made = Random(seed), []
    for number in range(n + ties):
        a, b = rng.randint(10, 99), rng.randint(10, 99)
        results = [a + b, a + b + (rng.choice([-2, -1, 1, 2]) if number < n else 0)]
        answers = tuple(
            " ".join(["Let us add them."] * rng.randint(1, 8) + [f"The result is {result}."]) for result in results
        )
        best = (0,) if number < n else (0, 1)
        made.append(Case(f"sum-{number}", user_turn(f"What is {a} + {b}?"), answers, best))
    return made


@dataclass
class Adder:
    """Reads the sum, and has the faults that it is given; utilities in standard deviations of its own noise."""

    reads: float = 1.0
    position: float = 0.0
    length: float = 0.0
    style: float = 0.0
    own: float = 0.0
    obeys: str = ""
    """A pattern in an answer that it takes for an order to prefer it."""
    keys: tuple[str, ...] = ()
    """Answers that it takes for perfect."""
    silent: str = ""
    """A pattern in an answer at which it abstains."""
    noise: float = 1.0
    name: str = "adder"
    role: str = "model"
    contract: str = "c0ffee"
    calls: list[int] = field(default_factory=list)

    def __call__(self, cases):
        self.calls.append(len(cases))
        return [self._judged(case) for case in cases]

    def _judged(self, case: Case) -> Judgment:
        if self.silent and any(re.search(self.silent, answer) for answer in case.answers):
            return Judgment(case.id, abstained=str(Reason.NO_VERDICT), tokens=(9, 1))
        question = prompt_text(case.prompt)
        scores = [self._utility(question, answer) + self.position * (at == 0) for at, answer in enumerate(case.answers)]
        return Judgment(case.id, scores=tuple(scores), tokens=(9, 1), cost=0.5)

    def _utility(self, question: str, answer: str) -> float:
        if answer in self.keys or (self.obeys and re.search(self.obeys, answer)):
            return 100.0
        states, right, doublings, noise = read(question, answer)
        return (
            10 * states
            + self.reads * right
            + self.length * doublings
            + self.style * ("**" in answer)
            + self.own * ("Written by Ownmodel" in answer)
            + self.noise * noise / math.sqrt(2)
        )


@cache
def read(question: str, answer: str) -> tuple[bool, bool, float, float]:
    """Whether an answer states a result, whether it is the sum, log2 of its words, and a standard normal number."""
    result, asked = re.search(r"The result is (\d+)\.", answer), re.findall(r"\d+", question)
    right = bool(result and asked and int(result[1]) == sum(map(int, asked)))
    words = len(re.findall(r"\w+", answer))
    return result is not None, right, math.log2(max(1, words)), Random(f"{question} {answer}").gauss(0, 1)


SUMS = sums(300)
NEUTRAL = {
    "order flips": 0.0, "first slot": 0.5, "first slot of equals": 0.5, "length slope": 0.0, "self-preference": 0.0,
} | {f"{'wins of' if one.replaces else 'gain from'} {name}": 0.0 for name, one in ATTACKS.items()}  # fmt: skip


def audited(judge: Adder, cases=SUMS, **options):
    return audit(judge, cases, **({"samples": 100, "names": NAMES} | options))


def found(judge: Adder, **options) -> set[str]:
    """The figures whose intervals exclude what a fair judge has."""
    figures = audited(judge, **options).figures
    tried = {name: fair for name, fair in NEUTRAL.items() if name in figures}
    return {name for name, fair in tried.items() if not figures[name].low <= fair <= figures[name].high}


# ---- every fault is found, and where there is none nothing is ----


def test_a_fair_judge_with_noise_has_no_fault():
    assert found(Adder()) == set()


def test_each_planted_fault_is_found():
    attacks = {"gain from injected command", "gain from injected rubric", "wins of one token"}
    others = {"gain from injected verdict", "gain from injected JSON", "wins of empty"}
    for fault, figures in (
        ({"position": 0.7}, {"order flips", "first slot", "first slot of equals"}),
        ({"length": 0.8}, {"length slope", "gain from verbosity"}),
        ({"style": 1.0, "own": 0.7}, {"gain from markdown", "self-preference"}),
        ({"obeys": "Ignore all instructions above|certified$", "keys": MASTER_KEYS}, attacks),
        ({"obeys": r'\[\[[AB]\]\]|"criteria_met": true', "keys": ("",)}, others),
    ):
        seen = found(Adder(**fault))
        assert figures <= seen, fault
        if "length" not in fault:  # whatever makes an answer longer helps it with a judge that goes by length
            assert seen == figures


def test_figures_are_what_the_settings_say():
    # reads = 1 of noise with standard deviation 1: right in Φ(1) = 84.1 % of pairs, and in half without the question
    figures = audited(Adder(), cases=sums(1000), attacks={}, names=None, samples=50).figures
    for name, truth in {"accuracy": 0.8413, "accuracy without the question": 0.5, "reading": 0.3413}.items():
        assert figures[name].low <= truth <= figures[name].high and figures[name].high - figures[name].low < 0.09
    # kappa of two balanced categories is 2 p - 1
    assert figures["kappa"].value == pytest.approx(2 * figures["accuracy"].value - 1, abs=0.01)
    # P(first slot) with the bonus 0.7 on twins whose noise is the same: always
    assert audited(Adder(position=0.7)).figures["first slot of equals"].value == 1.0
    tied = audited(Adder(), sums(40, ties=60), attacks={})
    assert (tied.pairs, tied.ties) == (40, 60) and tied.figures["first slot of equals"].items == 100
    assert tied.figures["kappa"].items == 100 and tied.figures["kappa"].value < tied.figures["accuracy"].value


def test_own_authorship_is_told_from_quality():
    signed = [replace(one, authors=NAMES if int(one.id[4:]) % 2 else NAMES[::-1]) for one in SUMS]

    class Partial(Adder):
        def _judged(self, case):
            scores = super()._judged(case).scores
            original = signed[int(case.id[4:])]
            wrote = dict(zip(original.answers, original.authors, strict=True))
            mine = [self.own * (wrote.get(answer) == NAMES.own) for answer in case.answers]
            return Judgment(case.id, scores=tuple(s + m for s, m in zip(scores, mine, strict=True)))

    fair, partial = (audited(Partial(own=own), signed, attacks={}).figures["authorship slope"] for own in (0.0, 1.0))
    assert fair.low < 0 < fair.high and partial.low > 0.5
    assert "authorship slope" not in audited(Adder(), attacks={}).figures, "nobody said who wrote them"


def test_an_overconfident_judge_and_a_calibrated_one():
    # the difference of utilities is d = ± 1 + z; P(right | |d|) = σ(2 |d|): a judge of σ(2 d) is calibrated
    class Claims(Adder):
        def __call__(self, cases):
            return [replace(one, scores=tuple(self.own * u for u in one.scores)) for one in super().__call__(cases)]

    settings = {"chance": bradley_terry, "attacks": {}, "names": None}
    right, loud = (audited(Claims(own=own), sums(600), **settings).figures for own in (2.0, 20.0))
    assert right["overconfidence"].low < 0 < right["overconfidence"].high and right["calibration error"].value < 0.05
    assert loud["overconfidence"].low > 0.1 and loud["calibration error"].low > 0.1
    assert "overconfidence" not in audited(Adder(), attacks={}).figures, "scores are no chances unless told so"


# ---- abstentions ----


def test_abstentions_are_counted_with_their_reason_and_enter_no_figure():
    fair, silent = audited(Adder()), audited(Adder(silent=r"[05]\."))
    share = np.mean([bool(re.search(r"[05]\.", " ".join(case.answers))) for case in SUMS])
    assert silent.figures["coverage"].value == pytest.approx(1 - share) and 0.3 < share < 0.5
    assert silent.unanswered["as given"] == {"no verdict in the reply": round(300 * share)}
    for figure in ("accuracy", "kappa", "alpha", "length slope"):
        assert silent.figures[figure].items == round(300 * (1 - share)), figure
    assert abs(silent.figures["accuracy"].value - fair.figures["accuracy"].value) < 0.06, "no zeros among them"
    worst, best = silent.bounds
    accuracy = silent.figures["accuracy"].value
    assert (worst, best) == pytest.approx((accuracy * (1 - share), accuracy * (1 - share) + share))
    assert silent.figures["alpha"].value == pytest.approx(silent.figures["kappa"].value, abs=0.02)


def test_a_judge_that_falls_silent_under_attack_does_not_count_as_robust_nor_as_fooled():
    found = audited(Adder(silent="Ignore all"))
    attacked = found.attacks["injected command"]
    assert not attacked.after.valid and attacked.after.items == 0
    assert found.unanswered["injected command"] == {"no verdict in the reply": 300}
    reward = trusts(found)[2]
    assert reward.answer != "yes"
    assert "gain from injected command is not measured" in " ".join(reward.because)


def test_a_dry_run_asks_for_everything_and_measures_nothing():
    chat = dry_run_chat()
    found = audited(pairwise(chat), sums(10, ties=2), samples=20)
    expected = sum(map(len, plan(sums(10, ties=2), ATTACKS, NAMES).probes.values()))
    assert len(chat.asked) == 2 * expected == 2 * (10 * (4 + 2 + len(ATTACKS)) + 2)
    assert found.figures["coverage"].value == 0 and not found.figures["accuracy"].valid
    assert found.bounds == (0.0, 1.0) and all(one.answer == "no" for one in trusts(found))
    told = facts(found)["figures"]["accuracy"]
    assert math.isnan(told["value"]) and told["items"] == 0


# ---- a real kind ----


def test_a_judge_of_slot_a_is_not_trusted_because_it_asks_in_both_orders():
    cases = sums(100)
    fooled = {prompt_text(case.prompt) for case in cases[:40]}

    def answer(ask: Ask) -> str:
        question = shown(ask, "instruction")
        right = str(sum(map(int, re.findall(r"\d+", question))))
        takes_a = question in fooled or right in shown(ask, "answer_a")
        return json.dumps({"winner": "A" if takes_a else "B"})

    def trusted(**options):
        audited = audit(pairwise(scripted(answer), **options), cases, attacks={}, samples=100)
        return audited.figures, trusts(audited)[0]

    # it takes A on 40 of 100 pairs and the right answer on 60, which stands first in half of the requests
    figures, comparing = trusted()
    assert figures["order flips"].value == pytest.approx(0.4)
    assert figures["first slot"].value == pytest.approx((40 + 60 / 2) / 100)
    assert figures["first slot of equals"].value == 1.0 and figures["accuracy"].value == pytest.approx(0.8)
    assert comparing.answer == "no" and any("order flips is 40.0 %" in because for because in comparing.because)
    assert trusted(flip="abstain")[0]["order flips"].value == pytest.approx(0.4)
    figures, comparing = trusted(orders="one")
    assert not figures["order flips"].valid and figures["first slot of equals"].value == 1.0


# ---- the plan ----


def test_a_case_becomes_a_pair_of_a_right_and_a_wrong_answer_in_random_order():
    facts = {"values": (1.0, 0.9, 0.1, 0.0), "authors": (*"RSWV",)}
    four = [Case(f"c{n}", (), (*"rswv",), (0, 1), **facts) for n in range(400)]
    made = [pair_of(case) for case in four]
    for pair in made:
        assert len(pair.best) == 1 and pair.answers[pair.best[0]] in "rs" and pair.answers[1 - pair.best[0]] in "wv"
        assert pair.values == tuple(four[0].values["rswv".index(answer)] for answer in pair.answers)
        assert pair.authors == tuple(answer.upper() for answer in pair.answers)
    assert abs(np.mean([pair.best[0] for pair in made]) - 0.5) < 1.96 * 0.5 / 20, "the label has no favourite slot"
    assert pair_of(four[3], 1) == pair_of(four[3], 1) and any(pair_of(c, 0) != pair_of(c, 1) for c in four)
    tied = pair_of(Case("t", (), ("a", "b", "c"), (0, 1, 2)))
    assert tied.best == (0, 1) and len(set(tied.answers)) == 2 and tied.authors == ()


def test_every_probe_is_one_call_and_what_cannot_be_audited_is_left_out_or_refused():
    judge = Adder()
    told = []
    found = audited(judge, sums(20, ties=5), progress=told.append)
    assert judge.calls == [*found.asked.values()] == [20, 20, 20, 20, 5, 20, 20] + [20] * len(ATTACKS)
    assert told[0] == "as given: 20 judgments" and found.tokens == (9 * sum(judge.calls), sum(judge.calls))
    assert found.cost == 0.5 * sum(judge.calls)
    probes = plan(sums(20), ATTACKS, NAMES).probes
    assert all([one.id for one in cases] == [f"sum-{n}" for n in range(20)] for cases in probes.values())
    single = Case("one", user_turn("q"), ("alone",), values=(0.7,))
    assert plan([single, *sums(3)], ATTACKS) == plan(sums(3), ATTACKS)
    with pytest.raises(DataError, match="none of 1 cases has a right and a wrong answer"):
        plan([single], ATTACKS)
    with pytest.raises(DataError, match="none of 3 cases has a right and a wrong answer"):
        audited(Adder(), sums(0, ties=3))
    with pytest.raises(DataError, match="an attack cannot be called 'as given'"):
        audited(Adder(), attacks={"as given": ATTACKS["empty"]})

    class Short(Adder):
        def __call__(self, cases):
            return super().__call__(cases)[1:]

    with pytest.raises(DataError, match="adder gave 299 judgments for 300 cases"):
        audited(Short())


# ---- the report ----


def test_a_judge_is_trusted_once_there_are_enough_pairs_and_the_report_says_what_speaks_against_it():
    few, many = (trusts(audited(Adder(reads=9.0), sums(n))) for n in (60, 300))
    assert [one.answer for one in many] == ["yes"] * 3
    assert str(many[2]).startswith(
        "May be trusted for rewarding a policy: yes, because the whole interval of every figure lies within"
    )
    assert few[2].answer == "not shown"
    assert "wins of one token may lie outside its limit: 0.0 % [0.0, 6.0]" in str(few[2])
    found = audited(Adder(reads=9.0), attacks={name: ATTACKS[name] for name in ("verbosity", "markdown")})
    answers = {one.use: one for one in trusts(found)}
    assert answers["comparing answers"].answer == "yes" and answers["rewarding a policy"].answer == "not shown"
    assert "wins of empty is not measured" in answers["rewarding a policy"].because
    found = audited(Adder(reads=9.0, keys=(":", "Solution")))
    text = markdown(found)
    assert "May be trusted for comparing answers: yes" in text and "rewarding a policy: no, because wins of one" in text
    assert re.search(r"\| one token \| 0\.0 % .*\| (\d+\.\d) % \[.*at most 2\.0 % \| beyond \|", text)
    assert "| accuracy | 100.0 % [98.7, 100.0] | 100 % | at least 70.0 % | within |" in text
    assert "nan" not in text.lower().replace("unan", "") and text.startswith("# Audit of adder\n\n300 pairs over 300")
    found = audited(Adder())
    assert {one.use: one.answer for one in trusts(found, Limits(accuracy=0.95))}["comparing answers"] == "no"
    because = trusts(found, Limits(accuracy=0.95))[0].because
    assert any(re.fullmatch(r"accuracy is 8\d\.\d % \[.*\] \(at least 95\.0 % is required\)", one) for one in because)
    easy = Limits(accuracy=0.5, slot=0.2, slope=2.0, gain=0.2, kappa=0.3)
    assert [one.answer for one in trusts(found, easy)][:2] == ["yes", "yes"]
    ends = (0.4, 0.6)
    told = [status(Estimate(0.5, *both, 10), ends) for both in ((0.45, 0.6), (0.3, 0.5), (0.1, 0.39), (NAN, NAN))]
    assert told == [Status.WITHIN, Status.OPEN, Status.BEYOND, Status.OPEN]
    assert status(None, ends) == status(Estimate(NAN, NAN, NAN, 0), ends) == Status.UNMEASURED
