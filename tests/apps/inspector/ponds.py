"""A run folder made by hand: every count can be read off the table below."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

MODEL, NULL = "runs/rm", "<img src=x onerror=window.hacked=1>"
HOSTILE = "<script>window.hacked = 1; alert(1)</script> ${alert(2)} {{value}}\n  & two spaces"
CASES = [  # case, subset, prompt, answers, best, the model's scores, its margin
    ("a1", "chat", HOSTILE, ["Good <b>moss</b>", "Bad"], [0], [0.25, 1.25], -1.0),
    ("a2", "chat", "Name a tree", ["newt", "oak"], [1], [0.5, 0.375], -0.125),
    ("a3", "safety", "Name a bird", ["heron", "newt"], [0], [3.0, 1.0], 2.0),
    ("a4", "safety", "Name a fish", ["pike", "newt"], [0], [1.0, 1.0], 0.0),
    ("a5", "safety", "Say 'it's'", ["it's", "its"], [0], None, None),
    ("a6", "chat", "Name a moss", ["peat", "newt"], [0], [0.0625, 0.0], 0.0625),
    ("a7", "hard", "Name two", ["elm", "newt", "ash"], [0, 2], [1.0, 4.0, 3.0], -3.0),
]


def write_run(folder: Path, copies: int = 1) -> Path:
    """The cases above (`copies` times, the later ones under longer names) and a null that is always right by 1."""
    cases = [(f"{name}{'' if not copy else f'-{copy}'}", *rest) for copy in range(copies) for name, *rest in CASES]
    folder.mkdir(parents=True)
    names, subset, prompts, answers, best, *_ = (list(column) for column in zip(*cases, strict=True))
    items = {"case": names, "subset": subset, "cluster": ["p"] * len(cases)}
    items |= {"prompt": [f"user: {prompt}" for prompt in prompts]}
    items |= {"messages": [json.dumps([{"role": "user", "content": prompt}]) for prompt in prompts]}
    items |= {"answers": answers, "lengths": [[*map(len, texts)] for texts in answers], "best": best}
    pq.write_table(pa.table(items), folder / "items.parquet")
    rows = [
        {"scorer": MODEL, "case": name, "scores": scores, "abstained": None if scores else "no score", "margin": margin}
        for name, *_, scores, margin in cases
    ]
    rows += [
        {"scorer": NULL, "case": name, "scores": [float(k in right) for k in range(len(texts))], "margin": 1.0}
        for name, _, _, texts, right, *_ in cases
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "scores.parquet")
    summary = {"suite": "ponds", "rows": [{"scorer": MODEL, "role": "model"}, {"scorer": NULL, "role": "baseline"}]}
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "manifest.json").write_text("{}")
    (folder / "report.md").write_text("# ponds\n\nSeven cases <script>window.hacked = 1</script>\n")
    return folder
