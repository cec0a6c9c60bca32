"""Routing by a guideline: a language model reads prompt and metadata, and chooses a judge."""

from collections.abc import Sequence

from ....rm.types import content_hash
from ...backends.chat import Ask, Chat, Reply
from ...judge import failure, judgment
from ...parsing.statements import NoVerdict
from ...parsing.verdicts import Verdict, pair_verdict
from ...prompts import GREEDY, Sampling, instructions, messages, object_schema
from ...types import Reason
from .features import CaseFeatures, describe_features
from .rule import Need

CHOICES = ("CHEAP", "STRONG")
REQUEST = f"{Reason.DECLINED}: the request chooses a judge and scores no response"


class Guideline:
    """Return p = 1 if the model replies STRONG, 0 if it replies CHEAP, and NaN if the reply has no choice.

    The model is usually that of the cheap judge. It sees the beginning of the prompt and the metadata, but no responses
    (Pre-Route, Chen et al. 2026, arXiv:2605.10235). The reason is taken from the reply.
    """

    name = "guideline"
    needs = ()

    def __init__(self, chat: Chat, *, longest: int = 4000, prompt: str = "route", sampling: Sampling = GREEDY):
        self.chat, self.longest, self.system, self.sampling = chat, longest, instructions(prompt), sampling
        settings = ["guideline", chat.name, longest, self.system, sampling._asdict()]
        self.contract = content_hash(settings)

    def __call__(self, features: Sequence[CaseFeatures]) -> list[Need]:
        """Return one need per case, from one request each, all in one call."""
        replies = self.chat.ask([self._ask(each) for each in features])
        return [self._need(each, reply) for each, reply in zip(features, replies, strict=True)]

    def _ask(self, features: CaseFeatures) -> Ask:
        prompt = features.prompt
        cut = f"{prompt[: self.longest]} [...]" if len(prompt) > self.longest else prompt
        conversation = messages(self.system, {"instruction": cut, "metadata": describe_features(features)})
        schema = object_schema(reasoning={"type": "string"}, choice={"type": "string", "enum": list(CHOICES)})
        return self.sampling.ask(conversation, schema)

    def _need(self, features: CaseFeatures, reply: Reply) -> Need:
        request = judgment(features.case, REQUEST, self.chat, [reply], orders=[()])
        verdict = failure(reply) or pair_verdict(
            reply.text, labels=CHOICES, quoted=[features.prompt], finish=reply.finish
        )
        if isinstance(verdict, Verdict) and verdict.choice in CHOICES:
            return Need(float(verdict.choice == CHOICES[1]), verdict.reasoning or "No reason is given.", request)
        detail = verdict if isinstance(verdict, NoVerdict) else NoVerdict(Reason.DECLINED, "a tie")
        return Need(float("nan"), f"The reply has no choice ({detail}).", request)
