"""Checks of preference data before training: findings by row, contamination, and label leakage of the data set."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ..io.escaping import escape_markdown
from ..io.markdown import table
from ..types import Example, Message, PreferencePair, call_text, completion_turns, prompt_text
from .contamination import Overlap, Shared, count_overlaps, overlaps
from .conversation_split import normal_prompt
from .leakage import Leak, leaks
from .text_style import WORDS, shingles

UNUSABLE = "unusable"
NEAR_IDENTICAL, SAME_WHEN_CUT = "near-identical completions", "identical after truncation"
TIE, REPEATED, CONTRADICTED = "tie", "duplicate", "contradictory duplicate"
TOO_LONG, MARKUP = "over-length", "template tokens in the text"
OMITTED, SAME_WHEN_RENDERED = "text that the template leaves out", "identical as rendered"
OVERLAP, NEAR_OVERLAP = "prompt of a benchmark", "nearly a prompt of a benchmark"
SIMILAR = "similar to a prompt of a benchmark"
REASONS = (
    NEAR_IDENTICAL, SAME_WHEN_CUT, TIE, REPEATED, CONTRADICTED, TOO_LONG, MARKUP, OVERLAP, NEAR_OVERLAP, SIMILAR,
    OMITTED, SAME_WHEN_RENDERED,
)  # fmt: skip
"""Reasons for which readable rows are reported; the user may keep such rows."""
MARKERS = {
    "ChatML, Llama 3 and 4, Qwen, Phi, gpt-oss, Command R, GLM, Kimi, Granite": r"<\|[\w-]+\|>",
    "DeepSeek, Hunyuan": r"<｜[^<>｜\s]+｜>",
    "Gemma 4": r"<\|(?:turn|channel|tool|tool_call|tool_response)>|<(?:turn|channel|tool|tool_call|tool_response)\|>",
    "Gemma": r"<(?:start|end)_of_turn>",
    "Llama 2": r"<</?SYS>>",
    "Mistral": r"\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT)\]",
    "GLM": r"\[gMASK\]|<[se]op>",
    "MiniMax": r"\]~!?b[\[\]]|\[e~\[",
    "Seed": r"<seed:[\w:]+>",
    "beginning, end and padding": r"</?s>|<(?:bos|eos|pad|unk)>",
    "HH dialogues": r"(?:^|\n\n)(?:Human|Assistant): ",
}
"""Tokens and markers that chat templates put between turns, for several model families."""


class Finding(NamedTuple):
    """One problem of one row."""

    row: int
    reason: str
    detail: str
    other: int | None = None
    """Index of another row that the detail refers to."""


Encode = Callable[[Sequence[Example]], Sequence[Any]]
"""Function that tokenises examples for a reward model, such as `rm.backbones.tokenization.Encoder.encode_all`."""


class LintResult(NamedTuple):
    """Result of `lint`: findings by row, label leakage, and contamination by benchmark."""

    findings: tuple[Finding, ...]
    leaks: tuple[Leak, ...]
    shared: tuple[Shared, ...] = ()
    """One entry per benchmark."""

    @property
    def reasons(self) -> dict[str, int]:
        """Return the number of rows by reason, most frequent first."""
        rows = {(finding.reason, finding.row) for finding in self.findings}
        return dict(Counter(reason for reason, _ in sorted(rows)).most_common())

    def left_out(self, reasons: Iterable[str] = (TIE,)) -> dict[int, str]:
        """Return the rows to exclude, each with its first reason.

        Rows whose findings all have one of `reasons` are kept.
        """
        rows: dict[int, str] = {}
        for finding in self.findings:
            if finding.reason not in reasons:
                rows.setdefault(finding.row, finding.reason)
        return dict(sorted(rows.items()))


def lint(
    pairs: Sequence[PreferencePair],
    *,
    encode: Encode | None = None,
    max_length: int | None = None,
    special: Iterable[str] = (),
    benchmarks: Mapping[str, Iterable[str]] | None = None,
    first: Sequence[bool | None] = (),
    near: float = 0.7,
    alike: float = 0.9,
) -> LintResult:
    """Return the findings of all checks of rows and data set; rows are indices into `pairs`.

    `encode` and `max_length` belong to a reward model; without them truncation is not checked. `special` are additional
    tokens that no text should contain. `benchmarks` are prompts by benchmark. `near` is the minimum similarity to a
    benchmark prompt for reporting a prompt, and `alike` the minimum similarity of two completions for reporting a
    pair, both in (0, 1]. `first` states for each pair whether the chosen completion came first (`rm.data.leakage`).
    """
    benchmarks = benchmarks or {}
    alike_prompts = list(overlaps([pair.prompt for pair in pairs], benchmarks, near))
    checks = [near_identical(pairs, alike), *([] if encode is None else [find_truncated(pairs, encode, max_length)])]
    checks += [find_ties(pairs), find_duplicates(pairs), find_markup(pairs, special), find_contamination(alike_prompts)]
    findings = sorted(chain.from_iterable(checks), key=lambda finding: finding.row)
    return LintResult(tuple(findings), tuple(leaks(pairs, first)), tuple(count_overlaps(alike_prompts, benchmarks)))


def near_identical(pairs: Sequence[PreferencePair], alike: float) -> Iterator[Finding]:
    """Yield pairs whose completions differ only in case, punctuation and blanks, or share most 3-word shingles.

    |A ∩ B| / |A ∪ B| >= alike      for the shingle sets A, B of the two completions (resemblance, Broder 1997)
    """
    for row, pair in enumerate(pairs):
        if _call_texts(pair.examples[0]) != _call_texts(pair.examples[1]):
            continue  # calls that differ in one letter of an argument are different completions
        chosen, rejected = map(normal_prompt, pair.texts)
        if chosen == rejected:
            yield Finding(row, NEAR_IDENTICAL, "they differ only in case, punctuation and blanks")
        elif (share := _resemblance(chosen, rejected)) >= alike:
            yield Finding(row, NEAR_IDENTICAL, f"{share:.0%} of their {WORDS}-word shingles are the same")


def _call_texts(example: Example) -> list[str]:
    """Return the tool calls of a completion, each as text."""
    return [call_text(call) for turn in completion_turns(example.completion) for call in turn.get("tool_calls", ())]


def _normal(example: Example) -> str:
    """Return the completion's normalised words, and its tool calls verbatim."""
    return "\n".join([normal_prompt(example.text), *_call_texts(example)])


def _resemblance(text: str, other: str) -> float:
    """Return |A ∩ B| / |A ∪ B| of the shingle sets of two texts; 0 if one of them is empty."""
    first, second = {*shingles(text)}, {*shingles(other)}
    return len(first & second) / len(first | second) if first and second else 0.0


def find_truncated(pairs: Sequence[PreferencePair], encode: Encode, max_length: int | None) -> Iterator[Finding]:
    """Yield conversations that the model truncates, and pairs whose token ids are equal after truncation."""
    encoded = encode([example for pair in pairs for example in pair.examples])
    for row, (chosen, rejected) in enumerate(zip(encoded[::2], encoded[1::2], strict=True)):
        longest = max(chosen.length, rejected.length)
        if max_length is not None and longest > max_length:
            yield Finding(row, TOO_LONG, f"{longest} tokens and the limit is {max_length}")
        if omitted := chosen.omitted or rejected.omitted:
            yield Finding(row, OMITTED, repr(omitted[:60]))
        if chosen.ids == rejected.ids:
            rendered = omitted and not (max_length is not None and longest > max_length)
            yield Finding(row, SAME_WHEN_RENDERED if rendered else SAME_WHEN_CUT, f"the same {len(chosen.ids)} tokens")


def find_ties(pairs: Sequence[PreferencePair]) -> Iterator[Finding]:
    """Yield pairs without a preference in any objective: P(chosen is better) = 1/2."""
    for row, pair in enumerate(pairs):
        if pair.wins and all(chance == 0.5 for chance in pair.wins.values()):
            yield Finding(row, TIE, "no completion is preferred")


def find_duplicates(pairs: Sequence[PreferencePair]) -> Iterator[Finding]:
    """Yield duplicate pairs (all but the first), and pairs with opposite preferences.

    Pairs are compared by the completion that each objective prefers, not by which is called chosen, and without case,
    punctuation and repeated blanks. For opposite preferences the rows of both sides are reported.
    """
    opinions_of: dict[tuple[str, frozenset[str]], dict[int, Opinion]] = defaultdict(dict)
    for row, pair in enumerate(pairs):
        completions = frozenset(map(_normal, pair.examples))
        better = {objective: pair.preferred(objective) for objective in pair.wins}
        opinion = {name: _normal(preferred.examples[0]) for name, preferred in better.items() if preferred is not None}
        if len(completions) == 2 and opinion:
            opinions_of[normal_prompt(prompt_text(pair.prompt)), completions][row] = opinion
    for opinions in opinions_of.values():
        yield from _find_repetitions(opinions)
        yield from _find_contradictions(opinions)


Opinion = Mapping[str, str]
"""Preferred completion (normalised) by objective."""


def _find_repetitions(opinions: Mapping[int, Opinion]) -> Iterator[Finding]:
    first: dict[frozenset[tuple[str, str]], int] = {}
    for row, opinion in opinions.items():
        before = first.setdefault(frozenset(opinion.items()), row)
        if before != row:
            yield Finding(row, REPEATED, "as", before)


def _find_contradictions(opinions: Mapping[int, Opinion]) -> Iterator[Finding]:
    first: dict[str, dict[str, int]] = defaultdict(dict)
    for row, opinion in opinions.items():
        for objective, completion in opinion.items():
            first[objective].setdefault(completion, row)
    for row, opinion in opinions.items():
        against = [first[name][other] for name, best in opinion.items() for other in first[name] if other != best]
        if against:
            yield Finding(row, CONTRADICTED, "the other completion is preferred by", against[0])


def find_markup(pairs: Sequence[PreferencePair], special: Iterable[str]) -> Iterator[Finding]:
    """Yield texts with markers that chat templates put between turns: a model would read a false end of turn."""
    patterns = [re.escape(token) for token in special if token.strip()]
    pattern = re.compile("|".join([*MARKERS.values(), *patterns]))
    for row, pair in enumerate(pairs):
        texts = {f"turn {index + 1} of the prompt": _raw(turn) for index, turn in enumerate(pair.prompt)}
        for name, completion in (("chosen", pair.chosen), ("rejected", pair.rejected)):
            texts[name] = "\n".join(map(_raw, completion_turns(completion)))
        for name, text in texts.items():
            if match := pattern.search(text):
                yield Finding(row, MARKUP, f"{match[0].strip()!r} in {name}")
                break


def _raw(turn: Message) -> str:
    """Return a message's text as in the data, without the markers that render a tool call as text."""
    functions = [call["function"] for call in turn.get("tool_calls", ())]
    called = [f"{function['name']} {json.dumps(function['arguments'], ensure_ascii=False)}" for function in functions]
    thoughts = [turn["reasoning_content"]] if "reasoning_content" in turn else []
    return "\n".join([*thoughts, turn["content"], *called])


def find_contamination(overlaps: Iterable[Overlap]) -> Iterator[Finding]:
    """Yield prompts that also occur in a benchmark, exactly or nearly (`rm.data.contamination`)."""
    for overlap in overlaps:
        if overlap.likeness == 1:
            yield Finding(overlap.row, OVERLAP, overlap.benchmark)
        else:
            detail = f"{overlap.benchmark}, {overlap.likeness:.0%} alike: {overlap.text[:80]!r}"
            yield Finding(overlap.row, NEAR_OVERLAP, detail)


def markdown(linted: LintResult, describe_row: Callable[[int], str], rows: int, most: int = 10) -> str:
    """Return a Markdown report: counts and first rows by reason, contamination by benchmark, and label leakage."""
    reasons = [[reason, f"{n:,}", _where(linted, reason, describe_row, most)] for reason, n in linted.reasons.items()]
    text = table(["reason", "rows", "first places"], reasons, right=["rows"])
    parts = [text if reasons else f"Nothing is wrong with any of {rows:,} rows."]
    if linted.shared:
        header = ["prompts in", "rows", "different prompts", "of these as first turn", "rows with nearly one"]
        parts.append(table(header, [[shared.benchmark, *(f"{n:,}" for n in shared[1:])] for shared in linted.shared]))
    if not linted.leaks:
        return "\n\n".join([*parts, "No word, position or length predicts the label.\n"])
    leaks = [
        f"- {escape_markdown(f'{leak.sentence} (first at {describe_row(leak.rows[0])})')}"
        for leak in linted.leaks[: 3 * most]
    ]
    return "\n\n".join([*parts, "The label can be guessed without reading the prompt:", "\n".join([*leaks, ""])])


def _where(linted: LintResult, reason: str, describe_row: Callable[[int], str], most: int) -> str:
    """Return the rows of a reason as text, such as `line 3, line 9 (detail)`, for at most `most` findings."""
    findings = [finding for finding in linted.findings if finding.reason == reason]
    locations: dict[str, list[str]] = defaultdict(list)
    for finding in findings[:most]:
        other = "" if finding.other is None else f" {describe_row(finding.other)}"
        locations[f"{finding.detail}{other}"].append(describe_row(finding.row))
    text = "; ".join(f"{', '.join(rows)} ({detail})" for detail, rows in locations.items())
    return text + (" ..." if len(findings) > most else "")
