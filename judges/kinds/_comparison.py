"""Comparison of two responses by a language model: the request in either order, and the verdict in its reply."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

from ...rm.types import content_hash, prompt_text
from ..backends.chat import Ask, Reply
from ..judge import ExampleSource, failure, with_examples
from ..parsing.grammars import LABELS, TIE
from ..parsing.statements import NoVerdict
from ..parsing.verdicts import Verdict, pair_verdict
from ..prompts import GREEDY, Sampling, instructions, messages, object_schema
from ..rubrics.rubric import Rubric, render
from ..types import Case, Reason

Order = tuple[int, int]
"""Indices of the responses shown as A and as B."""


class ComparisonPrompt(NamedTuple):
    """Instructions of a comparison, and the verdicts that they allow."""

    system: str
    ties: bool
    sampling: Sampling

    def ask(
        self, case: Case, order: Order, *, rubric: Rubric | None = None, examples: str | None = None, sample: int = 0
    ) -> Ask:
        """Return the request to compare two responses of a case in this order."""
        about = {"examples": examples, "instruction": prompt_text(case.prompt), "reference": case.reference or None}
        responses = {"answer_a": case.texts[order[0]], "answer_b": case.texts[order[1]]}
        parts = about | {"rubric": render(rubric) if rubric else None} | responses
        return self.sampling.ask(messages(self.system, parts), self._schema, sample)

    @property
    def _schema(self) -> dict[str, Any]:
        return object_schema(
            reasoning={"type": "string"}, winner={"type": "string", "enum": allowed_verdicts(self.ties)}
        )

    def verdict(self, case: Case, order: Order, reply: Reply) -> Verdict | NoVerdict:
        """Return the verdict in a reply, or the reason why it has no verdict. A tie is a verdict only if allowed."""
        return failure(reply) or self.read(reply.text, [case.texts[index] for index in order], reply.finish)

    def read(self, text: str, quoted: Sequence[str], finish: str = "stop") -> Verdict | NoVerdict:
        """Parse a verdict on two responses from a text. Passages that the text copies from `quoted` are ignored."""
        verdict = pair_verdict(text, quoted=quoted, finish=finish)
        if isinstance(verdict, Verdict) and verdict.choice == TIE and not self.ties:
            return NoVerdict(Reason.DECLINED, "a tie was not allowed")
        return verdict


def comparison_prompt(
    prompt: str = "pairwise", *, ties: bool = True, examples: ExampleSource | None = None, sampling: Sampling = GREEDY
) -> ComparisonPrompt:
    """Return the comparison prompt whose instructions are in `prompts/PROMPT.txt`."""
    verdicts = " | ".join(f'"{label}"' for label in allowed_verdicts(ties))
    system = instructions(prompt).replace("{verdicts}", verdicts)
    return ComparisonPrompt(with_examples(system, examples), ties, sampling)


def allowed_verdicts(ties: bool) -> list[str]:
    """Return the verdicts that the instructions allow."""
    return [*LABELS, TIE] if ties else list(LABELS)


def orders_of(case: Case, *, both: bool = True) -> list[Order]:
    """Return the orders in which all pairs of a case's responses are compared.

    With `both`, each pair is compared in both orders, else in one order that depends on a hash of its content.
    """
    coins = [content_hash([prompt_text(case.prompt), text]) for text in case.texts]  # blind to place and label
    first = [(i, j) if coins[i] <= coins[j] else (j, i) for i, j in combinations(range(len(coins)), 2)]
    return [order for i, j in first for order in ([(i, j), (j, i)] if both else [(i, j)])]


def no_request_reason(case: Case) -> NoVerdict:
    """Return the reason for the abstention on a case for which no request was sent."""
    return NoVerdict(Reason.SINGLE if len(case.answers) < 2 else Reason.NO_RUBRIC)
