import pytest
from rewardlab.research.speed import __main__ as command
from rewardlab.research.speed import kernels, suites


def test_help_names_every_script_without_importing_any(capsys, monkeypatch):
    monkeypatch.setattr(command, "_script", lambda name: pytest.fail(f"{name} was imported"))
    assert command.main(["--help"]) == 0 and command.main([]) == 2
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [words[0] for words in lines if words][: len(command.names(command.FOLDER))] == command.names(command.FOLDER)
    assert ["policy", "Time", "and", "memory", "of"] in [words[:5] for words in lines]


def test_a_script_gets_its_own_arguments(capsys, monkeypatch):
    monkeypatch.setattr(suites, "measure", lambda suite, folder, rows: {"cpu_seconds": 2.5, "peak_mb": rows})
    assert command.main(["suites", "--suites", "rmb", "--runs", "1", "--rows", "7"]) == 0
    assert "rmb: 2.5 CPU-seconds, at most 7 MB" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        command.main(["suites", "--help"])
    assert "--runs" in capsys.readouterr().out


def test_wrong_words_and_figures_out_of_bounds_have_their_exit_codes(capsys, monkeypatch):
    assert command.main(["polcy"]) == 2
    assert "no speed script 'polcy'; did you mean 'policy'?" in capsys.readouterr().err
    monkeypatch.setattr(command, "_script", lambda name: kernels)
    monkeypatch.setattr(kernels, "main", lambda arguments: 5)
    assert command.main(["kernels"]) == 5
    assert "out of its bounds" in capsys.readouterr().err


def test_a_missing_package_is_named_with_what_to_install(monkeypatch, capsys):
    def lacking(name: str, *rest: str):
        if name != ".kernels":
            return real(name, *rest)
        raise ModuleNotFoundError("No module named 'triton.language'", name="triton.language")

    real = command.importlib.import_module
    monkeypatch.setattr(command.importlib, "import_module", lacking)
    assert command.main(["kernels"]) == 2
    assert capsys.readouterr().err.rstrip().endswith("pip install triton")
