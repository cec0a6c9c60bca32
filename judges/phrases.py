"""The phrases by which a reply leads over to its verdict, supports it, doubts it, takes it back or declines."""

import re

LEAD = re.compile(
    r"(?:therefore|thus|hence|so|overall|in conclusion|to conclude|in summary|to sum up|in short|finally|ultimately"
    r"|consequently|accordingly|as a result|all in all|on balance|for (?:these|this|that) reasons?"
    r"|(?:based on|given|considering|taking|because of|in view of|in light of)\b[^,;.]*)\b\s*,?\s*",
    re.IGNORECASE,
)
RANKED_WORDS = (
    r"\b(?P<rank>final|overall|ultimate|revised|corrected|updated|definitive"
    r"|initial|preliminary|tentative|provisional|first)\b"
)
PRELIMINARY = frozenset({"initial", "preliminary", "tentative", "provisional", "first"})
REVISION = re.compile(
    r"\b(?:on (?:reflection|second thought)|reconsider\w*|correction|revis(?:ed?|ing)|i (?:was|am) wrong"
    r"|chang(?:e|ed|ing) my (?:mind|verdict|answer))\b",
    re.IGNORECASE,
)
RETRACTION = re.compile(
    r"(?:^|[.!;–—])\s*(?:but\s+)?(?:actually|instead|wait|rather,|on second thought|correction|not so fast|no\b)",
    re.IGNORECASE,
)
TAKEN_BACK = re.compile(
    r"(?:but\s+|sorry,\s+)?(?:actually\b|wait\b|on (?:second thought|reflection)|correction\b|scratch that"
    r"|i (?:was|am) wrong|i (?:have )?chang(?:e|ed) my mind)",
    re.IGNORECASE,
)
CONTRAST = re.compile(
    r"\b(?:however|but|yet|nevertheless|nonetheless|that said|still|although|though)\b", re.IGNORECASE
)
HYPOTHESIS = re.compile(
    r"\b(?:if|unless|would|could|might|should|when|whether|either|example|e\.g|template|ignore)\b", re.IGNORECASE
)
COMMAND = re.compile(r"\b(?:please|must|print|(?:respond|reply|answer) with|return|format\s*:)", re.IGNORECASE)
DENIAL = re.compile(
    r"(?:\b(?:not|never|neither|nor|or|instead|rather|than|says?|said|states?|claims?|writes?|contains?|reads?|wrote"
    r"|asks?|told|tells?)\b|n't\b)[^,;:–—]*$",
    re.IGNORECASE,
)
REASONS = (
    r"(?:because|since|as (?:it|they|this|the)|due to|for (?:its|the|being|having)|thanks to|given|owing to|with "
    r"|confidence\b)"
)
ENDS = re.compile(
    rf"\s*(?:[.!,]?\s*$|[.!]\s+\S|[,;:–—-]*\s*{REASONS}|[–—-]+\s+(?:it|its|this|they|the|more|better)\b"
    r"|\([^()]*\)\s*[.!]?\s*$)",
    re.IGNORECASE,
)
DECLINES = re.compile(
    r"\b(?:can ?not|can['’]t|could ?n['’]t|unable to|not able to|not possible to|impossible to|won['’]t|refuse to"
    r"|decline to|not (?:going|comfortable) to|do(?:es)? not have enough)\b.{0,80}?"
    r"\b(?:choos\w*|decid\w*|determin\w*|pick\w*|judg\w*|say|tell|compar\w*|evaluat\w*|select\w*|declar\w*|prefer\w*"
    r"|assess\w*|rat(?:e|ing)|scor\w*|information|assist\w*|help\w*)\b",
    re.IGNORECASE,
)
WRAPPERS = frozenset({"verdict", "judgment", "judgement", "result", "evaluation", "final", "output", "response"})
REASONING_KEYS = (
    "reasoning",
    "rationale",
    "reason",
    "explanation",
    "analysis",
    "justification",
    "feedback",
    "thoughts",
)
