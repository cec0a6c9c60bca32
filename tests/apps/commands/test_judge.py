"""`rewardlab judge`: judges behind a server of rewardlab, with everything that a run folder holds."""

import json

import pyarrow.parquet as pq
import pytest
import yaml
from rewardlab.apps.commands.judge.run import read_materials
from rewardlab.apps.commands.judge.settings import JudgeConfig
from rewardlab.apps.inspector.tabs.judgments.queries import open_run
from rewardlab.benchmarks.baselines import longest
from rewardlab.judges.backends.settings import ChatConfig
from rewardlab.judges.open import Materials, open_judges
from rewardlab.judges.retrieval.settings import RetrievalConfig
from rewardlab.tests.stand_ins.chat_server import ChatServer

from tests.apps.judging import call, lengths, longer, shown, write

PRICED = ["--prompt_price", 1, "--completion_price", 10]
RULE = {"id": "r1", "type": "must", "criterion": "It is long.", "test": "Count its letters."}
BIGGEN = {"criteria": "Is it long?"} | {f"score{n}_description": f"{n} letters." for n in range(1, 6)}


def test_a_run_has_what_eval_writes_and_every_judgment_with_what_it_rests_on(judge, capsys):
    code, facts, err, folder = judge(*PRICED)
    assert code == 0, err
    assert {path.name for path in folder.iterdir()} == {
        "config.yaml", "manifest.json", "summary.json", "report.md", "report.png", "calibration.png",
        "items.parquet", "scores.parquet", "judgments.parquet", "replies",
    }  # fmt: skip
    assert [path.name for path in (folder / "replies").iterdir()] == ["replies.jsonl"]
    rows = pq.read_table(folder / "judgments.parquet").to_pylist()
    assert len(rows) == 8 and {row["scorer"] for row in rows} == {"qwen pairwise"}
    assert sorted(rows[0]["orders"]) == [[0, 1], [1, 0]] and rows[0]["reasoning"] == "counted\n\ncounted"
    assert [json.loads(text)["winner"] for text in rows[0]["raw"]] in (["A", "B"], ["B", "A"])
    tokens = sum(row["prompt_tokens"] for row in rows), sum(row["completion_tokens"] for row in rows)
    assert sum(row["cost"] for row in rows) == pytest.approx((tokens[0] + 10 * tokens[1]) / 1e6)
    assert facts["overall"]["qwen pairwise"]["value"] == 1.0
    assert "qwen pairwise" in [one.name for one in open_run(folder).scorers]  # as the inspector does
    assert call(capsys, "verify", folder)[0] == 0


def test_the_report_has_flips_and_first_positions_and_a_place_is_no_worse_than_chance(judge, capsys):
    with ChatServer(answer=lambda asked: json.dumps({"winner": "A"})) as world:
        code, facts, err, folder = judge(at=world)
    assert code == 0, err
    told = facts["judges"]["qwen pairwise"]
    assert (told["flip_rate"], told["asked_in_both_orders"]) == (1.0, 8)
    assert (told["first_position_rate"], told["comparisons"]) == (1.0, 16)
    report = (folder / "report.md").read_text()
    assert "Flip rate 100.0% of 8 pairs asked in both orders." in report
    assert "First-position rate 100.0% of 16 comparisons." in report
    assert "random with the same ties (+0.0 [+0.0, +0.0])" in report
    sentence = next(line for line in report.split("\n") if "overall: qwen pairwise" in line)
    assert sentence.index("not significantly different from") < sentence.index("random with the same ties")
    assert " random (" not in sentence and call(capsys, "verify", folder)[0] == 0


def test_judges_together_are_one_judge(judge):
    code, facts, err, _ = judge("--together", "panel(how=majority)", model=("a", "b", "c"))
    assert code == 0 and facts["judges"]["panel"]["requests"] == 3 * 16, err
    code, facts, err, _ = judge("--kind", "pointwise", "pairwise", "--together", "agreed=consistent", output="two")
    assert code == 0 and list(facts["judges"]) == ["agreed"], err
    code, facts, err, _ = judge("--together", "cascade(gap=0.5)", model=("cheap", "strong"), output="three")
    assert code == 0 and facts["models"]["strong"]["calls"] == 0 and facts["models"]["cheap"]["calls"] == 16, err


def test_a_routing_judge_chooses_by_a_guideline_before_it_asks(judge):
    """Questions 0 to 2 go to the strong judge, 6 and 7 for want of a choice."""

    def answer(asked):
        if not shown(asked, "metadata"):
            return longer(asked)
        number = int(shown(asked, "instruction").split()[-1])
        return "Hard to say." if number > 5 else json.dumps({"choice": "STRONG" if number < 3 else "CHEAP"})

    routed = ("--together", "mixed=route(rule=guideline(model=small), threshold=0.5)")
    with ChatServer(answer=answer) as world:
        code, facts, err, folder = judge(*routed, at=world, model=("small", "large"))
        assert code == 0, err
        assert facts["judges"]["mixed"]["routes"] == {"routed": 8, "to_strong": 5, "undecided": 2}
        assert facts["models"]["large"]["calls"] == 2 * 5 and facts["models"]["small"]["calls"] == 8 + 2 * 3
        assert (
            "5 of 8 cases went to the strong judge, 2 of them as the rule was undecided"
            in (folder / "report.md").read_text()
        )
        rows = pq.read_table(folder / "judgments.parquet").to_pylist()
        assert {row["criteria"][0]["name"] for row in rows} == {"routed"} and rows[0]["orders"][0] == []
    for words, message in (
        ("route(threshold=0.5)", "name the rule, as in route(rule=guideline"),
        (
            "route(rule=guideline(long=5), threshold=0.5)",
            "no argument 'long'; the arguments are model, longest, prompt",
        ),
        ("route(rule=none/here, threshold=0.5)", "no routing rule"),
    ):
        code, _, err, folder = judge("--together", words, model=("small", "large"), output="refused")
        assert code in (2, 3) and message in err and not folder.exists(), err


def test_a_probe_is_fitted_to_two_judges_of_a_run_and_routes(judge, capsys, tmp_path):
    """The small judge is wrong about code, and only there: the probe sends code to the large one."""
    rows = [row | {"prompt": f"{'Python' if n % 2 else 'A tale'} {n}?"} for n, row in enumerate(lengths(24))]
    data = write(tmp_path / "mixed.jsonl", rows)

    def small_is_wrong(asked):
        right = json.loads(longer(asked))["winner"]
        wrong = asked["model"] == "small" and "Python" in shown(asked, "instruction")
        return json.dumps({"winner": {"A": "B", "B": "A"}[right] if wrong else right})

    with ChatServer(answer=small_is_wrong) as world:
        code, facts, err, run = judge(at=world, model=("small", "large"), data=data)
        assert code == 0 and facts["judges"]["small pairwise"]["accuracy"] == 0.5, err
        fit = ("judge", "--fit_route", f"{run}:small pairwise", f"{run}:large pairwise", "--output")
        code, facts, err = call(capsys, *fit, tmp_path / "probe")
        assert code == 0 and (facts["cases"], facts["needed"], facts["left_out"]) == (24, 12, 0), err
        together = f"mixed=route(rule={tmp_path / 'probe'}, budget=0.5)"
        code, facts, err, _ = judge("--together", together, at=world, model=("small", "large"), data=data, output="two")
    assert code == 0 and facts["judges"]["mixed"]["accuracy"] == 1.0, err
    assert facts["judges"]["mixed"]["routes"] == {"routed": 24, "to_strong": 12, "undecided": 0}
    code, _, err = call(capsys, "judge", "--fit_route", run, run, "--output", tmp_path / "no")
    assert code == 2 and "write RUN:JUDGE with one of the run's judges: small pairwise, large pairwise" in err


def test_a_rubric_by_hand_and_one_for_each_case(judge, tmp_path):
    """`short 1` has seven letters and meets nothing; by case, the case without a rubric is an abstention."""
    code, facts, err, folder = judge("--kind", "rubric", "--rubric", "instruction_following")
    assert code == 0 and facts["judges"]["qwen rubric"]["accuracy"] == 1.0, err
    rows = pq.read_table(folder / "judgments.parquet").to_pylist()
    assert "a long answer 0" in {one["evidence"] for row in rows for one in row["criteria"]}
    own = write(tmp_path / "own.jsonl", [{"case": f"p{n}", "rubric": {"rules": [RULE]}} for n in range(7)])
    code, facts, err, _ = judge("--kind", "rubric", "pairwise", "--rubric", own, "--score", "weighted", output="own")
    assert code == 0 and facts["judges"]["qwen rubric"]["reasons"] == {"no rubric": 1}, err


def test_a_score_that_does_not_fit_a_rubric_is_refused_before_any_request(judge, server, tmp_path):
    harm = [{"criterion": "Invents a dose.", "points": -1}]
    rows = [{"case": f"p{n}", "rubric": {"rules": [RULE]}} for n in range(7)] + [{"case": "p7", "rubrics": harm}]
    own, before = write(tmp_path / "own.jsonl", rows), server.asked.total()
    code, _, err, folder = judge("--kind", "pairwise", "rubric", "--rubric", own, "--score", "anchored")
    assert code == 2 and not folder.exists()
    assert "does not fit the rubric of case 'p7': anchored scores need criteria with positive" in err
    assert server.asked.total() == before


def test_a_file_of_rubrics_or_levels_for_no_case_is_refused_before_any_request(judge, server, tmp_path):
    own = write(tmp_path / "own.jsonl", [{"case": f"s/p{n}", "rubric": {"rules": [RULE]}} for n in range(7)])
    levels = write(tmp_path / "levels.jsonl", [{"id": "0", "score_rubric": BIGGEN}])
    before = server.asked.total()
    for words in (["rubric", "--rubric", own], ["pairwise", "--rubric", own, "--audit"]):
        code, _, err, folder = judge("--kind", *words)
        assert code == 3 and "none of its 7 rows belongs to one of the 8 cases" in err, err
        assert "named like 's/p0' and the cases like 'p0'" in err and not folder.exists()
    code, _, err, _ = judge("--kind", "pointwise", "--levels", levels)
    assert code == 3 and "levels.jsonl: none of its 1 rows" in err and server.asked.total() == before, err


def test_a_checklist_and_levels_of_all_cases_or_of_each_are_read(judge, server, tmp_path):
    """Answers have seven letters and more, so the server's points are out of the scale of five."""
    (tmp_path / "list.toml").write_text('[[questions]]\nid = "q1"\ntext = "Is it long?"\n')
    code, facts, err, _ = judge("--kind", "checklist", "--checklist", tmp_path / "list.toml", output="list")
    assert code == 0 and facts["judges"]["qwen checklist"]["answered"] == 8, err
    toml = "".join(f'{name} = "{text}"\n' for name, text in BIGGEN.items())
    (tmp_path / "levels.toml").write_text(toml)
    code, facts, err, _ = judge("--kind", "pointwise", "--levels", tmp_path / "levels.toml")
    assert code == 0 and facts["judges"]["qwen pointwise"]["reasons"] == {"a score out of range": 8}, err
    assert shown(server.requests[-1], "scale").startswith("Is it long?\n1: 1 letters.")
    own = write(tmp_path / "own.jsonl", [{"id": f"p{n}", "score_rubric": BIGGEN} for n in range(7)])
    code, facts, err, _ = judge("--kind", "pointwise", "--levels", own, output="own")
    reasons = facts["judges"]["qwen pointwise"]["reasons"]
    assert own in yaml.safe_load((tmp_path / "own" / "config.yaml").read_text())["data_sha256"]
    assert code == 0 and reasons == {"a score out of range": 7, "no rubric": 1}, err


def test_a_reward_model_is_a_judge_too(judge, tmp_path, capsys):
    rm = tmp_path / "rm"
    data = write(tmp_path / "train.jsonl", lengths(20))
    assert call(capsys, "train", "--kind", "linear", "--data", data, "--output", rm)[0] == 0
    kinds = ["--kind", f"cheap=reward_model(model={rm})", "pairwise", "--together", "cascade(gap=100)"]
    code, facts, err, _ = judge(*kinds)
    assert code == 0 and facts["models"]["qwen"]["calls"] == 16, err  # a gap that no reward reaches


def test_a_judge_from_anywhere_has_the_name_that_it_is_given():
    anywhere = "rewardlab.benchmarks.baselines:longest"
    named, own = open_judges([f"mine={anywhere}", anywhere], None, {}, Materials())
    assert (named.name, own.name) == ("mine", "longest")


def test_a_reward_models_code_runs_only_where_that_was_asked_for(monkeypatch):
    asked = []

    def opened(source, **options):
        asked.append(options)
        return longest()

    monkeypatch.setattr("rewardlab.apps.commands.judge.run.open_scorer", opened)
    for trusted in (False, True):
        given = read_materials(JudgeConfig(), ChatConfig(trust_remote_code=trusted).loading, RetrievalConfig())
        open_judges([f"reward_model(model=rm-{trusted})"], None, {}, given)
    assert asked == [{"objective": None}, {"objective": None, "trust_remote_code": True}]


def test_a_case_that_cannot_be_used_is_refused_with_its_place(judge, tmp_path):
    for row, message in (
        ({"answers": ["a", "b"], "best": 2}, "best (2,) is not within answers 0 to 1"),
        (
            {"answers": ["a", "b"], "best": "0"},
            "'best' must be the index of the right answer or a list of indices, got '0'",
        ),
        ({"answers": "a", "best": 0}, "'answers' must be a list of texts, or of lists of messages, got a"),
        ({"answers": ["a", "b"]}, "no column 'best'"),
        ({"answers": ["a", "b"], "best": 0, "authors": "x"}, "'authors' must be a list with the name of each"),
        ({"answers": ["a", "b"], "best": 0, "authors": ["x"]}, "1 authors for 2 answers"),
    ):
        code, _, err, folder = judge(data=write(tmp_path / "bad.jsonl", [{"prompt": "q"} | row]))
        assert code == 3 and "bad.jsonl" in err and message in err and not folder.exists(), row


def test_cases_of_many_answers_stand_beside_pairs_and_so_many_are_drawn_in_their_order(judge, tmp_path):
    row = {"id": "three", "prompt": "which?", "answers": ["tiny", "the longest of all", "middling one"], "best": 1}
    code, facts, err, _ = judge(data=write(tmp_path / "mixed.jsonl", [*lengths(2), row]))
    assert code == 0 and facts["cases"] == 3 and facts["judges"]["qwen pairwise"]["requests"] == 2 * 2 + 6, err
    code, facts, err, folder = judge("--limit", 3, output="few")
    ids = pq.read_table(folder / "items.parquet")["case"].to_pylist()
    assert code == 0 and facts["cases"] == 3 and ids == sorted(ids), err
    assert "3 of 8 cases were sampled with seed 0." in (folder / "report.md").read_text()
