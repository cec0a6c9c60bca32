"""The counting of files, stops and returns of walks, and what is recorded as a call."""

import sys
import textwrap

from rewardlab.research.walks import CallRecorder, Function, file_list, returns, stops

MAIN, LOAD, PARSE, RATE = (
    Function("apps/cli.py", "main"),
    Function("rm/data.py", "load"),
    Function("rm/data.py", "parse"),
    Function("rm/scalar.py", "rate"),
)
HELP = Function("apps/cli.py", "help")
CALLS = [(None, MAIN), (MAIN, LOAD), (LOAD, PARSE), (MAIN, PARSE), (MAIN, RATE), (MAIN, HELP), (RATE, LOAD)]
"""A call within `rm/data.py` and one within `apps/cli.py` are no stops; the next entry into `rm/data.py` is none."""


def test_a_stop_is_an_entry_from_another_file_and_a_return_one_at_a_file_that_was_left():
    assert stops(CALLS) == ["apps/cli.py", "rm/data.py", "rm/scalar.py", "rm/data.py"]
    assert returns(stops(CALLS)) == 1
    assert returns(stops([*CALLS, (LOAD, HELP), (HELP, RATE)])) == 3
    assert stops([]) == [] and returns([]) == 0


def test_files_are_listed_in_the_order_of_first_entry():
    assert [line.split() for line in file_list(CALLS).splitlines()] == [
        ["2", "functions", "1", "stops", "apps/cli.py"],
        ["2", "functions", "2", "stops", "rm/data.py"],
        ["1", "functions", "1", "stops", "rm/scalar.py"],
    ]


def test_each_call_of_a_function_of_the_product_is_recorded_once(tmp_path):
    text = """
    class Model:
        def __init__(self):
            self.load()
        def load(self):
            return [size(index) for index in range(3)]
    def size(index):
        return index
    def main():
        class Local:
            pass
        return sorted(Model().load(), key=lambda index: size(index))
    """
    namespace = {}
    exec(compile(textwrap.dedent(text), str(tmp_path / "apps" / "cli.py"), "exec"), namespace)
    outside = {}
    exec(compile("def main():\n    return 0", str(tmp_path / "tests" / "cli.py"), "exec"), outside)
    recorder = CallRecorder(tmp_path)
    previous = sys.getprofile()
    sys.setprofile(recorder)
    try:
        namespace["main"]()
        outside["main"]()
    finally:
        sys.setprofile(previous)
    main, load, size = (Function("apps/cli.py", name) for name in ("main", "Model.load", "size"))
    assert [*recorder.calls] == [(None, main), (main, load), (load, size), (main, size)]
