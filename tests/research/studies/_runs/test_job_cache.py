from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from rewardlab.research.studies._runs.job_cache import Job, read_arrays, run_jobs
from rewardlab.rm.errors import DataError


@dataclass(frozen=True)
class Square(Job):
    number: int

    def __str__(self) -> str:
        return f"{self.number} squared"

    def work(self, cache):
        return {"square": np.array(self.number**2)}


def test_a_job_is_done_once_and_its_result_is_a_function_of_its_fields(tmp_path):
    log: list[str] = []
    jobs = [Square(2), Square(2), Square(3)]
    run_jobs(jobs, tmp_path, 1, log.append)
    assert log == ["0 of 2 results are in the cache", "1 of 2: 2 squared", "2 of 2: 3 squared"]
    log.clear()
    run_jobs(jobs, tmp_path, 1, log.append)
    assert log == ["2 of 2 results are in the cache"]
    assert [int(job.result(tmp_path)["square"]) for job in jobs] == [4, 4, 9]


def test_damaged_results_and_pickles_are_refused(tmp_path):
    class Harmful:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    np.savez(tmp_path / "pickle.npz", x=np.array([Harmful()], dtype=object))
    file = Square(2).file(tmp_path)
    Square(2).result(tmp_path)
    file.write_bytes(file.read_bytes()[:-40])
    (tmp_path / "end.npz").write_bytes(b"PK\x03\x04")
    for path in (tmp_path / "pickle.npz", tmp_path / "end.npz", file):
        with pytest.raises(DataError, match="not a kept result .*delete it, and it is made again"):
            read_arrays(path)
    assert not (tmp_path / "ran").exists()
