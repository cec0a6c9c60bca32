"""Judge that scores with a plain Python function."""

from collections.abc import Callable, Sequence
from typing import Any

from ...rm.errors import UsageError
from ...rm.io.coroutines import resolve
from ...rm.types import completion_json, content_hash
from ..types import Case, Judgment, Reason, judgment_from_scores

SIGNATURE = "(prompt, responses) -> scores, one for each response, or None for an abstention"
MADE_UP = Case("made-up", ({"role": "user", "content": "A made-up prompt?"},), ("One response.", "Another response."))


class FunctionJudge:
    """Score with a function `(prompt, responses) -> scores | None`. A single user message is passed as a string."""

    role = "model"

    def __init__(self, function: Callable[..., Any], name: str):
        self.function, self.name = function, name
        self.contract = content_hash(["function", name])
        self(MADE_UP)

    def __call__(self, cases: Sequence[Case] | Case) -> list[Judgment]:
        """Return one judgment per case."""
        return [self._judgment(case) for case in ([cases] if isinstance(cases, Case) else cases)]

    def _judgment(self, case: Case) -> Judgment:
        turns = [*case.prompt]
        prompt: Any = turns[0]["content"] if len(turns) == 1 and turns[0]["role"] == "user" else turns
        try:
            values = resolve(self.function(prompt, [completion_json(response) for response in case.answers]))
            if values is None:
                return Judgment(case.id, abstained=str(Reason.DECLINED))
            scores = [float(value) for value in values]
        except Exception as error:  # user functions raise arbitrary errors
            raise UsageError(
                f"the judge {self.name} fails on case '{case.id}' ({type(error).__name__}: {error}); its signature is "
                f"{SIGNATURE}"
            ) from error
        if len(scores) != len(case.answers):
            raise UsageError(
                f"the judge {self.name} returns {len(scores)} scores for {len(case.answers)} responses; its signature "
                f"is {SIGNATURE}"
            )
        return judgment_from_scores(case, scores)
