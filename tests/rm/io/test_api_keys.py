import pytest
from rewardlab.rm.errors import UsageError
from rewardlab.rm.io.api_keys import authorization, clean_token, environment_key


def test_white_space_around_a_key_is_removed_and_an_empty_key_sends_no_header(monkeypatch):
    for text in ["sk-secret", "sk-secret\n", " sk-secret\r\n"]:
        monkeypatch.setenv("SOME_KEY", text)
        assert environment_key("SOME_KEY") == clean_token(text) == "sk-secret"
    for text in [None, "", " \n"]:
        monkeypatch.delenv("SOME_KEY", raising=False)
        if text is not None:
            monkeypatch.setenv("SOME_KEY", text)
        assert environment_key("SOME_KEY") == "" and authorization(clean_token(text)) == {}


def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(monkeypatch):
    for text, problem in [("sk-se\ncret", "a line break or a control character"), ("“sk-secret”", "beyond ASCII")]:
        monkeypatch.setenv("SOME_KEY", text)
        with pytest.raises(UsageError, match=f"the API key in SOME_KEY has .*{problem}") as error:
            environment_key("SOME_KEY")
        assert "sk-" not in str(error.value) and "cret" not in str(error.value), text
