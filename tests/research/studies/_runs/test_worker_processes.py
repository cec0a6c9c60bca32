import math
import signal
import subprocess
import time
from multiprocessing import active_children

import psutil
import pytest
from rewardlab.research.studies._runs.worker_processes import in_processes

from tests.conftest import PATIENCE


def test_results_come_in_order_from_processes_of_one_thread_each():
    texts = ["(2, __import__('torch').get_num_threads())", "(1, __import__('torch').get_num_threads())"]
    assert list(in_processes(eval, texts, 2)) == [(2, 1), (1, 1)]
    assert list(in_processes(math.sqrt, [9.0, 4.0], 1)) == [3.0, 2.0]


def test_an_error_is_told_and_stops_the_others():
    started = time.monotonic()
    with pytest.raises(ValueError, match="math domain error"):
        list(in_processes(eval, ["__import__('math').sqrt(-1)", "__import__('time').sleep(600)"], 2))
    assert time.monotonic() - started < 300 and not active_children()


def test_a_parent_that_is_killed_leaves_no_process_behind(script):
    text = """
import os, time
from rewardlab.research.studies._runs.worker_processes import in_processes
if __name__ == "__main__":
    for _ in in_processes(time.sleep, [0, 600, 600], 2):
        print("under way", flush=True)
"""
    parent = subprocess.Popen(script(text), stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None and parent.stdout.readline() == "under way\n"
    workers = psutil.Process(parent.pid).children(recursive=True)
    assert len(workers) >= 2
    parent.send_signal(signal.SIGKILL)
    parent.wait(PATIENCE)
    assert not psutil.wait_procs(workers, timeout=PATIENCE)[1]
