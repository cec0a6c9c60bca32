"""Third-party libraries: optional libraries, the error message if one is not installed, and suppressed warnings."""

import contextlib
import sys
import warnings
from collections.abc import Iterator

from ...rm.errors import UsageError

EXTRAS = {
    "inspect": (
        "a11y_pygments",
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
"""Extra in `pyproject.toml` -> modules that it installs."""


def extra_of(module: str) -> str | None:
    """Return the extra that installs a module. None if no extra installs it.

    >>> extra_of("gradio.blocks"), extra_of("torch")
    ('inspect', None)
    """
    top = module.partition(".")[0]
    return next((extra for extra, modules in EXTRAS.items() if top in modules), None)


@contextlib.contextmanager
def explained_imports() -> Iterator[None]:
    """Raise `UsageError` if an import within the block fails for a module of an extra. The message names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if extra := extra_of(error.name or ""):
            raise UsageError(
                f"{error.name} is not installed; install it with pip install 'rewardlab[{extra}]'"
            ) from error
        raise


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Within the block, hide FutureWarnings and, if Transformers is imported, its progress bars for weights.

    Other progress bars and warnings stay. Transformers is not imported for this purpose:
    `rm.backbones.loading` hides the bars of the models that it loads.
    """
    with warnings.catch_warnings(), contextlib.ExitStack() as hidden:
        warnings.filterwarnings("ignore", category=FutureWarning)  # meant for developers of libraries
        if "transformers" in sys.modules:
            from ...rm.backbones.loading import hidden_weight_bars

            hidden.enter_context(hidden_weight_bars())
        yield
