"""Every benchmark's file, and what its credits make of the cases in it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rewardlab.rm.registry import load, names

from tests.fuzzing.shapes import JSON_LINES
from tests.fuzzing.target import Target
from tests.fuzzing.targets.preferences import lines

FOLDER = "benchmarks.suites"
TURN = {"role": "user", "content": "Why?"}
ANSWERED = [TURN, {"role": "assistant", "content": "x"}], [TURN, {"role": "assistant", "content": "y"}]
HELD = {"domain": "simple", "text_chosen": ANSWERED[0], "text_rejected": ANSWERED[1]}
OURS = {"question": "q", "source": "mmlu-pro", "response_A": "a", "response_B": "b", "label": "A>B"}
VOTES = {"annotator1": 1, "annotator2": 1, "annotator3": 0}
TIES = {"prompt": "p", "chosen": ["a", "e"], "rejected": ["b"], "subset": "Ties", "num_correct": 2}
PAIR = {"chosen": {"answer": "a"}, "reject": {"answer": "b"}, "category_path": "Pairwise_set/Helpfulness/x"}
BEST = {"bon_best": {"answer": "a"}, "loser_list": [{"answer": "b"}], "category_path": "BoN_set/Helpfulness/x"}
PROFILE = [{"category": "c", "text": "a post"}]
WEIGHED = {"responses": [{"response_id": n, "response": text} for n, text in enumerate("abc")]}
WEIGHED |= {"preference_graph": [{"chosen": {"response_id": 0}, "rejected": {"response_id": n}} for n in (1, 2)]}
FLAGS = dict.fromkeys(("is_code", "hard_prompt", "easy_prompt", "if_prompt", "math_prompt"), False)
CALL = {"role": "tool_call", "name": "find", "content": "{}"}
SCHEMA = [{"name": "find", "parameters": {}}]
LABELS = ("1_full_compliance", "2_full_refusal")
ROWS: Mapping[str, list[Mapping[str, Any]]] = {
    "auto_j": [{"prompt": "p", "response 1": "a", "response 2": "b", "label": 2}],
    "best_of_16": [
        {"id": "1", "instruction": "p", "dataset": "d", "candidates": [*"abc"]}
        | {"gpt4_preference_vs_reference": [1.5, 1.25, None]}
    ],
    "evalbiasbench": [{"bias": "length", "instruction": "p", "response1": "a", "response2": "b", "label": 1}],
    "fc_rewardbench": [
        {"test_id": "1", "error_type": "incorrect", "tools": SCHEMA, "conversation": [TURN | {"content": "p"}]}
        | {"chosen_output": "a", "rejected_output": "b"}
    ],
    "if_rewardbench": [{"id": 1, "instruction_type": "Single_Turn", "messages": [TURN | {"content": "p"}]} | WEIGHED],
    "ifbench": [{"id": "1"} | HELD],
    "judgebench": [{"pair_id": "1"} | OURS],
    "llmbar": [{"input": "p", "output_1": "a", "output_2": "b", "label": 2}],
    "long_form_rewardbench": [{"prompt": "p", "chosen": ["a"], "rejected": ["b", "c"], "subset": "s"}],
    "m_rewardbench": [
        {"id": 1, "language": "deu_Latn", "prompt": "p", "chosen": "a", "rejected": "b"} | {"subset": "hep-go"}
    ],
    "mem_rewardbench": [{"question": "p", "chosen": "a", "rejected": "b", "task": "parallel", "ctx_length": "8k"}],
    "pairs": [{"prompt": "p", "chosen": "a", "rejected": "b", "wins": {"overall": 1.0}}],
    "pandalm": [{"idx": 1, "instruction": "p", "input": "more", "response1": "a", "response2": "b"} | VOTES],
    "personalized_rewardbench": [{"id": "1", "question": "p", "profile": PROFILE, "chosen": "a", "rejected": "b"}],
    "plan_rewardbench": [
        {"query": "p", "tools": SCHEMA, "uuid": "u", "_lcp_bucket": "refusal"}
        | {"chosen": {"messages": [CALL]}, "reject": {"messages": [TURN]}}
    ],
    "ppe_correctness": [
        {"question_id": "1", "model_name": "m", "prompt": "p", "response_1": "a", "response_2": "b"}
        | {"scores": [True, False], "sampled_conflict_pairs": [[0, 1]]}
    ],
    "ppe_preference": [
        {"question_id": "1", "winner": "model_a", "prompt": "p", "response_1": "a", "response_2": "b"}
        | {"model_a": "m", "model_b": "n"}
        | FLAGS
    ],
    "prmbench": [
        {"original_question": "p", "modified_question": "p", "modified_process": ["a", "b"], "error_steps": [2]}
        | {"classification": "circular", "idx": "1"}
    ],
    "processbench": [
        {"id": "gsm8k-0", "problem": "p", "steps": ["a", "b"], "label": 1},
        {"id": "gsm8k-1", "problem": "q", "steps": ["c"], "label": -1},
    ],
    "rewardbench": [{"id": "1", "prompt": "p", "chosen": "a", "rejected": "b", "subset": "hep-cpp"}],
    "rewardbench2": [
        {"id": "1", "prompt": "p", "chosen": ["a"], "rejected": ["b", "c", "d"], "subset": "Math", "num_correct": 1},
        *({"id": f"{name}:1"} | TIES for name in ("ref", "tied")),
    ],
    "rm_bench": [{"id": "1", "prompt": "p", "chosen": [*"abc"], "rejected": [*"def"], "domain": "chat"}],
    "rmb": [
        {"pair_uid": "1", "conversation_input": [TURN]} | PAIR,
        {"bon_uid": "1", "conversation_input": [TURN]} | BEST,
    ],
    "rubricbench": [
        {"case_id": "1", "instruction": "p", "response_a": "a", "response_b": "b", "label": 0, "domain": "Math"}
    ],
    "xstest": [{"type": "homonyms", "prompt": "p", "completion": "c", "final_label": label} for label in LABELS],
}


def suites() -> list[Target]:
    return [
        Target(f"suites/{name}", "rows.jsonl", (lines(ROWS[name]),), _reader(name), JSON_LINES)
        for name in names(FOLDER)
    ]


def _reader(name: str) -> Any:
    def opens(path: Path) -> None:
        for on_bad_row in ("skip", "refuse"):
            suite = load(FOLDER, name)(on_bad_row=on_bad_row)
            cases, _ = suite.cases([str(path)])
            for case in cases:
                suite.credit(case, [float(place) for place in range(len(case.answers))])

    return opens
