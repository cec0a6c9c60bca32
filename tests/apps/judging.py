"""A world for judges on the command line: pairs whose longer answer is right, and a server that sees it."""

import json
import re
from pathlib import Path

from rewardlab.apps.cli import main


def shown(asked, name: str) -> str | None:
    """What a request shows between the marks of a part; `asked` is the body that a server gets, or an Ask."""
    messages = asked["messages"] if isinstance(asked, dict) else asked.messages
    found = re.search(rf"<{name}>\n(.*?)\n</{name}>", messages[-1]["content"], re.DOTALL)
    return found[1] if found else None


def longer(asked) -> str:
    """Says that the longer answer is better, marks rules as met from ten letters on, and gives a point per letter."""
    a, b, alone = (shown(asked, name) for name in ("answer_a", "answer_b", "answer"))
    if a is not None and b is not None:
        return json.dumps({"reasoning": "counted", "winner": "A" if len(a) > len(b) else "B"})
    alone = alone or shown(asked, "conversation") or ""
    if rubric := shown(asked, "rubric") or shown(asked, "checklist"):
        met = "yes" if len(alone) >= 10 else "no"
        rules = [{"id": name, "evidence": alone, "met": met} for name in re.findall(r"\[(\w+)\]", rubric)]
        return json.dumps({"rules": rules})
    return json.dumps({"reasoning": "counted", "score": min(10, len(alone))})


def write(path: Path, rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def lengths(number: int) -> list[dict]:
    """Pairs whose chosen answer is the longer one."""
    texts = {"id": "p{}", "prompt": "question {}", "chosen": "a long answer {}", "rejected": "short {}"}
    return [{name: text.format(i) for name, text in texts.items()} for i in range(number)]


def call(capsys, *words) -> tuple[int, dict, str]:
    """A verb of the command line: its exit code, its last line and what was said."""
    code = main([*map(str, words)])
    out, err = capsys.readouterr()
    return code, json.loads(out.strip().split("\n")[-1]) if code == 0 else {}, err


def over_pairs(capsys, folder: Path, server):
    """`rewardlab judge` over a file of pairs, as a user runs it: exit code, last line, what was said, run folder."""

    def run(*words, data=None, output="run", at=server, model=("qwen",)):
        data = data or write(folder / "pairs.jsonl", lengths(8))
        named = ["--endpoint", at.url, "--model", *model, "--retries", 0, "--bootstrap_samples", 20]
        code, facts, err = call(capsys, "judge", "--data", data, *named, *words, "--output", folder / output)
        return code, facts, err, folder / output

    return run
