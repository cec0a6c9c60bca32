import math

import pyarrow.parquet as pq
import pytest
import torch
from rewardlab.policy.training.rollout_files import write_rollouts
from rewardlab.policy.types import Rewards, Rollout
from rewardlab.rm.types import Example, user_turn

EXAMPLES = [Example(user_turn("why?"), "because"), Example(user_turn("why?"), "so")]
RESPONSE = torch.tensor([[False, True, True, True], [False, True, False, False]])
ROLLOUT = Rollout(
    torch.tensor([0, 0]),
    RESPONSE,
    torch.tensor([True, False]),
    tokens=torch.arange(8).view(2, 4),
    logprobs=-torch.arange(8.0).view(2, 4),
)
REWARDS = {
    "source": Rewards(torch.tensor([[1.0, 0.5], [math.nan, 2.0]]), ("rm", "style")),
    "gate": Rewards(torch.tensor([[1.0, 0.0], [math.nan, 2.0]]), ("rm", "style")),
}
ADVANTAGES = {"grpo": torch.tensor([0.25, -0.25]), "tokens": torch.arange(8.0).view(2, 4)}


def test_what_is_written_is_read_again_and_survives_a_failed_write(tmp_path):
    write_rollouts(tmp_path / "steps" / "3.parquet", 3, EXAMPLES, ROLLOUT, REWARDS, ADVANTAGES)
    first, second = pq.read_table(tmp_path / "steps" / "3.parquet").to_pylist()
    assert first["step"] == 3 and first["completion"] == "because" and first["prompt"] == "user: why?"
    assert (first["length"], first["tokens"], first["logprobs"]) == (3, [1, 2, 3], [-1, -2, -3])
    assert (second["length"], second["tokens"], second["finished"]) == (1, [5], False)
    assert first["base"] is None and first["values"] is None
    assert (
        first["reward/source/style"] == 0.5 and first["reward/gate/style"] == 0 and second["reward/source/rm"] is None
    )
    assert first["advantage/grpo"] == [0.25] and first["advantage/tokens"] == [1, 2, 3]
    assert second["advantage/tokens"] == [5]
    assert [file.name for file in (tmp_path / "steps").iterdir()] == ["3.parquet"]
    path = tmp_path / "3.parquet"
    write_rollouts(path, 3, EXAMPLES, ROLLOUT, REWARDS, ADVANTAGES)
    before = path.read_bytes()
    with pytest.raises(ValueError):
        write_rollouts(path, 3, EXAMPLES[:1], ROLLOUT, REWARDS, ADVANTAGES)
    assert path.read_bytes() == before


def test_log_probabilities_are_those_of_whoever_wrote_the_tokens_and_the_policys_stand_beside_them(tmp_path):
    rollout = ROLLOUT._replace(written=torch.tensor([[0.0, -1.5, -2.0, -3.0], [0.0, -4.0, 0.0, 0.0]]))
    write_rollouts(tmp_path / "3.parquet", 3, EXAMPLES, rollout, REWARDS, ADVANTAGES, writers=["server", "policy"])
    first, second = pq.read_table(tmp_path / "3.parquet").to_pylist()
    assert (first["logprobs"], second["logprobs"]) == ([-1.5, -2.0, -3.0], [-4.0])
    assert (first["logprobs_of"], second["logprobs_of"]) == ("server", "policy")
    assert (first["policy_logprobs"], second["policy_logprobs"]) == ([-1.0, -2.0, -3.0], [-5.0])
