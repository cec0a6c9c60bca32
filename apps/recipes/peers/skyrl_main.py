"""Start SkyRL's trainer with the environment `rewardlab` registered. Needs skyrl and a GPU; see `skyrl.sh`."""

import sys
from typing import Any


def train(config: Any) -> None:
    """Register the environment in the training process, and train."""
    from skyrl.train.entrypoints.main_base import BasePPOExp  # pyright: ignore[reportMissingImports]

    from . import skyrl_env  # noqa: F401  (registers the environment)

    BasePPOExp(config).run()


def main() -> None:
    """Read SkyRL's settings from the command line, check them, and train in a Ray task."""
    import ray  # pyright: ignore[reportMissingImports]
    from skyrl.train.config import SkyRLTrainConfig  # pyright: ignore[reportMissingImports]
    from skyrl.train.entrypoints.main_base import validate_cfg  # pyright: ignore[reportMissingImports]
    from skyrl.train.utils import initialize_ray  # pyright: ignore[reportMissingImports]

    config = SkyRLTrainConfig.from_cli_overrides(sys.argv[1:])
    validate_cfg(config)
    initialize_ray(config)
    ray.get(ray.remote(num_cpus=1)(train).remote(config))


if __name__ == "__main__":
    main()
