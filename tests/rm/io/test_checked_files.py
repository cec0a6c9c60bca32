import pytest
from rewardlab.rm.io.checked_files import LARGEST, from_json, from_toml, from_yaml

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)


def test_what_can_be_read_is_read_and_what_cannot_says_why():
    assert from_json(b'{"a": [1]}') == {"a": [1]}
    assert from_toml('[[rules]]\nid = "x"') == {"rules": [{"id": "x"}]}
    assert from_yaml("a: &x [1]\nb: *x\nc: null") == {"a": [1], "b": [1], "c": None}
    assert from_yaml("") is None
    for read, text, why in [
        (from_json, "[" * 100_000, "nested too deeply"),
        (from_json, '{"a": ' + "9" * 5000 + "}", "limit"),
        (from_json, "{", "Expecting"),
        (from_toml, "a = " + "[" * 100_000, "nested too deeply"),
        (from_toml, "a = ", "Invalid"),
        (from_yaml, "[" * 100_000, "nested too deeply"),
        (from_yaml, "a: [", "expected"),
        (from_yaml, "a: \x00", "not allowed"),
        (from_yaml, "!!python/object/apply:os.system ['true']", "could not determine a constructor"),
        (from_yaml, LAUGHS, f"aliases expand to more than {LARGEST:,} values"),
        (from_yaml, "a: &a [*a]", "aliases expand to more than"),
        (from_yaml, "when: 2024-13-99", "month must be in 1..12"),
    ]:
        with pytest.raises(ValueError, match=why):
            read(text)
