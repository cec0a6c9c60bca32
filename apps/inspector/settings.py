"""Settings of the inspector, which are those of `rewardlab inspect`."""

from dataclasses import dataclass

from ...judges.retrieval.settings import check_retriever
from ...rm.registry.settings import PORT, Settings, setting


@dataclass
class InspectConfig(Settings):
    """Settings of the inspector: run folders, and models that explain judgments or decode in the browser."""

    required = ("run",)
    run: str = setting(
        "",
        "A run folder, a folder of runs, or a file of results (RewardBench's scores, an inspect_ai log, JSON lines of "
        "judgments); can be given as a positional argument.",
    )
    annotations: str | None = setting(
        None,
        "File of annotations to add to the run: records of Argilla (.json), or annotations exported as JSON lines.",
        suffixes=(".json", ".jsonl"),
    )
    export: str | None = setting(
        None, "Write a static copy of the judgments, which needs no server, to this new folder, and exit."
    )
    model: list[str] = setting([], "Reward models that explain the scores of runs: folders or Hub ids.")
    base: str | None = setting(
        None, "Base model of the playground, which decodes prompts; by default the adapter's base model."
    )
    arm: list[str] = setting([], "Autoregressive reward model (ARM) that guides the playground, as in `decode`.")
    retriever: str = setting(
        "tfidf", "Retriever of similar cases: tfidf, bm25, or the folder of an encoder of rewardlab retriever."
    )
    host: str = setting("127.0.0.1", "Address to listen on; any other than 127.0.0.1 requires a token.")
    port: int = setting(7860, "Port; 0 selects a free one.", range=PORT)
    token: str | None = setting(None, "Password for HTTP access (user name: rewardlab).")
    trust_remote_code: bool = setting(False, "Run code that comes with a model.")

    def validate(self) -> None:
        """Raise a `UsageError` if a setting is missing or contradicts another."""
        super().validate()
        check_retriever(self.retriever)
