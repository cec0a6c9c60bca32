"""Files whose values are bent rather than their bytes, so that what reads the values is reached."""

import io
import json
import tomllib
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.errors import UNREADABLE
from rewardlab.rm.types import content_hash

ATOMS: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, 0.5, -0.0, float("nan"), float("inf"), 1e308),
    *("", " ", "\0", "\ud800", "\u2028", "a", "../..", "my_pkg.mod:fn", "{{ 7 }}", "x" * 3000, "\x1b[2J"),
    *([], {}, [[]], [None], {"": None}, {"role": "user"}, [1, 2, 3], ["a", "a"]),
)


class Shape(NamedTuple):
    """How bytes become values and values become bytes again; None where a format has no place for them."""

    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]


def bent(data: bytes, shape: Shape, random: Random) -> bytes | None:
    """The file with one to three values changed, or None where it cannot be written so."""
    try:
        values = shape.read(data)
        for _ in range(random.randint(1, 3)):
            values = changed(values, random)
        return shape.write(values)
    except (*UNREADABLE, yaml.YAMLError):  # a format that cannot say what was drawn
        return None


def changed(value: Any, random: Random) -> Any:
    """Nested dictionaries and lists with one place in them changed: another value, a missing one, one twice."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.1:
        return _another(value, random)
    way = random.random()
    if isinstance(value, list):
        place = random.randrange(len(value))
        if way < 0.1:
            return value[:place] + value[place + 1 :]
        if way < 0.2:
            return [*value, value[place]]
        return [*value[:place], changed(value[place], random), *value[place + 1 :]]
    name = random.choice([*value])
    if way < 0.1:
        return {key: one for key, one in value.items() if key != name}
    if way < 0.2:
        return {(f"{name}x" if key == name else key): one for key, one in value.items()}
    if way < 0.25:
        return value | {"another": random.choice(ATOMS)}
    return value | {name: changed(value[name], random)}


def _another(value: Any, random: Random) -> Any:
    ways = [[value], {"value": value}, value * 50 if isinstance(value, str) else None]
    return random.choice(ways) if random.random() < 0.25 else random.choice(ATOMS)


def _write_json(values: Any) -> bytes:
    return json.dumps(values).encode()


def _write_lines(rows: Any) -> bytes:
    return b"".join(_write_json(row) + b"\n" for row in (rows if isinstance(rows, list) else [rows]))


def _write_parquet(rows: Any) -> bytes:
    out = io.BytesIO()
    try:
        pq.write_table(pa.Table.from_pylist(rows), out)
    except pa.ArrowException as error:  # values that no column holds
        raise ValueError(error) from error
    return out.getvalue()


def _read_header(data: bytes) -> Any:
    """A safetensors file: eight bytes with the header's length, the header, the numbers."""
    end = 8 + int.from_bytes(data[:8], "little")
    return {"header": json.loads(data[8:end]), "body": data[end:].hex()}


def _write_header(values: Any) -> bytes:
    header = _write_json(values["header"])
    return len(header).to_bytes(8, "little") + header + bytes.fromhex(values["body"])


def _write_signed(values: Any) -> bytes:
    """A scoring contract whose hash is right, whatever its fields say."""
    defaults = ScoringContract("").__dict__
    if isinstance(values, Mapping):
        fields = {name: one for name, one in values.items() if name != "hash"}
        told = {name: one for name, one in fields.items() if name == "kind" or one != defaults.get(name)}
        told = {name: one for name, one in told.items() if one != list(defaults.get(name) or ())}
        values = fields | {"hash": content_hash(told)}
    return _write_json(values)


JSON = Shape(json.loads, _write_json)
JSON_LINES = Shape(lambda data: [json.loads(line) for line in data.split(b"\n") if line], _write_lines)
PARQUET = Shape(lambda data: pq.ParquetFile(io.BytesIO(data)).read().to_pylist(), _write_parquet)
YAML = Shape(yaml.safe_load, lambda values: yaml.safe_dump(values, allow_unicode=True).encode())
SAFETENSORS = Shape(_read_header, _write_header)
SIGNED = Shape(json.loads, _write_signed)


def _write_toml(values: Any) -> bytes:
    """Tables and lists of tables of plain values: what our rubric, price and question files are made of."""
    lines = [f"{name} = {json.dumps(one)}" for name, one in values.items() if not _tables(one)]
    for name, rows in values.items():
        for row in (rows if isinstance(rows, list) else [rows]) if _tables(rows) else []:
            lines.append(f"[[{name}]]" if isinstance(rows, list) else f"[{name}]")
            lines.extend(f"{key} = {json.dumps(one)}" for key, one in row.items())
    return "\n".join(lines).encode()


def _tables(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and all(isinstance(row, dict) for row in value))


TOML = Shape(lambda data: tomllib.loads(data.decode()), _write_toml)
