import pytest
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.errors import DataError


def test_objectives_have_different_names():
    assert ScoringContract(kind="scalar", objectives=("helpful", "overall")).objectives == ("helpful", "overall")
    with pytest.raises(DataError, match="two objectives are named 'overall'"):
        ScoringContract(kind="scalar", objectives=("helpful", "overall", "overall"))
