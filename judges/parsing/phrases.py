"""Phrases with which a reply introduces, supports, doubts or withdraws its verdict, or declines to give one."""

import re

CONCLUDING = (
    r"(?:therefore|thus|hence|so|overall|in conclusion|to conclude|in summary|to sum up|in short|finally|ultimately"
    r"|consequently|accordingly|as a result|all in all|on balance|for (?:these|this|that) reasons?)"
)
BASIS = (
    r"(?:based on|given|considering|taking|because of|in (?:view|light) of|in (?:line|accordance|keeping) with"
    r"|according to)\b"
)
BASED_ON = rf"{BASIS}(?![^,;.]*\b(?:alone|only|solely|purely|merely|just)\b)[^,;.]*"
LEAD = re.compile(rf"(?:{CONCLUDING}|{BASED_ON})\b\s*,?\s*", re.IGNORECASE)
CONCLUSION = re.compile(rf"{CONCLUDING}\b\s*,?\s*", re.IGNORECASE)
"""Words that begin a conclusion. `given ...` and `based on ...` may also begin a remark on one point."""
SETTING = re.compile(
    r"(?:after (?:\w+ )?(?:evaluat|review|compar|consider|read|analy[sz]|weigh|examin|look)\w*"
    r"|while|although|though|even though|despite|because|since"
    rf"|{BASIS}(?=[^,;.]*\b(?:above|account|all|analys[ie]s|both"
    r"|criteria|evaluations?|everything|factors|instructions?|points|reasons|rules|task|these|this|those)\b)"
    r"|for (?:this|the)(?: given)? (?:instruction|task|question|prompt|request)"
    r"|in (?:this|the present) (?:case|comparison|instance)|in my (?:opinion|view|judge?ment|evaluation|assessment)"
    r"|between the two|of the two)\b.*,\s*",
    re.IGNORECASE | re.DOTALL,
)
"""Clause before a verdict that does not restrict it: `After reading both, `, but not `In terms of style, `."""
LIMITED = re.compile(
    r"\b(?:if|unless|whether|assuming|in terms of|regarding|concerning|with (?:regard|respect) to|when it comes to"
    r"|as far as|alone)\b",
    re.IGNORECASE,
)
CONCESSION = re.compile(
    r"(?:and |but )*(?:however|but|yet|nevertheless|nonetheless|that said|still|then again)\b[,\s]*", re.IGNORECASE
)
NEGATED = re.compile(
    r"\b(?:not?|never|neither|nor|cannot|without|only|merely|less|fewer|fail(?:s|ed)?|lack(?:s|ed|ing)?|miss(?:es|ed|ing)?"
    r"|ignore[sd]?|unnecessary|irrelevant|incorrect(?:ly)?|inaccurate|wrong(?:ly)?|unrelated|worse|too)\b|n['’]t\b",
    re.IGNORECASE,
)
UNDECIDED = re.compile(
    r"\b(?:there is|there's|i see) no (?:clear )?(?:winner|verdict|difference)\b|\btoo close to call\b"
    r"|\bi(?:'m| am) (?:not sure|unsure|undecided|torn)\b|\bi do(?: not|n['’]t) know\b"
    r"|\bhard to (?:say|choose|decide)\b|^it depends\b",
    re.IGNORECASE,
)
TOPIC = re.compile(
    r"(?!(?:my |the |brief |further )?(?:reason(?:s|ing)?|explanation|justification|rationale|analysis|evaluation|note"
    r"|details|summary|why|because|response|output|answer|assistant)\b)[a-z][\w-]*(?: [\w-]+){0,3}\s*(?::(?!\w)|$)",
    re.IGNORECASE,
)
"""Beginning of a passage on one criterion, such as `Clarity:`. An explanation of the verdict does not match."""
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
    r"(?:^|[.!;–—])\s*(?:but\s+)?(?:actually|instead|wait|rather,|on second thought|correction|not so fast|no\b"
    r"|or rather\b|i mean\b|sorry,|scratch that|just kidding)",
    re.IGNORECASE,
)
TAKEN_BACK = re.compile(
    r"(?:(?:but|no|nope|oh|oops|sorry)[,.!…]*\s+)*(?:actually\b|wait\b|on (?:second thought|reflection)|correction\b"
    r"|scratch that|i (?:was|am) wrong|i (?:have )?chang(?:e|ed) my mind|or rather\b|i mean\b|just kidding\b)"
    r"|(?:no|nope|nein|oops|sorry|hm+)\s*[,:!…]",
    re.IGNORECASE,
)
HYPOTHESIS = re.compile(
    r"\b(?:if|unless|would|could|might|should|when|whether|either|example|e\.g|template|ignore)\b", re.IGNORECASE
)
COMMAND = re.compile(r"\b(?:please|must|print|(?:respond|reply|answer) with|return|format\s*:)", re.IGNORECASE)
DENIAL = re.compile(
    r"(?:\b(?:not|never|neither|nor|or|instead|rather|than|says?|said|states?|claims?|writes?|contains?|reads?|wrote"
    r"|asks?|told|tells?|ends|begins|starts|includes?|injects?|instructs?)\b|n't\b)[^,;:–—]*$",
    re.IGNORECASE,
)
REASONS = (
    r"(?:because|since|as (?:it|its|they|this|the|both|there|response|output|answer|assistant)\b|due to"
    r"|thanks to|owing to|for (?:its|being|having|the (?:\w+ )?reasons?)\b|given|with (?!regard|respect)|confidence\b)"
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
SPEAKER = re.compile(r"\b(?:i|we|it is|it['’]s|i['’]m|we['’]re)\W+(?:\w+\W+){0,2}$", re.IGNORECASE)
"""The judge as the subject of a refusal, such as `I` or `we`."""
WRAPPERS = frozenset({"verdict", "judgment", "judgement", "result", "evaluation", "final", "output", "response"})
REASONING_KEYS = (
    "reasoning", "rationale", "reason", "explanation", "analysis", "justification", "feedback", "thoughts",
)  # fmt: skip
