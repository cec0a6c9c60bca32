"""Memory, peak operations and bandwidth of GPUs from published data, and run times at an assumed utilisation."""

from typing import NamedTuple

from ..errors import UsageError, did_you_mean


class Gpu(NamedTuple):
    """Peak values of one GPU, without sparsity."""

    title: str
    memory: float
    """GB, 10⁹ bytes each; drivers often report a little more."""
    bfloat16: float
    """Tera-operations per second (10¹²), dense."""
    float32: float
    """Tera-operations per second without tensor cores, which PyTorch does not use for float32 by default."""
    bandwidth: float
    """GB per second."""


GPUS = {
    "b200": Gpu("NVIDIA B200 (HGX)", 180, 2250, 75, 7700),
    "h200": Gpu("NVIDIA H200 SXM", 141, 989, 67, 4800),
    "h100": Gpu("NVIDIA H100 SXM 80 GB", 80, 989, 67, 3350),
    "h100-pcie": Gpu("NVIDIA H100 PCIe 80 GB", 80, 756, 51, 2000),
    "a100": Gpu("NVIDIA A100 SXM 80 GB", 80, 312, 19.5, 2039),
    "a100-40": Gpu("NVIDIA A100 SXM 40 GB", 40, 312, 19.5, 1555),
    "l40s": Gpu("NVIDIA L40S", 48, 362, 91.6, 864),
    "l4": Gpu("NVIDIA L4", 24, 121, 30.3, 300),
    "a10": Gpu("NVIDIA A10", 24, 125, 31.2, 600),
    "rtx4090": Gpu("NVIDIA GeForce RTX 4090", 24, 165, 82.6, 1008),
    "mi300x": Gpu("AMD Instinct MI300X", 192, 1307, 163, 5300),
}
"""As commonly published for these products; variants differ, so check the data sheet of rented GPUs."""


def find_gpu(name: str) -> Gpu:
    """Return a GPU of the table."""
    if name.lower() not in GPUS:
        raise UsageError(f"no GPU '{name}' in the table; {did_you_mean(name.lower(), GPUS)}")
    return GPUS[name.lower()]


def compute_seconds(flops: float, gpu: Gpu, mfu: float, *, narrow: bool = True) -> float:
    """t = FLOPs / (peak · MFU);  MFU in (0, 1] is the share of the peak that real work reaches."""
    return flops / ((gpu.bfloat16 if narrow else gpu.float32) * 1e12 * mfu)


def read_seconds(size: float, gpu: Gpu, mbu: float) -> float:
    """t = bytes / (bandwidth · MBU);  MBU in (0, 1] is the share of the bandwidth that real work reaches."""
    return size / (gpu.bandwidth * 1e9 * mbu)
