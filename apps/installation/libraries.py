"""Warnings and progress bars of third-party libraries that do not concern users."""

import contextlib
import sys
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Hide FutureWarnings and, if it is imported, Transformers' progress bars of loading and saving weights.

    This holds within the block. Other progress bars and warnings stay. Without Transformers nothing is imported:
    `rm.backbones.loading` hides the bars of the models that it loads.
    """
    with warnings.catch_warnings(), contextlib.ExitStack() as hidden:
        warnings.filterwarnings("ignore", category=FutureWarning)  # meant for developers of libraries
        if "transformers" in sys.modules:
            from ...rm.backbones.loading import hidden_weight_bars

            hidden.enter_context(hidden_weight_bars())
        yield
