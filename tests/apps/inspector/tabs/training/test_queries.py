"""A training's log, and the answers of its steps, by hand; and that `rewardlab rl` writes them so."""

import math

import numpy as np
import pytest
import yaml
from rewardlab.apps.inspector.run_list import stamp
from rewardlab.apps.inspector.tabs.metrics import METRICS
from rewardlab.apps.inspector.tabs.training import queries as training
from rewardlab.apps.inspector.tabs.training.queries import (
    Line,
    Panel,
    Sources,
    columns,
    components,
    damaged_lines,
    over_kl,
    over_steps,
    panels,
    progress_html,
    read_sources,
    read_steps,
    reward_columns,
    reward_metrics_html,
    reward_panels,
    series,
    smoothed,
)
from rewardlab.apps.inspector.tabs.training.rollouts import (
    advantage,
    answer_html,
    cells,
    headers,
    nearest,
    number_of,
    read_answer,
    read_answers,
    steps_of,
    strip_html,
    token_series,
    token_texts,
    total,
)
from rewardlab.apps.inspector.tabs.training.rollouts_view import _widths
from rewardlab.apps.inspector.tabs.training.waterfall import RELATIVE, TOTAL, waterfall, waterfall_figure
from rewardlab.rm.errors import DataError, UsageError

from tests.apps.inspector.trainings import HOSTILE, SETTINGS, keep_answers, logged, write_training

LOG = [logged(step) for step in range(1, 5)]
SOURCES = Sources(("rm", "style"), ("gold",), {"style": 0.5})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_training(tmp_path_factory.mktemp("runs") / "rl", LOG)


# ---- settings and log ----


def test_sources_are_those_of_the_settings(run):
    assert read_sources(run) == SOURCES
    assert [SOURCES.weight(name) for name in ("rm", "rm.safe", "style", "gold", "rmx")] == [1.0, 1.0, 0.5, 0.0, 0.0]
    assert [SOURCES.watches(name) for name in ("rm", "gold", "gold.kind", "golden")] == [False, True, True, False]


def test_without_settings_every_reward_counts(tmp_path):
    assert read_sources(tmp_path) == ((), (), {})
    assert read_sources(tmp_path).weight("anything") == 1.0 and not read_sources(tmp_path).watches("anything")


@pytest.mark.parametrize("text", ["- a\n", "{", "reward: 3\n", "weight: [style]\n"])
def test_damaged_settings_are_told(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(DataError, match=r"config.yaml is damaged"):
        read_sources(tmp_path)


def test_the_line_that_is_being_written_is_left_for_later(tmp_path):
    folder = write_training(tmp_path / "rl", LOG[:2], kept=())
    with (folder / "steps.jsonl").open("a") as lines:
        lines.write('{"step": 3, "rew')
    assert series(read_steps(folder), "step")[1] == [1, 2]
    before = stamp(folder, ["steps.jsonl"])
    with (folder / "steps.jsonl").open("a") as lines:
        lines.write('ard": 0.5}\n')
    assert (
        series(read_steps(folder), "reward") == ([1, 2, 3], [0.1, 0.2, 0.5])
        and stamp(folder, ["steps.jsonl"]) != before
    )


@pytest.mark.parametrize("line", ["{", "3", "[1]", "\x00", f'{{"step": 1{"0" * 400}}}'])
def test_a_damaged_line_costs_one_step_and_is_named(tmp_path, line):
    folder = write_training(tmp_path / "rl", LOG[:2], kept=())
    first, second = (folder / "steps.jsonl").read_text().splitlines()
    (folder / "steps.jsonl").write_text(f"{first}\n{line}\n{second}\n")
    assert series(read_steps(folder), "step")[1] == [1, 2] and damaged_lines(folder) == (2,)
    html = progress_html(read_steps(folder), read_sources(folder), False, damaged_lines(folder))
    assert "1 damaged line of steps.jsonl left out: 2." in html


def test_a_log_that_is_not_there_is_told(tmp_path):
    with pytest.raises(DataError, match=r"steps.jsonl cannot be read"):
        read_steps(tmp_path)


# ---- figures ----


def test_a_mean_is_over_the_steps_before():
    assert smoothed([1.0, 2.0, 6.0], 1) == [1.0, 2.0, 6.0]
    assert smoothed([1.0, 2.0, 6.0], 9) == [1.0, 1.5, 3.0]
    with pytest.raises(UsageError, match="over 1 step or more, got 0"):
        smoothed([1.0], 0)


def test_figures_are_of_what_was_logged():
    found = panels(LOG, SOURCES)
    assert [*found] == ["reward", "components", "proxy and gold", "KL", "length", "entropy"]
    assert [line.name for line in found["components"].lines] == ["rm", "style", "gold"] == components(LOG)
    assert [line.column for line in found["proxy and gold"].lines] == ["reward", "rewards/gold/mean"]
    assert [*panels(LOG, Sources(("rm", "style", "gold"), (), {}))] == [
        "reward",
        "components",
        "KL",
        "length",
        "entropy",
    ]
    assert panels([], SOURCES) == {}


def test_a_watched_reward_is_dashed():
    proxy, gold = over_steps(LOG, panels(LOG, SOURCES)["proxy and gold"]).data
    assert ([*proxy.x], [*proxy.y], proxy.line.dash) == ([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4], "solid")
    assert [*gold.y] == [0.9, 0.8, 0.7, 0.6] and gold.line.dash == "dash" and gold.name == "gold (watched)"


def test_the_kl_has_its_standard_error_unless_it_is_smoothed():
    panel = panels(LOG[:2], SOURCES)["KL"]
    band, kl = over_steps(LOG[:2], panel).data
    assert [*band.x] == [1, 2, 2, 1] and [*band.y] == [0.375, 0.625, 0.375, 0.125] and [*kl.y] == [0.25, 0.5]
    (alone,) = over_steps(LOG[:2], panel, 2).data
    assert [*alone.y] == [0.25, 0.375]


def test_steps_without_a_standard_error_interrupt_the_band():
    """Steps 1 and 2 have one, 3 has none, 4 has one, 5 has no KL at all."""
    log = [logged(step) for step in range(1, 6)]
    del log[2]["watch/kl_stderr"], log[4]["watch/kl"], log[4]["watch/kl_stderr"]
    band, kl = over_steps(log, panels(log, SOURCES)["KL"]).data
    assert [*band.x] == [1, 2, 2, 1, None, 4, 4] and [*band.y] == [0.375, 0.625, 0.375, 0.125, None, 1.125, 0.875]
    assert [*kl.x] == [1, 2, 3, 4]


def test_a_kl_of_some_steps_keeps_its_band_in_a_long_log(monkeypatch):
    """Every second of 8 steps has a KL: 4 points, of which half are drawn, as of the line."""
    monkeypatch.setattr(training, "MOST_POINTS", 2)
    log = [logged(step) if step % 2 else {"step": step, "reward": 0.0} for step in range(1, 9)]
    band, kl = over_steps(log, panels(log, SOURCES)["KL"]).data
    assert [*band.x] == [1, 5, 5, 1] and [*kl.x] == [1, 5]


def test_a_figure_has_its_definition_as_a_tooltip():
    for name, panel in panels(LOG, SOURCES).items():
        (title,) = over_steps(LOG, panel).layout.annotations
        assert title.text == f"<b>{panel.title}</b>" and title.hovertext.replace("<br>", " ") == METRICS[name]


def test_proxy_and_gold_stand_against_the_kl():
    proxy, gold = over_kl(LOG, panels(LOG, SOURCES)["proxy and gold"]).data
    assert [*proxy.x] == [0.25, 0.5, 0.75, 1.0] == [*gold.x] and [*gold.y] == [0.9, 0.8, 0.7, 0.6]


def test_names_in_figures_are_text():
    panel = Panel("Rewards", "mean", (Line("a", HOSTILE), Line("b", "<b>")))
    figure = over_steps([{"step": 1.0, "a": 1.0, "b": 2.0}], panel)
    assert [trace.name for trace in figure.data] == ["&lt;img src=x onerror=window.hacked=1&gt;", "&lt;b&gt;"]


def test_long_logs_are_thinned_and_that_is_told(monkeypatch):
    monkeypatch.setattr(training, "MOST_POINTS", 2)
    (trace,) = over_steps(LOG, Panel("Reward", "mean", (Line("reward", "reward"),))).data
    assert [*trace.x] == [1, 3] and trace.name == "reward, 1 step of 2"


def test_progress_tells_the_last_step_and_the_weights():
    html = progress_html(LOG, SOURCES, growing=False)
    assert "step 4</b>, finished" in html and "1 × rm, 0.5 × style, gold (watched)" in html
    assert "running or cut off" in progress_html(LOG, SOURCES, growing=True)
    assert "No step is logged yet" in progress_html([], SOURCES, growing=True)


# ---- rewards that learn ----


def test_what_a_reward_says_of_itself_is_found_by_its_name():
    log = [row | {"rm/omega": 1.0 - row["step"] / 10, "rm/head_version": row["step"], "rmx/calls": 9.0} for row in LOG]
    assert reward_columns(log, SOURCES) == {"rm": ["rm/head_version", "rm/omega"]}
    assert [*reward_panels("rm", log)] == ["versions", "omega"]
    (versions,) = over_steps(log, reward_panels("rm", log)["versions"]).data[:1]
    assert [*versions.y] == [1, 2, 3, 4]
    html = reward_metrics_html("rm", ["rm/omega"], log)
    assert "omega</th><td>0.9</td><td>0.6</td><td>4</td>" in html
    assert reward_columns(LOG, SOURCES) == {} and "rmx/calls" in columns(log)


def test_a_judge_tells_its_requests_and_what_they_cost():
    log = [row | {"rm/calls": 8.0, "rm/cost": 0.25, "rm/prompt_tokens": 900.0} for row in LOG]
    assert [*reward_panels("rm", log)] == ["requests", "cost"]
    assert "cost</th><td>0.25</td><td>0.25</td><td>4</td>" in reward_metrics_html(
        "rm", reward_columns(log, SOURCES)["rm"], log
    )


# ---- answers ----


def test_steps_are_those_whose_answers_were_kept(run):
    assert steps_of(run) == [0, 2, 4] and [nearest([0, 2, 4], step) for step in (0, 1, 3.2, 99)] == [0, 0, 4, 4]
    assert number_of(run, 2) == 3
    with pytest.raises(UsageError, match="no completions of step 3 are stored; there are steps 0 to 4"):
        number_of(run, 3)


def test_the_table_has_rewards_after_the_last_transform_and_the_mean_advantage(run):
    rows = read_answers(run, 2, 0, 10)
    assert headers(rows) == ["prompt", "completion", "rm", "style", "gold", "trained on", "advantage", "finished"]
    table = cells(rows, SOURCES)
    assert table[0] == ["why?", "because it is", "1.000", "2", "3", "2.000", "1.000", "yes"]
    assert table[1][2:] == ["0.500", "0", "0", "0.500", "-0.750", "no"]
    assert table[2][2:] == ["missing", "0", "0", "missing", "0.000", "yes"]
    assert [answer.position for answer in read_answers(run, 2, 1, 1)] == [1]


def test_an_answer_has_everything_that_was_kept_of_it(run):
    first = read_answer(run, 4, 0)
    assert first.tokens == (5, 6, 7) and first.rewards["gate"] == {"rm": 1.0, "style": 2.0, "gold": 3.0}
    assert total(first, SOURCES) == 2.0 and total(read_answer(run, 4, 1), SOURCES, "sources") == 2.5
    assert advantage(first) == 1.0 and first.versions == {"rm/head": 4, "rm/omega": 0.5}
    with pytest.raises(UsageError, match="step 4 has 3 completions, and none at index 3"):
        read_answer(run, 4, 3)


def test_an_answer_is_text(run):
    html = answer_html(read_answer(run, 0, 1), SOURCES)
    assert "&lt;img src=x" in html and "<img" not in html and "cut off at the longest length" in html
    assert "style <span" in html and "× 0.5" in html and "gold <span" in html and "watched" in html
    assert "Rated by rm/head 0, rm/omega 0.5" in html


def test_damaged_answers_are_told_and_the_other_steps_can_be_read(tmp_path):
    folder = write_training(tmp_path / "rl", LOG)
    path = folder / "rollouts" / "step-000002.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=r"step-000002.parquet: it is damaged .*the other steps can still"):
        number_of(folder, 2)
    assert number_of(folder, 4) == 3


@pytest.mark.parametrize("columns", [4, 6, 8, 14, 30])
def test_the_table_of_completions_fills_its_width(columns):
    widths = [int(width.removesuffix("%")) for width in _widths(columns)]
    assert len(widths) == columns and sum(widths) == 100 and min(widths) > 0 and widths[1] >= widths[0] > 15


# ---- tokens ----


def test_tokens_are_coloured_by_advantages_and_by_the_distance_from_the_base(run):
    found = token_series(read_answer(run, 0, 0))
    assert [*found] == ["advantage: spread", "advantage: estimate", "log π - log base"]
    np.testing.assert_allclose(found["advantage: spread"], [3, 0, 0])
    np.testing.assert_allclose(found["advantage: estimate"], [0.75, 0.75, 0.75])
    np.testing.assert_allclose(found["log π - log base"], [0.5, 0, 1])


def test_the_strip_has_a_token_s_numbers_in_its_title(run):
    html = strip_html(read_answer(run, 0, 0), ["a ", "<b>", "c"], "log π - log base")
    assert "&lt;b&gt;" in html and "<b>" not in html and "nats" in html
    assert 'title="token 3, id 7\nadvantage: spread 0\nadvantage: estimate 0.75\nlog π - log base 1' in html


def test_without_a_tokenizer_tokens_go_by_their_ids(run):
    assert token_texts(run, (5, 6)) == ["5 ", "6 "]


# ---- the waterfall ----


def test_the_waterfall_leads_from_raw_rewards_to_the_advantage(run):
    """First answer: 1 + 0.5 · 2 = 2; the estimator takes 1.25, and `spread` has mean (3 + 0 + 0) / 3 = 1."""
    assert waterfall(read_answer(run, 0, 0), SOURCES) == [
        ("rm", 1.0, RELATIVE),
        ("0.5 × style", 1.0, RELATIVE),
        ("gate", 0.0, RELATIVE),
        ("reward", 2.0, TOTAL),
        ("estimator", -1.25, RELATIVE),
        ("spread", 0.25, RELATIVE),
        ("advantage", 1.0, TOTAL),
    ]


def test_a_transform_tells_which_component_it_changed(run):
    """Second answer: 0.5 + 0.5 · 4 = 2.5, and the gate takes 2 of it."""
    bars = waterfall(read_answer(run, 0, 1), SOURCES)
    assert bars[2] == ("gate: style", -2.0, RELATIVE) and bars[3] == ("reward", 0.5, TOTAL)
    assert math.isclose(sum(bar.value for bar in bars if bar.kind == RELATIVE), bars[-1].value)


def test_a_missing_reward_has_no_waterfall(run):
    assert waterfall(read_answer(run, 0, 2), SOURCES) == []


def test_the_figure_has_the_bars_with_room_for_their_numbers(run):
    figure = waterfall_figure(waterfall(read_answer(run, 0, 0), SOURCES))
    (bars,) = figure.data
    assert [*bars.x] == [1, 1, 0, 2, -1.25, 0.25, 1] and bars.text[0] == "+1" and bars.text[4] == "-1.25"
    assert [*figure.layout.xaxis.range] == pytest.approx([-0.6, 2.6])
    assert figure.layout.yaxis.ticktext[1] == "0.5 × style"


# ---- what the verb writes ----


def test_what_rl_writes_can_be_looked_at(rl, rl_world):
    """A learning reward, a transform, and a reward that is only watched."""
    gold = "rewardlab.benchmarks.garden:gold"
    spec = f"r2m(model={rl_world / 'rm'}, floor=0.3, learning_rate=1e-2, alpha=0, labels={gold}, groups=2)"
    words = ["--reward", spec, "--watch", f"gold={gold}", "--rollout_steps", 1, "--weight", "r2m=2"]
    words += ["--reward_transform", "missing_eos(reward=r2m, cost=1)", "--advantage_transform", "whiten"]
    code, _, err, folder = rl(*words)
    assert code == 0, err
    steps, sources = read_steps(folder), read_sources(folder)
    assert sources == Sources(("r2m",), ("gold",), {"r2m": 2.0})
    assert [*panels(steps, sources)] == ["reward", "components", "proxy and gold", "KL", "length", "entropy"]
    assert [*reward_panels("r2m", steps)][:3] == ["versions", "omega", "accuracy"]
    assert steps_of(folder) == [0, 1]
    answers = read_answers(folder, 0, 0, 100)
    unfinished = next(one for one in answers if not one.finished)
    labels = [bar.label for bar in waterfall(unfinished, sources)]
    assert labels == ["2 × r2m", "missing_eos: r2m", "reward", "estimator", "whiten", "advantage"]
    logged_mean = np.mean([total(one, sources) for one in answers])
    assert logged_mean == pytest.approx(series(steps, "reward")[1][0], abs=1e-5)
    one = read_answer(folder, 0, unfinished.position)
    assert "".join(token_texts(folder, one.tokens)).split() == one.answer.split()
    assert [*token_series(one)][:2] == ["advantage: whiten", "advantage: estimate"]
    assert yaml.safe_load((folder / "config.yaml").read_text())["rollout_steps"] == 1


def test_a_growing_run_shows_the_steps_that_were_kept_since(tmp_path):
    folder = write_training(tmp_path / "rl.partial", LOG, kept=(), finished=False, settings=SETTINGS)
    assert steps_of(folder) == []
    keep_answers(folder, 3)
    assert steps_of(folder) == [3]
