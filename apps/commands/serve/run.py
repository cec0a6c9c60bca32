"""`rewardlab serve MODEL`: serve a reward model over HTTP."""

import importlib.util
import sys
from typing import Any

from ....rm.contract.loading_settings import edges, has_contract, loading_options
from ....rm.errors import UsageError
from ....rm.load import load_reward_model
from ...runs.run_folder import trust_option
from ...serving.access import check_reach
from ...serving.settings import ServeConfig

NEEDED = ("fastapi", "uvicorn", "prometheus_client")


def serve(config: ServeConfig) -> dict[str, Any]:
    """Serve a reward model until SIGTERM or Ctrl-C. Print the address to stderr."""
    check_reach(config.host, config.token, "ask this model")
    if absent := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise UsageError(f"pip install 'rewardlab[serve]' for the server ({', '.join(absent)} is not installed)")
    from ...serving.process import DrainingServer, prepare_server

    stated = edges(config) if has_contract(config.model) else loading_options(config)
    model = load_reward_model(config.model, check=config.check, **stated, **trust_option(config))
    site, url = prepare_server(model, config)
    sentence = f"{config.model} is at {url}, contract {site.contract} (stop with Ctrl-C)"
    print(sentence, file=sys.stderr, flush=True)
    DrainingServer(site).run()
    return {"model": config.model, "url": url, "contract": site.contract, **site.metrics.totals()}
