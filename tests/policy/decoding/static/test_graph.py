"""When a step runs, is captured and is replayed, with a stand-in for CUDA."""

import warnings
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
from rewardlab.policy.decoding.static import steps as static_steps

DEVICE = "cuda:1"


@pytest.fixture
def events(monkeypatch):
    happened = []

    @contextmanager
    def capture(_graph, pool, stream):
        happened.append("capture")
        yield

    stream = SimpleNamespace(wait_stream=lambda other: None)
    cuda = SimpleNamespace(
        Stream=lambda device: stream,
        device=lambda device: nullcontext(),
        current_stream=lambda: stream,
        stream=lambda _: nullcontext(),
        graph_pool_handle=lambda: None,
        get_sync_debug_mode=lambda: 0,
        set_sync_debug_mode=notice,
        CUDAGraph=lambda: SimpleNamespace(replay=lambda: happened.append("replay")),
        graph=capture,
    )
    monkeypatch.setattr(static_steps, "torch", SimpleNamespace(cuda=cuda))
    return happened


def notice(mode):
    """What PyTorch does once in a process."""
    if mode == "error":
        warnings.warn("Synchronization debug mode is a prototype feature and does not yet detect all", stacklevel=1)


@pytest.mark.filterwarnings("error")
def test_the_first_step_of_a_shape_runs_the_second_is_captured_and_all_further_are_replayed(events):
    step = static_steps.GraphedStep(lambda: events.append("step"), DEVICE)
    for key in (256, 256, 256, 512, 512, 256):
        step.run(key)
    first = ["step", "capture", "step", "replay", "replay"]
    assert events == [*first, "step", "capture", "step", "replay", "replay"]


def test_a_model_that_waits_for_the_device_is_decoded_without_a_graph_and_another_failure_is_raised(events):
    failures = [RuntimeError("called a synchronizing CUDA operation")]

    def run():
        if failures:
            raise failures.pop()
        events.append("step")

    step = static_steps.GraphedStep(run, DEVICE)
    with pytest.warns(UserWarning, match="decoding without a CUDA graph"):
        step.run(256)
    step.run(256)
    assert events == ["step", "step"]

    def run():
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        static_steps.GraphedStep(run, DEVICE).run(256)


def test_every_step_runs_captures_and_replays_with_its_device_as_the_current_one(events, monkeypatch):
    @contextmanager
    def current(device):
        events.append(device)
        yield
        events.append("left")

    monkeypatch.setattr(static_steps.torch.cuda, "device", current)
    step = static_steps.GraphedStep(lambda: events.append("step"), DEVICE)
    step.run(256)
    step.run(256)
    assert events == [DEVICE, "step", "left", DEVICE, "capture", "step", "replay", "left"]
