"""The settings of `rewardlab inspect`."""

from dataclasses import dataclass

from ....rm.settings import PORT, Settings, setting


@dataclass
class InspectConfig(Settings):
    """Settings of the inspector: run folders, and models that explain judgments or decode in the browser."""

    required = ("run",)
    run: str = setting(
        "A run folder, a folder of runs, or a file of results (RewardBench's scores, an inspect_ai log, JSON lines of "
        "judgments); can be given as a positional argument.",
        default="",
    )
    model: list[str] = setting(
        "Reward models that explain the scores of runs: folders or Hub ids.", default_factory=list
    )
    base: str | None = setting("Base model of the playground; by default the base model of its adapter.", default=None)
    arm: list[str] = setting("Autoregressive reward model of the playground, as for `decode`.", default_factory=list)
    retriever: str = setting(
        "Finds similar cases: tfidf, bm25, or the folder of an encoder of rewardlab retriever.", default="tfidf"
    )
    host: str = setting("Address to listen on; any other than 127.0.0.1 requires a token.", default="127.0.0.1")
    port: int = setting("Port; 0 selects a free one.", range=PORT, default=7860)
    token: str | None = setting("Password for HTTP access (user name: rewardlab).", default=None)
    trust_remote_code: bool = setting("Run code that comes with a model.", default=False)

    def validate(self) -> None:
        """Raise a `UsageError` if a setting is missing or contradicts another."""
        from ..judge.retrieval import check_retriever

        super().validate()
        check_retriever(self.retriever)
