"""Pairs of responses to prompts with three demands, the verdict that is right, and a teacher that is half blind.

A prompt names three kinds of things; a response is three words of different kinds, and meets a demand if one of them is
of that kind. The better response meets more demands. A judge writes a mark of both responses for every demand, and then
a verdict.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from ....judges.backends.chat import Ask
from ....judges.cdrrm.requests import read_part
from ....judges.kinds._comparison import ComparisonPrompt
from ....judges.parsing.grammars import LABELS
from ....judges.prompts import Sampling
from ....judges.types import Case
from ....rm.types import OVERALL, PreferencePair, user_turn

KINDS = {
    "colour": ("red", "blue", "teal", "mauve"),
    "animal": ("cat", "dog", "lynx", "stoat"),
    "tool": ("saw", "drill", "adze", "awl"),
    "fruit": ("pear", "plum", "quince", "medlar"),
    "metal": ("iron", "gold", "zinc", "cobalt"),
    "garment": ("coat", "hat", "tunic", "shawl"),
}
KIND_OF = {word: kind for kind, words in KINDS.items() for word in words}
RARE = frozenset(word for words in KINDS.values() for word in words[2:])
"""Words that the teacher mostly overlooks: half of each kind."""
DEMANDS = 3
NONE, STOP, WINNER = "none", ".", "Winner:"
REPLY = 4 * DEMANDS + 4
"""Tokens of a reply: evidence for each demand in both responses, the stop, the verdict and the end of text."""
PROMPT = ComparisonPrompt("Compare", ties=False, sampling=Sampling(max_tokens=REPLY))
TAGS = tuple(f"<{slash}{name}>" for name in ("instruction", "answer_a", "answer_b") for slash in ("", "/"))
VOCABULARY = (*KINDS, *KIND_OF, *TAGS, PROMPT.system, "user:", NONE, STOP, WINNER, *LABELS)


def met(demands: Sequence[str], response: str) -> list[bool]:
    """Return whether a response meets each demand.

    >>> met(["colour", "tool", "fruit"], "plum teal cat")
    [True, False, True]
    """
    kinds = {KIND_OF[word] for word in response.split()}
    return [demand in kinds for demand in demands]


def draw_response(random: Random) -> str:
    """Draw three words of different kinds, so that each demand is met with probability 1/2."""
    return " ".join(random.choice(KINDS[kind]) for kind in random.sample([*KINDS], DEMANDS))


def draw_pairs(number: int, seed: int, split: str) -> list[Case]:
    """Draw pairs in which one response, the first of the case, meets more demands."""
    random, pairs = Random(f"{split} {seed}"), []
    while len(pairs) < number:
        demands = random.sample([*KINDS], DEMANDS)
        counted = sorted((sum(met(demands, response)), response) for response in (draw_response(random) for _ in "AB"))
        if counted[0][0] < counted[1][0]:
            prompt = user_turn(" ".join(demands))
            pairs.append(Case(f"{split}-{len(pairs)}", prompt, (counted[1][1], counted[0][1])))
    return pairs


def demands_of(case: Case) -> list[str]:
    """Return the demands that the prompt of a case names."""
    return str(case.prompt[-1]["content"]).split()


def preference(case: Case) -> PreferencePair:
    """Return a pair as training data of a scalar reward model."""
    return PreferencePair(case.id, case.prompt, *case.answers, wins={OVERALL: 1.0})


# ---- replies ----


def reply_text(demands: Sequence[str], evidence: Sequence[Sequence[str]], label: str) -> str:
    """Return a reply: the evidence for each demand in A, then in B, then the verdict.

    >>> reply_text(["tool", "fruit"], [["saw", "none"], ["none", "none"]], "A")
    'tool saw fruit none tool none fruit none . Winner: A'
    """
    pairs = [zip(demands, of_response, strict=True) for of_response in evidence]
    words = [f"{demand} {word}" for of_response in pairs for demand, word in of_response]
    return " ".join([*words, STOP, WINNER, label])


def marks_of(reply: str, demands: Sequence[str]) -> list[list[bool]] | None:
    """Return whether each demand is met by the evidence of a reply [response shown as A, as B][demand].

    None if the reply does not name all demands twice in their order.

    >>> marks_of("tool saw fruit none tool none fruit none . Winner: A", ["tool", "fruit"])
    [[True, False], [False, False]]
    """
    words = reply.partition(STOP)[0].split()
    if words[::2] != [*demands, *demands] or len(words) != 4 * len(demands):
        return None
    marks = [word != NONE for word in words[1::2]]
    return [marks[: len(demands)], marks[len(demands) :]]


class Teacher(NamedTuple):
    """Writer of replies that overlooks words at random, rare ones mostly, and takes a tie for a win of A."""

    seed: int
    overlooks: float = 0.05
    """Probability of overlooking a word that meets a demand."""
    overlooks_rare: float = 0.75
    """That of a rare word."""

    def __call__(self, ask: Ask) -> str:
        """Return the reply to a request; it is determined by the seed and the text."""
        text = str(ask.messages[-1]["content"])
        random = Random(f"{self.seed} {text}")
        instruction, *responses = (read_part(text, name) or "" for name in ("instruction", "answer_a", "answer_b"))
        demands = instruction.split()[1:]
        evidence = [self._evidence(random, demands, response) for response in responses]
        missing = [of_response.count(NONE) for of_response in evidence]
        return reply_text(demands, evidence, LABELS[missing[1] < missing[0]])

    def _evidence(self, random: Random, demands: Sequence[str], response: str) -> list[str]:
        chances = {word: self.overlooks_rare if word in RARE else self.overlooks for word in response.split()}
        seen = {KIND_OF[word]: word for word, chance in chances.items() if random.random() >= chance}
        return [seen.get(demand, NONE) for demand in demands]
