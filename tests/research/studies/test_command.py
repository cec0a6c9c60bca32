import pytest
from rewardlab.research.studies.__main__ import main


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("sedes", "no 'sedes' in research.studies; did you mean 'seeds'?"),
        ("seeds --workers 0", "--workers is at least 1, got 0"),
        ("wmss --only pipo", "the study wmss has no recipes to choose from; leave --only out"),
        ("human_preferences", "no folder ''; give the one that holds the study's data with --data"),
    ],
)
def test_a_study_that_cannot_be_run_is_refused(words, sentence, tmp_path, capsys):
    assert main([*words.split(), "--output", str(tmp_path / "run")]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
