"""`rewardlab plan`: memory and time of a job, by the formulas of `rm/capacity`."""

import time
from dataclasses import asdict
from typing import Any

from ....rm.capacity.plan import plan_facts
from ....rm.capacity.report import figure, markdown
from ....rm.capacity.settings import PlanConfig
from ...runs.run_folder import log_report, run_folder, write_json, write_manifest

UNITS = {"train": "pairs", "rl": "prompts", "decode": "prompts", "score": "conversations"}


def run_plan(config: PlanConfig) -> dict[str, Any]:
    """Compute the plan, print it as a page, and write the page to the output folder, if any."""
    started = time.time()
    facts = plan_facts(config)
    page = markdown(facts, asdict(config), UNITS[config.job])
    log_report(page)
    if config.output is None:
        return facts
    from ...runs.run_folder import save_figure  # matplotlib, which a plan without a folder does not need

    with run_folder(config.output, asdict(config), overwrite=config.overwrite) as work:
        (work / "report.md").write_text(page + "\n\n![Memory by phase](memory.png)\n", encoding="utf-8")
        save_figure(figure(facts), work / "memory.png")
        write_json(work / "plan.json", facts)
        write_manifest(work, data=[], seed=None, started=started)
    return facts | {"output": config.output}
