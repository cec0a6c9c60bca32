"""Run folders of others, as the inspector, `verify` and `compare` open them, and what programs keep for themselves."""

from functools import partial
from pathlib import Path

from rewardlab.apps.commands.verify.run import run_verify
from rewardlab.apps.commands.verify.settings import VerifyConfig
from rewardlab.apps.inspector.run_list import open_root
from rewardlab.apps.inspector.tabs.judgments.annotation import annotations
from rewardlab.apps.inspector.tabs.judgments.case_html import case_html
from rewardlab.apps.inspector.tabs.judgments.cases import item
from rewardlab.apps.inspector.tabs.judgments.client.case_server import row_html
from rewardlab.apps.inspector.tabs.judgments.explanation import queries as why
from rewardlab.apps.inspector.tabs.judgments.explanation.criteria import grounds_html, load_grounds
from rewardlab.apps.inspector.tabs.judgments.queries import Filter, lines, margin_scale, open_run, outcomes, subsets
from rewardlab.apps.inspector.tabs.playground import decoded as answers
from rewardlab.apps.inspector.tabs.results.areas import areas_html, scores_html
from rewardlab.apps.inspector.tabs.results.queries import lengths_of, margins_of
from rewardlab.apps.inspector.tabs.studies.queries import figures_html, read_figures, read_text, report_html
from rewardlab.apps.inspector.tabs.training import log, rollouts, waterfall
from rewardlab.apps.inspector.tabs.training import queries as training
from rewardlab.apps.runs.finished import compare_finished, open_finished, shared_cases
from rewardlab.apps.runs.run_folder import read_settings
from rewardlab.apps.runs.summaries import read_report
from rewardlab.policy.rollouts._exchange import AgentCompletions, StepHashes, read, store

from tests.fuzzing.shapes import JSON, JSON_LINES, PARQUET, SAFETENSORS, YAML
from tests.fuzzing.target import Target
from tests.fuzzing.targets import preferences
from tests.fuzzing.world import inside

DECODED = {
    "id": "1", "preference": {"helpful": 0.5}, "weight": 1.0, "prompt": [{"role": "user", "content": "p"}],
    "completion": "ab", "finished": "stop", "tokens": [1, 2], "pieces": ["a", "b"], "base": [-1.0, -0.5],
    "mixed": [-1.0, -0.5], "kl": [0.1, 0.2], "entropy": [1.0, None], "helpful": [-0.5, -0.25],
}  # fmt: skip
SAID = {
    "case": "c1", "verdict": "agree", "note": "yes", "who": "me", "when": "2026-01-01T00:00:00Z", "scorer": "rm",
    "outcome": "right", "texts": "0123456789abcdef",
}  # fmt: skip
EXCHANGED = StepHashes("prompts", "words")


def run_folders() -> list[Target]:
    return [
        _in("eval", "summary.json", _look, JSON),
        _in("eval", "items.parquet", _look, PARQUET),
        _in("eval", "scores.parquet", _look, PARQUET),
        _in("eval", "manifest.json", lambda path: why.contracts_of(path.parent), JSON),
        _in("eval", "report.md", _report, None),
        _in("eval", "report.png", _report, None),
        _in("eval", "summary.json", _verify, JSON, name="eval/verify: summary.json"),
        _in("eval", "items.parquet", _verify, PARQUET, name="eval/verify: items.parquet"),
        _in("eval", "scores.parquet", _verify, PARQUET, name="eval/verify: scores.parquet"),
        _in("judge", "judgments.parquet", _grounds, PARQUET),
        _in("judge", "config.yaml", lambda path: read_settings(path.parent), YAML),
        _in("rl", "steps.jsonl", _steps, JSON_LINES),
        _in("rl", "config.yaml", _steps, YAML),
        _in("rl", "rollouts/step-000002.parquet", _rollouts, PARQUET),
        Target("runs/decode/answers.jsonl", "answers.jsonl", (preferences.lines([DECODED]),), _decoded, JSON_LINES),
        Target("runs/annotations", "annotations/eval.jsonl", (preferences.lines([SAID]),), _annotations, JSON_LINES),
        Target("runs/exchange", "step.safetensors", (_exchanged(),), _exchange, SAFETENSORS),
    ]


_in = partial(inside, "runs")


def _annotations(path: Path) -> None:
    annotations.read(path.parents[1] / "eval")


def _exchange(path: Path) -> None:
    read(path, EXCHANGED, 2)


def _look(path: Path) -> None:
    """What the first pages of the inspector ask for."""
    folder = path.parent
    [open_root(folder.parent).entry(one.id) for one in open_root(folder.parent).entries()]
    run = open_run(folder)
    for scorer in run.scorers:
        for outcome in ("all", "wrong"):
            found = lines(run, Filter(scorer.name, outcome), 0, 10, order="gap")
            [row_html(line, margin_scale(run, Filter(scorer.name))) for line in found]
        outcomes(run, Filter(scorer.name, search="newt"))
        for line in found:
            case_html(item(run, scorer.name, line.case), diff=True)
        margins_of(folder, scorer.name)
        lengths_of(folder, scorer.name)
    subsets(run)
    report = read_report(folder)
    scores_html(report, "run")
    areas_html(report, "run", report.rows[0].scorer)


def _report(path: Path) -> None:
    text, figures = read_text(path.parent), read_figures(path.parent)
    report_html(text, figures)
    figures_html(text, figures)


def _verify(path: Path) -> None:
    run_verify(VerifyConfig(str(path.parent)))
    run = open_finished(str(path.parent))
    scorer = run.model("rm")
    compare_finished((run, scorer), (run, scorer), shared_cases(run, run), samples=10)


def _grounds(path: Path) -> None:
    found = load_grounds(path.parent, "small rubric", "c1")
    if found is not None:
        grounds_html(found, ("An oak is a tree.", "A newt"))


def _steps(path: Path) -> None:
    folder = path.parent
    sources, steps = log.read_sources(folder), log.read_steps(folder)
    for panel in log.panels(steps, sources).values():
        training.step_figure(steps, panel)
    training.progress_html(steps, sources, False)


def _rollouts(path: Path) -> None:
    folder = path.parent.parent
    sources = log.read_sources(folder)
    rollouts.number_of(folder, 2)
    found = rollouts.read_answers(folder, 2, 0, 10)
    rollouts.rows_html(found, sources, 0, "?answer=")
    for place in range(len(found)):
        one = rollouts.read_answer(folder, 2, place)
        rollouts.answer_html(one, sources)
        waterfall.waterfall_figure(waterfall.waterfall(one, sources))
        for name in rollouts.token_series(one):
            rollouts.strip_html(one, rollouts.token_texts(folder, one.tokens), name)


def _decoded(path: Path) -> None:
    found = answers.read_answers(path)
    for name, rows in found.rows.items():
        found.prompt(name)
        for row in rows:
            answers.decoded_completion(row)


def _exchanged() -> bytes:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = Path(folder) / "step.safetensors"
        store(path, AgentCompletions([[1, 2], [3]], [[-1.0, -0.5], [-0.25]]), EXCHANGED)
        return path.read_bytes()
