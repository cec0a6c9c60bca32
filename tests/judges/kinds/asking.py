"""Cases, and whom kinds of judges ask about them: scripted chats and judges whose judgments are given."""

import json
import math
import re

from rewardlab.judges.backends.chat import Ask
from rewardlab.judges.backends.scripted import Scripted
from rewardlab.judges.judge import Judging
from rewardlab.judges.types import Case, Judgment
from rewardlab.rm.types import user_turn


def case(name: str = "c", answers=("long good answer", "bad"), **fields) -> Case:
    return Case(name, fields.pop("prompt", user_turn(f"question {name}")), answers, **fields)


def shown(ask: Ask, name: str) -> str:
    """What a request shows between the marks of a part."""
    found = re.search(rf"<{name}>\n(.*?)\n</{name}>", ask.messages[-1]["content"], re.DOTALL)
    return found[1] if found else ""


def longer(ask: Ask) -> str:
    """Prefers the longer answer."""
    a, b = len(shown(ask, "answer_a")), len(shown(ask, "answer_b"))
    return json.dumps({"reasoning": f"{a} and {b}", "winner": "A" if a > b else "B" if b > a else "tie"})


def by_length(ask: Ask) -> str:
    return json.dumps({"reasoning": "counted", "score": min(10, len(shown(ask, "answer")))})


def judge_of(name: str, *scores) -> Judging:
    """A judge whose judgments are given; a text is an abstention."""

    def judge(cases):
        given = [
            {"abstained": one} if isinstance(one, str) else {"scores": one, "tokens": (10, 1), "cost": 1.0}
            for one in scores
        ]
        return [Judgment(c.id, **facts) for c, facts in zip(cases, given, strict=True)]

    return Judging(name, {"name": name}, judge)


class Chooser(Scripted):
    """A script with probabilities: P(A) is the first of two where A is shown the longer response, else the second."""

    chances = (0.8, 0.4)

    def choice_logprobs(self, choices):
        self.choices = choices
        return [[math.log(p), math.log(1 - p)] for p in map(self._p, choices)]

    def _p(self, choice):
        ask = Ask(choice.messages)
        return self.chances[len(shown(ask, "answer_a")) <= len(shown(ask, "answer_b"))]
