"""Bytes bent in the ways in which files go wrong, or are made wrong; everything follows from the generator."""

from collections.abc import Callable, Sequence
from random import Random

LARGEST = 1 << 17  # bytes of a bent file
NUMBERS = (
    *b"0 -0 -1 1.5 1e999 -1e999 1e-999 NaN Infinity -Infinity 0x1F 01 1.".split(),
    *(b"%d" % (2**power + one) for power in (31, 53, 63, 64) for one in (-1, 0)),
    *(b"9" * 400, b"9" * 5000),
)
TEXTS = (
    *(b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"\x1b[31m", b"\r", b"\n", b"\n\n", b"\t"),
    *b"""\"\\ud800" \\u0000 "" " ' null true false [] {} [ } , : =""".split(),
    *(b"../../etc/passwd", b"{{ 7 * 7 }}", b"%s%n", b"<script>", b"=1+1", b"a" * 5000),
)
DIGITS = b"0123456789"
Mutation = Callable[[bytes, Random, Sequence[bytes]], bytes]


def mutated(data: bytes, random: Random, others: Sequence[bytes] = (), times: int = 3) -> bytes:
    """The bytes after 1 to `times` mutations; `others` are files that parts may be spliced from."""
    for _ in range(random.randint(1, times)):
        data = random.choice(MUTATIONS)(data, random, others)[:LARGEST]
    return data


def flip(data: bytes, random: Random, _others: Sequence[bytes] = ()) -> bytes:
    if not data:
        return data
    place = random.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]


def cut(data: bytes, random: Random, _others: Sequence[bytes] = ()) -> bytes:
    return data[: random.randint(0, len(data))]


def remove(data: bytes, random: Random, _others: Sequence[bytes] = ()) -> bytes:
    start, end = _span(data, random)
    return data[:start] + data[end:]


def repeat(data: bytes, random: Random, _others: Sequence[bytes] = ()) -> bytes:
    start, end = _span(data, random)
    times = random.choice((2, 3, 50, 1000))
    return data[:end] + data[start:end] * min(times, LARGEST // max(1, end - start)) + data[end:]


def insert(data: bytes, random: Random, _others: Sequence[bytes] = ()) -> bytes:
    """A text that readers stumble over."""
    place = random.randint(0, len(data))
    return data[:place] + random.choice(TEXTS) + data[place:]


def number(data: bytes, random: Random, _others: Sequence[bytes] = ()) -> bytes:
    """A number is another one, at the end of some type's range or beyond it."""
    places = [place for place, byte in enumerate(data) if byte in DIGITS]
    if not places:
        return insert(data, random)
    start = end = random.choice(places)
    while end < len(data) and data[end] in DIGITS:
        end += 1
    return data[:start] + random.choice(NUMBERS) + data[end:]


def nest(data: bytes, random: Random, _others: Sequence[bytes] = ()) -> bytes:
    """Brackets in brackets, closed or not."""
    depth, place = random.choice((2, 100, 1000, 20_000)), random.randint(0, len(data))
    opened, closed = random.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"(", b")"), (b"- ", b"")))
    inside = opened * depth + b"1" + closed * random.choice((0, depth))
    return random.choice((inside, data[:place] + inside + data[place:]))


def splice(data: bytes, random: Random, others: Sequence[bytes] = ()) -> bytes:
    """The beginning of one file and the end of another."""
    other = random.choice(others) if others else data
    return data[: random.randint(0, len(data))] + other[random.randint(0, len(other)) :]


def _span(data: bytes, random: Random) -> tuple[int, int]:
    start = random.randint(0, len(data))
    return start, min(len(data), start + random.choice((1, 2, 8, 64, 512)))


MUTATIONS: tuple[Mutation, ...] = (flip, cut, remove, repeat, insert, number, nest, splice)


def shortest(data: bytes, fails: Callable[[bytes], bool], tries: int = 300) -> bytes:
    """A short part of the bytes that still fails: halves are left out first (Zeller and Hildebrandt 2002), greedily."""
    size = len(data) // 2
    while size and tries > 0:
        start = 0
        while start < len(data) and tries > 0:
            shorter = data[:start] + data[start + size :]
            tries -= 1
            if fails(shorter):
                data = shorter
            else:
                start += size
        size //= 2
    return data
