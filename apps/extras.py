"""Packages that the base installation leaves out, and the sentence for one that is missing."""

import contextlib
from collections.abc import Iterator

from ..rm.errors import UsageError

EXTRAS = {
    "inspect": (
        "accessible_pygments",
        "duckdb",
        "gradio",
        "latex2mathml",
        "markdown_it",
        "mdit_py_plugins",
        "nh3",
        "plotly",
        "pygments",
    ),
    "judges": ("openai",),
    "serve": ("fastapi", "prometheus_client", "starlette", "uvicorn"),
    "gguf": ("gguf",),
    "vllm": ("vllm",),
}
"""Modules that each extra of `pyproject.toml` brings."""


def extra_of(module: str) -> str | None:
    """Return the extra that brings a module, None for a module of none.

    >>> extra_of("gradio.blocks"), extra_of("torch")
    ('inspect', None)
    """
    top = module.partition(".")[0]
    return next((extra for extra, modules in EXTRAS.items() if top in modules), None)


@contextlib.contextmanager
def explained_imports() -> Iterator[None]:
    """Raise a `UsageError` that names the extra where an import finds no module of one."""
    try:
        yield
    except ModuleNotFoundError as error:
        if extra := extra_of(error.name or ""):
            raise UsageError(
                f"{error.name} is not installed; install it with pip install 'rewardlab[{extra}]'"
            ) from error
        raise
