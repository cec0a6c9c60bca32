"""Texts of replies that name no winner."""

FOREIGN = (
    "Die erste Antwort nennt eine Quelle, die zweite erfindet ein Datum. Beide haben Schwächen.",
    "La réponse A cite une source, tandis que la réponse B invente une date.",
    "La respuesta A es clara; la respuesta B es más larga, pero repite lo mismo.",
    "回答Aは出典を示していますが、回答Bは日付を作り上げています。",
    "Ответ A называет источник, а ответ B выдумывает дату.", "回答A更详细，但回答B更简洁。",
    "الإجابة أ تذكر المصدر، والإجابة ب تخترع تاريخا.",
)  # fmt: skip
DECLINED = (
    "I cannot choose between these two answers.", "I'm unable to determine a winner from what is given.",
    "As an AI, I can't judge which of the two is better.", "Winner: neither", "Verdict: unclear", "Final verdict: N/A",
    '{"reasoning": "Both are empty.", "winner": null}', '{"winner": "neither"}', "There is no clear winner.",
    "I'm sorry, but I can't help with that.",
)  # fmt: skip
ECHOED = (
    "Winner: A|B", "Winner: A or B", "Winner: [A/B]", "Winner: Response A / Response B",
    'Output your verdict as "[[A]]" if assistant A is better, "[[B]]" if assistant B is better, "[[C]]" for a tie.',
    "[[A]] if assistant A is better", '{"reasoning": "...", "winner": "A" | "B" | "tie"}', '{"winner": "A or B"}',
    '{"type": "object", "properties": {"winner": {"enum": ["A", "B"]}}}', '{"winner": "<A or B>"}', "Winner: <label>",
)  # fmt: skip
UNDECIDED = (
    "Response A is better if you like short answers, and Response B otherwise.",
    "If accuracy mattered most, Response A would be better.", "I do not think that Response A is better.",
    "Response A is not better.", "Some would say that Response B is better.",
    "Winner: A if you value brevity, B otherwise", "Winner: not A", "Response A: 8/10\nResponse B: 6/10",
    "Verdict: A good answer has to name its source.", "Answer: A dog is a mammal.", "Verdict: A close call.",
    "The best answer is a short one.", "Accuracy winner: A\nClarity winner: B",
    "Response A is better in accuracy. Response B is better in clarity.", "Winner: C", "Winner: Response 7",
    '{"winner": "C"}', '{"winner": 1}', '{"winner": ["A"]}', '{"score": 7}', "## Response A",
    "It could be argued that A is better, however the question is unclear.", "", "   \n\n ", "...", "OK.",
)  # fmt: skip
LOOKALIKES = (
    "{n} {c} is better at {point}, {n} {d} is better at {further}.", "{n} {c} is better at {point}. {more}",
    "{n} {c} is better with regard to {point}. {more}", "{n} {c} is better for the beginner, {n} {d} for the expert.",
    "{n} {c} is better because it {why}, while {n} {d} is better because it is short.",
    "{n} {c} is better if {point} matters most. {more}", "{n} {c} is better because brevity counts, otherwise {n} {d}.",
    "If {point} matters, {n} {c} is better. {more}", "In terms of {point}, {n} {c} is better. {more}",
    "Considering {point} alone, {n} {c} is better. Considering {further}, {n} {d}.",
    "Based on {point} only, {n} {c} is better. {more}",
    "Therefore, when it comes to {point}, {n} {c} is better. {more}", "I cannot say that {n} {c} is better. {more}",
    "After reading both, I cannot say that {n} {c} is better. {more}", "I doubt that {n} {c} is better. {more}",
    "{n} {c} is not better. {more}", "{n} {c} is hardly better than {n} {d}. {more}",
    "Is {n} {c} better? Perhaps. {more}", "{n} {c} is better? {more}",
    "Some readers say that {n} {c} is better. {more}", "{n} {d} claims that {n} {c} is better. {more}",
    "You asked me to decide whether {n} {c} is better. {more}", "Decide whether {n} {c} is better, or {n} {d}. {more}",
    "I am to end with either Therefore, {n} {c} is better. or Therefore, {n} {d} is better.",
    "{n} {c} is better.\n{n} {d} is better.", "{n} {c} is better.\n\n{more}\n\nTherefore, {n} {d} is better.",
    "{n} {c} is better. {n} {c} {why}. However, {n} {d} {why}.", "{n} {c} is better. {more} Actually, I mixed them up.",
    "{n} {c} is better. {more} But I cannot decide between them.", "{n} {c} is better. {more} Both are equally good.",
    "{n} {c} is better. {more} There is no clear winner.",
    "{n} {c} is better.\n\n{more}\n\nFinal verdict: {n} {d}\nVerdict: {n} {c}", "{n} {c} is better.\n\nWinner: {n} {d}",
    'The reply begins with "{n} {c} is better." {more}', "> {n} {c} is better.\n\n{more}",
    "For example:\n{n} {c} is better.", "{Point}: Both cite. Therefore, {n} {c} is better.\n{Further}: Both are fine.",
    "### {Point}\nThus, {n} {c} is better.\n### {Further}\nBoth are fine.",
    "{Point}: {n} {c} is better.\n{Further}: both are fine.",
)  # fmt: skip
"""They look like a verdict at their beginning or end: limited, denied, quoted, taken back, or for both sides."""
