"""Targets of a parity check: other programs, other libraries and other folders. Does not import torch."""

from typing import NamedTuple

from ..data.readers import SUFFIXES, format_of
from ..errors import UsageError

SERVERS = ("vllm", "sglang", "http")
NATIVE_KINDS = ("checkpoint", "adapter")


class Against(NamedTuple):
    """A target of the comparison: its kind, and an address or folder if it has one."""

    kind: str
    target: str = ""


def parse_against(words: list[str]) -> list[Against]:
    """Parse the words of --against: kinds, of which servers are followed by an address, and files of scores.

    >>> parse_against(["checkpoint", "vllm", "http://127.0.0.1:8000", "theirs.jsonl"])
    [Against(kind='checkpoint', target=''), Against(kind='vllm', target='http://127.0.0.1:8000'), \
Against(kind='scores', target='theirs.jsonl')]
    """
    parsed: list[Against] = []
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        if word in SERVERS:
            address = remaining.pop(0) if remaining else ""
            if not address.startswith(("http://", "https://")):
                raise UsageError(f"--against {word} needs an address such as http://127.0.0.1:8000, got '{address}'")
            parsed.append(Against(word, address))
        elif word.startswith(("http://", "https://")):
            raise UsageError(f"--against {word}: name the server, vllm {word}, sglang {word} or http {word}")
        elif format_of(word) in SUFFIXES:
            parsed.append(Against("scores", word))
        else:
            parsed.append(Against(word) if word in NATIVE_KINDS else Against("model", word))
    return parsed
