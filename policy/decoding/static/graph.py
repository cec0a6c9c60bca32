"""A step as a CUDA graph."""

import warnings
from collections.abc import Callable, Hashable

import torch


class GraphedStep:
    """A step without arguments or result, captured once for each key, which names the shapes of its tensors.

    The first step of a key runs as it is, on a side stream: it compiles kernels and allocates what stays. The second is
    captured, and from then on replayed. A model that waits for the device in its forward pass cannot be captured; that
    shows in the first step, and the engine goes on without graphs. All tensors lie on `device`, current or not.
    """

    def __init__(self, step: Callable[[], None], device: torch.device):
        self._step, self._device = step, device
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph | None] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)
        self._is_capturable = True

    def run(self, key: Hashable) -> None:
        """Make one step."""
        with torch.cuda.device(self._device):  # a capture follows the current device's stream alone
            self._run(key)

    def _run(self, key: Hashable) -> None:
        if not self._is_capturable:
            self._step()
        elif key not in self._graphs:
            self._warm_up()
            self._graphs[key] = None
        else:
            graph = self._graphs[key] or self._captured()
            self._graphs[key] = graph
            graph.replay()

    def _warm_up(self) -> None:
        """Step on a side stream, and detect operations that wait for the device; they come before any change."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            mode = torch.cuda.get_sync_debug_mode()
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
                    torch.cuda.set_sync_debug_mode("error")
                self._step()
            except RuntimeError as error:
                if "synchronizing" not in str(error):
                    raise
                self._is_capturable = False
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        torch.cuda.current_stream().wait_stream(self._stream)
        if not self._is_capturable:
            warnings.warn(
                "the model waits for the GPU in its forward pass; decoding without a CUDA graph", stacklevel=2
            )
            self._step()

    def _captured(self) -> torch.cuda.CUDAGraph:
        """Capture the step; nothing is computed yet."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            self._step()
        return graph
