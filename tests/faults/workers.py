"""Others that a program depends on and that die: processes of an evaluation, a judge's server."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rewardlab.apps.runs.run_folder import partial_folder
from rewardlab.tests.stand_ins.chat_server import ChatServer

from tests.faults.injection import Seen, injection, seen
from tests.faults.programs import Hook
from tests.faults.signals import evaluation
from tests.faults.world import World, files

AGAIN = "the report is that of a run which nothing disturbed, to the last byte"
ASKED = 24


def _small_chunks(rest: float) -> Hook:
    """An evaluation's chunks have 15 cases, and each takes its time."""

    def hook() -> None:
        from rewardlab.apps.runs import evaluation_resume as ledger
        from rewardlab.rm.kinds.scalar.model import ScalarRewardModel

        ledger.CHUNK, rate = 15, ScalarRewardModel.rate

        def slowly(self, examples, **options):
            time.sleep(rest if len(examples) > 10 else 0)
            return rate(self, examples, **options)

        ScalarRewardModel.rate = slowly

    return hook


@injection(AGAIN + "; kept chunks are not judged again")
def evaluation_killed(world: World) -> Seen:
    """Kill -9 of `eval` after its first chunk of judgments, then --resume."""
    alone, output = world.new("eval-alone"), world.new("eval-killed")
    world.done(*evaluation(world, alone), hook=_small_chunks(0))
    program = world.start(*evaluation(world, output), hook=_small_chunks(1.5))
    first = partial_folder(output) / "judgments" / "000" / "000000.jsonl"
    progress = partial_folder(output)
    came = program.until(lambda: first.exists() or [*progress.glob("*/000/000000.jsonl")])
    program.kill()
    kept = {one: one.stat().st_mtime_ns for one in progress.glob("*/000/*.jsonl")}
    ended = world.run(*evaluation(world, output), "--resume", hook=_small_chunks(0))
    same = ended.code == 0 and files(output)["report.md"] == files(alone)["report.md"]
    return seen(ended, (), 0, same_report=same, killed_with_chunks=bool(came and kept))


@injection(AGAIN)
def evaluation_worker_killed(world: World) -> Seen:
    """Kill -9 of the second of two `eval` processes, then both again with --resume."""
    alone, output = world.new("eval-one"), world.new("eval-of-two")
    world.done(*evaluation(world, alone), hook=_small_chunks(0))

    def ranked(rank: int, rest: float) -> Hook:
        def hook() -> None:
            import os

            os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "fault", "MASTER_PORT": "0"}
            _small_chunks(rest)()
            from rewardlab.apps.runs import processes

            processes.wait_for.__defaults__ = (6.0,)

        return hook

    words = [*evaluation(world, output), "--processes", 2]
    first, second = (world.start(*words, hook=ranked(rank, 1.0)) for rank in (0, 1))
    came = second.until(lambda: [*partial_folder(output).glob("*/000/000001.jsonl")])
    second.kill()
    waited = first.end()
    again = [world.start(*words, "--resume", hook=ranked(rank, 0)) for rank in (0, 1)]
    codes = [one.end().code for one in again]
    same = codes == [0, 0] and files(output)["report.md"] == files(alone)["report.md"]
    return seen(waited, ("did another process of the run fail?",), 2, killed_at_work=came, same_report=same)


# ---- a judge's server ----


def _judging(world: World, url: str, output: Path, retries: int) -> list[Any]:
    words = [
        "judge", "--benchmark", "pairs", "--data", world.pairs, "--endpoint", url, "--model", "m", "--output", output,
    ]  # fmt: skip
    return [*words, "--bootstrap_samples", 20, "--retries", retries]


def _verdicts(output: Path) -> dict[str, Any]:
    summary = json.loads((output / "summary.json").read_text(encoding="utf-8"))
    return {row["scorer"]: row["overall"] for row in summary["rows"]}


def _undisturbed(world: World) -> Path:
    output = world.folder / "runs" / "judged"
    if not output.exists():
        with ChatServer() as server:
            world.done(*_judging(world, server.url, world.new("judged"), 0))
    return output


def _interrupted(world: World, name: str, end: Callable[[Any], Any]) -> tuple[Any, Any, dict[str, bool]]:
    """`judge` is ended after some replies and goes on: what `end` gave, how the resumed run ended, and what held."""
    alone, output = _undisturbed(world), world.new(name)
    with ChatServer(latency=0.05) as server:
        program = world.start(*_judging(world, server.url, output, 0))
        came = program.until(lambda: len(server.requests) >= ASKED)
        given = end(program)
        before, asked = len(_replies(partial_folder(output))), len(server.requests)
        ended = world.run(*_judging(world, server.url, output, 0), "--resume")
        again = len(server.requests) - asked
    once = came and ended.code == 0 and again == len(_replies(output)) - before
    same = ended.code == 0 and _verdicts(output) == _verdicts(alone)
    return given, ended, {"same_figures": same, "asked_once": once}


@injection("the same figures; no reply that was kept is paid for again")
def judge_killed(world: World) -> Seen:
    """Kill -9 of `judge` after 24 replies, then --resume."""
    _, ended, held = _interrupted(world, "judge-killed", lambda program: program.kill())
    return seen(ended, (), 0, **held)


@injection("the same figures; no reply that was kept is paid for again")
def sigterm_to_judge(world: World) -> Seen:
    """SIGTERM to `judge` after 24 replies, then --resume."""

    def terminated(program: Any) -> Any:
        program.send(signal.SIGTERM)
        return program.end()

    ended, _, held = _interrupted(world, "judge-sigterm", terminated)
    return seen(ended, ("ended by SIGTERM",), 143, **held)


@injection("the torn line is dropped and asked again; the same figures")
def kept_reply_torn(world: World) -> Seen:
    """A kept reply's line is torn by a kill, then --resume."""

    def torn(program: Any) -> None:
        program.kill()
        path = _replies_file(partial_folder(world.folder / "runs" / "judge-torn"))
        path.write_bytes(path.read_bytes()[:-30])

    _, ended, held = _interrupted(world, "judge-torn", torn)
    return seen(ended, ("was cut off",), 0, same_figures=held["same_figures"])


def _replies_file(folder: Path) -> Path:
    return next(iter(folder.rglob("replies.jsonl")))


def _replies(folder: Path) -> list[str]:
    return _replies_file(folder).read_text(encoding="utf-8").splitlines()


@injection("the same figures as from a server that stays")
def server_comes_back(world: World) -> Seen:
    """A judge's server is away for three seconds and comes back."""
    alone, output = _undisturbed(world), world.new("judge-back")
    with ChatServer(latency=0.02) as server:
        program = world.start(*_judging(world, server.url, output, 6))
        came = program.until(lambda: len(server.requests) >= ASKED)
        server.faults, server.kinds = 1.0, ("reset",)
        time.sleep(3)
        server.faults = 0.0
        ended = program.end()
        failed = sum(server.faulty.values())
    same = ended.code == 0 and _verdicts(output) == _verdicts(alone)
    return seen(ended, (), 0, was_away=came and failed > 0, same_figures=same)


@injection("replies that came are kept")
def server_stays_away(world: World) -> Seen:
    """A judge's server goes away and never comes back, then there is another and --resume."""
    alone, output = _undisturbed(world), world.new("judge-away")
    with ChatServer(latency=0.02) as server:
        program = world.start(*_judging(world, server.url, output, 0))
        program.until(lambda: len(server.requests) >= ASKED)
        server.faults, server.kinds = 1.0, ("reset",)
        ended = program.end()
        kept = len(_replies(partial_folder(output)))
        server.faults = 0.0
        resumed = world.run(*_judging(world, server.url, output, 0), "--resume")
    same = resumed.code == 0 and _verdicts(output) == _verdicts(alone)
    return seen(ended, ("--resume", "again"), 3, replies_kept=kept >= ASKED - 4, resumed_with_same_figures=same)
