import math
import re
import shutil

import numpy as np
import pytest
from rewardlab.apps.inspector.run_list import stamp
from rewardlab.apps.inspector.tabs.metrics import METRICS
from rewardlab.apps.inspector.tabs.training import log as logs
from rewardlab.apps.inspector.tabs.training import queries as training
from rewardlab.apps.inspector.tabs.training import rollouts
from rewardlab.apps.inspector.tabs.training.log import Line, Panel, Sources, panels, series
from rewardlab.apps.inspector.tabs.training.queries import step_figure
from rewardlab.apps.inspector.tabs.training.rollouts import read_answer, read_answers, steps_of, token_texts, total
from rewardlab.apps.inspector.tabs.training.waterfall import RELATIVE, TOTAL, waterfall, waterfall_figure
from rewardlab.benchmarks.garden.models import tokenizer
from rewardlab.rm.errors import DataError, UsageError

from tests.apps.inspector.trainings import HOSTILE, SETTINGS, keep_answers, logged, write_training

LOG = [logged(step) for step in range(1, 5)]
SOURCES = Sources(("rm", "style"), ("gold",), {"style": 0.5})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_training(tmp_path_factory.mktemp("runs") / "rl", LOG)


def test_sources_are_those_of_the_settings_and_without_them_every_reward_counts(run, tmp_path):
    assert logs.read_sources(run) == SOURCES
    names = ("rm", "rm.safe", "style", "gold", "gold.kind", "length")  # the last one is added by a transform
    assert [SOURCES.weight(name) for name in names] == [1.0, 1.0, 0.5, 0.0, 0.0, 1.0]
    assert [SOURCES.watches(name) for name in ("rm", "gold", "gold.kind", "golden")] == [False, True, True, False]
    none = logs.read_sources(tmp_path)
    assert none == ((), (), {}) and none.weight("anything") == 1.0 and not none.watches("anything")
    for text in ("- a\n", "{", "reward: 3\n", "weight: [style]\n"):
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(DataError, match=r"config.yaml is damaged"):
            logs.read_sources(tmp_path)


def test_the_line_that_is_being_written_is_left_for_later(tmp_path):
    folder = write_training(tmp_path / "rl", LOG[:2], kept=())
    with (folder / "steps.jsonl").open("a") as lines:
        lines.write('{"step": 3, "rew')
    assert series(logs.read_steps(folder), "step")[1] == [1, 2]
    before = stamp(folder, ["steps.jsonl"])
    with (folder / "steps.jsonl").open("a") as lines:
        lines.write('ard": 0.5}\n')
    assert stamp(folder, ["steps.jsonl"]) != before
    assert series(logs.read_steps(folder), "reward") == ([1, 2, 3], [0.1, 0.2, 0.5])
    with pytest.raises(DataError, match=r"steps.jsonl cannot be read"):
        logs.read_steps(tmp_path)


def test_a_damaged_line_costs_one_step_and_is_named(tmp_path):
    folder = write_training(tmp_path / "rl", LOG[:2], kept=())
    first, second = (folder / "steps.jsonl").read_text().splitlines()
    for length, line in enumerate(("{", "3", "[1]", "\x00", f'{{"step": 1{"0" * 400}}}')):
        (folder / "steps.jsonl").write_text(f"{first}\n{line}\n{second}\n" + "\n" * length)
        steps, damaged = logs.read_steps(folder), logs.damaged_lines(folder)
        assert series(steps, "step")[1] == [1, 2] and damaged[0] == 2, line
        html = training.progress_html(steps, SOURCES, False, damaged[:1])
        assert "1 damaged line of steps.jsonl left out: 2." in html


def test_a_mean_is_over_the_steps_before():
    assert training.moving_mean([1.0, 2.0, 6.0], 1) == [1.0, 2.0, 6.0]
    assert training.moving_mean([1.0, 2.0, 6.0], 9) == [1.0, 1.5, 3.0]
    with pytest.raises(UsageError, match="must be at least 1 step, got 0"):
        training.moving_mean([1.0], 0)


def test_figures_are_of_what_was_logged_with_their_definitions():
    found = panels(LOG, SOURCES)
    assert [*found] == ["reward", "components", "proxy and gold", "KL", "length", "entropy"]
    assert [line.name for line in found["components"].lines] == ["rm", "style", "gold"] == logs.components(LOG)
    assert [line.column for line in found["proxy and gold"].lines] == ["reward", "rewards/gold/mean"]
    assert [*found.keys() - panels(LOG, Sources(("rm", "style", "gold"), (), {})).keys()] == ["proxy and gold"]
    assert panels([], SOURCES) == {}
    for name, panel in found.items():
        assert step_figure(LOG, panel).layout.meta == {"title": panel.title, "definition": METRICS[name]}


def test_ends_are_means_of_a_tenth_with_the_error_of_their_difference():
    values = [0.0, 1.0] * 10 + [5.0, 6.0] * 10  # a tenth of 40 are 4: 0.5 and 5.5, variance 1/3 each
    first, last, error = logs.change_of([*values, float("nan")])
    assert (first, last) == (0.5, 5.5) and error == pytest.approx(math.sqrt(2 / 12))
    assert logs.change_of([1.0]) is None and logs.change_of([1.0, 3.0])[:2] == (1.0, 3.0)
    html = training.changes_html(LOG, LOG[:2], panels(LOG, SOURCES), "<one>", "two")
    assert html.count(">reward <") == 2 and "trained on" not in html, "a column is listed once for each run"
    assert "+0.3<" in html and "+0.1<" in html and "&lt;one&gt;" in html and "<one>" not in html
    assert "±" not in html, "two steps have no error"
    model = [{"step": step, "loss": 1 / step, "eval_loss": 2 / step} for step in (1, 2)]
    html = training.changes_html(model, (), panels(model, SOURCES), "one", None)
    assert "Loss, train" in html and "Loss, held-out" in html


def test_proxy_and_gold_are_standardised_and_a_second_run_is_dotted():
    panel = panels(LOG, SOURCES)["proxy and gold"]
    proxy, gold = step_figure(LOG, panel, standardised=True).data
    assert [*proxy.y] == pytest.approx([-1.342, -0.447, 0.447, 1.342], abs=1e-3) and [*gold.y] == pytest.approx(
        [*proxy.y][::-1]
    )
    names = {(trace.name, trace.line.dash, len(trace.x)) for trace in step_figure(LOG, panel, beside=LOG[:2]).data}
    assert ("trained on, second run", "dot", 2) in names and ("trained on", "solid", 4) in names and len(names) == 4


def test_a_watched_reward_is_dashed_and_stands_against_the_kl():
    panel = panels(LOG, SOURCES)["proxy and gold"]
    proxy, gold = step_figure(LOG, panel).data
    assert ([*proxy.x], [*proxy.y], proxy.line.dash) == ([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4], "solid")
    assert [*gold.y] == [0.9, 0.8, 0.7, 0.6] and gold.line.dash == "dash" and gold.name == "gold (watched)"
    proxy, gold = training.kl_figure(LOG, panel).data
    assert [*proxy.x] == [0.25, 0.5, 0.75, 1.0] == [*gold.x] and [*gold.y] == [0.9, 0.8, 0.7, 0.6]


def test_the_kl_has_its_standard_error_unless_it_is_smoothed_and_gaps_interrupt_the_band(monkeypatch):
    panel = panels(LOG[:2], SOURCES)["KL"]
    band, kl = step_figure(LOG[:2], panel).data
    assert [*band.x] == [1, 2, 2, 1] and [*band.y] == [0.375, 0.625, 0.375, 0.125] and [*kl.y] == [0.25, 0.5]
    (alone,) = step_figure(LOG[:2], panel, 2).data
    assert [*alone.y] == [0.25, 0.375]
    log = [logged(step) for step in range(1, 6)]  # 1 and 2 have an error, 3 has none, 4 has one, 5 has no KL at all
    del log[2]["watch/kl_stderr"], log[4]["watch/kl"], log[4]["watch/kl_stderr"]
    band, kl = step_figure(log, panel).data
    assert [*band.x] == [1, 2, 2, 1, None, 4, 4] and [*band.y] == [0.375, 0.625, 0.375, 0.125, None, 1.125, 0.875]
    assert [*kl.x] == [1, 2, 3, 4]
    monkeypatch.setattr(training, "MOST_POINTS", 2)
    log = [logged(step) if step % 2 else {"step": step, "reward": 0.0} for step in range(1, 9)]
    band, kl = step_figure(log, panel).data  # every second of 8 steps has a KL: half of 4 points are drawn
    assert [*band.x] == [1, 5, 5, 1] and [*kl.x] == [1, 5]


def test_names_in_figures_are_text_long_logs_are_thinned_and_progress_has_weights(monkeypatch):
    figure = step_figure([{"step": 1.0, "a": 1.0, "b": 2.0}], Panel("R", "", (Line("a", HOSTILE), Line("b", "<b>"))))
    assert [trace.name for trace in figure.data] == ["&lt;img src=x onerror=window.hacked=1&gt;", "&lt;b&gt;"]
    monkeypatch.setattr(training, "MOST_POINTS", 2)
    (trace,) = step_figure(LOG, Panel("Reward", "mean", (Line("reward", "reward"),))).data
    assert [*trace.x] == [1, 3] and trace.name == "reward, 1 step of 2"
    html = training.progress_html(LOG, SOURCES, growing=False)
    assert "step 4</b>, finished" in html and "1 × rm, 0.5 × style, gold (watched)" in html
    assert "running or cut off" in training.progress_html(LOG, SOURCES, growing=True)
    assert "No step is logged yet" in training.progress_html([], SOURCES, growing=True)


def test_what_a_reward_logs_of_itself_is_a_panel_each():
    log = [row | {"rm/omega": 1.0 - row["step"] / 10, "rm/head_version": row["step"], "rmx/calls": 9.0} for row in LOG]
    found = logs.reward_panels(log, SOURCES)
    assert [*found] == ["rm/head_version", "rm/omega"] and "rmx/calls" in logs.columns(log)
    assert [*step_figure(log, found["rm/head_version"]).data[0].y] == [1, 2, 3, 4]
    html = training.changes_html(log, (), found, "run", None)
    assert "rm/omega</th><td>0.9</td><td>0.6</td>" in html
    assert logs.reward_panels(LOG, SOURCES) == {}


def test_steps_are_those_whose_answers_were_kept(run, tmp_path):
    assert steps_of(run) == [0, 2, 4] and rollouts.number_of(run, 2) == 3
    assert [rollouts.nearest([0, 2, 4], step) for step in (0, 1, 3.2, 99)] == [0, 0, 4, 4]
    with pytest.raises(UsageError, match="no completions of step 3 are stored; there are steps 0 to 4"):
        rollouts.number_of(run, 3)
    growing = write_training(tmp_path / "rl.partial", LOG, kept=(), finished=False, settings=SETTINGS)
    assert steps_of(growing) == []
    keep_answers(growing, 2)
    assert steps_of(growing) == [2]
    keep_answers(growing, 4)
    path = growing / "rollouts" / "step-000002.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=r"step-000002.parquet: it is damaged .*the other steps can still"):
        rollouts.number_of(growing, 2)
    assert rollouts.number_of(growing, 4) == 3


def test_the_table_has_rewards_after_the_last_transform_and_the_mean_advantage(run):
    rows = read_answers(run, 2, 0, 10)
    html = rollouts.rows_html(rows, SOURCES, 1, "?tab=training&answer=")
    heads, *table = [re.sub("<[^>]*>", "|", row).strip("|") for row in html.split("<tr")[1:]]
    heads, *table = [re.split(r"\|+", row.split(">", 1)[-1].strip("|")) for row in (heads, *table)]
    assert heads == ["prompt", "completion", "rm", "style", "gold", "trained on", "advantage", "finished"]
    assert table[0] == ["why?", "because it is", "1.000", "2", "3", "2.000", "1.000", "yes"]
    assert table[1][2:] == ["0.500", "0", "0", "0.500", "-0.750", "no"]
    assert table[2][2:] == ["missing", "0", "0", "missing", "0.000", "yes"]
    assert [answer.position for answer in read_answers(run, 2, 1, 1)] == [1]
    assert html.count('class="mine"') == 1 and "?tab=training&amp;answer=2" in html and "<img" not in html


def test_an_answer_has_everything_that_was_kept_of_it_as_text(run):
    first = read_answer(run, 4, 0)
    assert first.tokens == (5, 6, 7) and first.rewards["gate"] == {"rm": 1.0, "style": 2.0, "gold": 3.0}
    assert total(first, SOURCES) == 2.0 and total(read_answer(run, 4, 1), SOURCES, "sources") == 2.5
    assert rollouts.advantage(first) == 1.0 and first.versions == {"rm/head": 4, "rm/omega": 0.5}
    with pytest.raises(UsageError, match="step 4 has 3 completions, and none at index 3"):
        read_answer(run, 4, 3)
    html = rollouts.answer_html(read_answer(run, 0, 1), SOURCES)
    assert "&lt;img src=x" in html and "<img" not in html and "cut off at the longest length" in html
    assert "style <span" in html and "× 0.5" in html and "gold <span" in html and "watched" in html
    assert "Rated by rm/head 0, rm/omega 0.5" in html


def test_tokens_are_coloured_by_advantages_and_by_the_distance_from_the_base(run):
    answer = read_answer(run, 0, 0)
    found = {name: values.tolist() for name, values in rollouts.token_series(answer).items()}
    expected = {"advantage: spread": [3, 0, 0], "advantage: estimate": [0.75] * 3, "log π - log base": [0.5, 0, 1]}
    assert [*found] == [*expected] and found == {name: pytest.approx(row) for name, row in expected.items()}
    html = rollouts.strip_html(answer, ["a ", "<b>", "c"], "log π - log base")
    assert "&lt;b&gt;" in html and "<b>" not in html and "nats" in html
    assert 'title="token 3, id 7\nadvantage: spread 0\nadvantage: estimate 0.75\nlog π - log base 1' in html
    assert token_texts(run, (5, 6)) == ["5 ", "6 "], "without a tokenizer"


def test_tokens_have_texts_as_soon_as_the_run_has_a_tokenizer(run):
    """They stayed ids where the run was opened before it was finished."""
    words = tokenizer()
    ids = words("bees honey", add_special_tokens=False)["input_ids"]
    assert token_texts(run, ids) == [f"{token} " for token in ids]
    words.save_pretrained(run / "policy")
    assert "".join(token_texts(run, ids)).split() == ["bees", "honey"]
    shutil.rmtree(run / "policy")


def test_the_waterfall_leads_from_raw_rewards_to_the_advantage(run):
    """First answer: 1 + 0.5 · 2 = 2; the estimator takes 1.25, and `spread` has mean (3 + 0 + 0) / 3 = 1."""
    bars = waterfall(read_answer(run, 0, 0), SOURCES)
    assert [bar.label for bar in bars if bar.kind == RELATIVE] == ["rm", "0.5 × style", "gate", "estimator", "spread"]
    assert [bar.label for bar in bars if bar.kind == TOTAL] == ["reward", "advantage"]
    figure = waterfall_figure(bars)
    (drawn,) = figure.data
    assert [*drawn.x] == [1, 1, 0, 2, -1.25, 0.25, 1] and drawn.text[0] == "+1" and drawn.text[4] == "-1.25"
    assert [*figure.layout.xaxis.range] == pytest.approx([-0.6, 2.6])  # with room for the numbers
    assert figure.layout.yaxis.ticktext[1] == "0.5 × style"


def test_a_transform_tells_which_component_it_changed_and_a_missing_reward_has_no_waterfall(run):
    """Second answer: 0.5 + 0.5 · 4 = 2.5, and the gate takes 2 of it."""
    bars = waterfall(read_answer(run, 0, 1), SOURCES)
    assert bars[2] == ("gate: style", -2.0, RELATIVE) and bars[3] == ("reward", 0.5, TOTAL)
    assert math.isclose(sum(bar.value for bar in bars if bar.kind == RELATIVE), bars[-1].value)
    assert waterfall(read_answer(run, 0, 2), SOURCES) == []


@pytest.mark.slow
def test_what_rl_writes_can_be_looked_at(rl, rl_world):
    """A learning reward, a transform, and a reward that is only watched."""
    gold = "rewardlab.benchmarks.garden:gold"
    spec = f"r2m(model={rl_world / 'rm'}, floor=0.3, learning_rate=1e-2, alpha=0, labels={gold}, groups=2)"
    words = ["--reward", spec, "--watch", f"gold={gold}", "--rollout_steps", 1, "--weight", "r2m=2"]
    words += ["--reward_transform", "missing_eos(reward=r2m, cost=1)", "--advantage_transform", "whiten"]
    code, _, err, folder = rl(*words)
    assert code == 0, err
    sources, answers = logs.read_sources(folder), read_answers(folder, 0, 0, 100)
    assert sources == Sources(("r2m",), ("gold",), {"r2m": 2.0})
    unfinished = next(one for one in answers if not one.finished)
    labels = [bar.label for bar in waterfall(unfinished, sources)]
    assert labels == ["2 × r2m", "missing_eos: r2m", "reward", "estimator", "whiten", "advantage"]
    logged_mean = series(logs.read_steps(folder), "reward")[1][0]
    assert np.mean([total(one, sources) for one in answers]) == pytest.approx(logged_mean, abs=1e-5)
    one = read_answer(folder, 0, unfinished.position)
    assert "".join(token_texts(folder, one.tokens)).split() == one.answer.split()
