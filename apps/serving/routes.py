"""Routes of the scoring server, in the protocols of rewardlab, vLLM and OpenRLHF, with a common request queue."""

import asyncio
import math
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fastapi import FastAPI, Request
from pydantic import BaseModel
from scipy.special import expit
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from ...rm.io.server_rotation import LOCAL
from ...rm.types import RewardModel
from .bodies import check_objective, one_number
from .metrics import Metrics
from .middleware import FAILED, AccessMiddleware
from .protocol import ClassifyRequest, PoolingRequest, RewardRequest, ScoreRequest, docs_page, parse_body
from .refusals import Refused
from .request_queue import RequestQueue
from .requests import Item, RequestParser
from .settings import ServeConfig


class ScoredRequest(NamedTuple):
    """A request, its items, and its rewards [N, K]."""

    body: Any
    items: Sequence[Item]
    rewards: Any
    """Rewards [N, K]. For /pooling, the outputs [L, K] of each token sequence."""


class Site:
    """Server of one reward model. `access` is the ASGI application; `queue` scores the requests."""

    def __init__(self, model: RewardModel, config: ServeConfig):
        self.config, self.scoring = config, model.contract
        self.contract = model.contract.hash()
        self.name = Path(config.model.rstrip("/")).name or "model"
        self.objectives = model.contract.objectives
        check_objective(config.objective, self.objectives)
        self.metrics = Metrics(self.contract)
        self.queue = RequestQueue(
            model, batch_tokens=config.batch_tokens, limit=config.queue_tokens, on_batch=self.metrics.batch
        )
        self.metrics.watch(self.queue)
        self.reader = RequestParser(model, config)
        self._reading = ThreadPoolExecutor(1, "reading")
        app = FastAPI(title="rewardlab", docs_url=None, redoc_url=None, redirect_slashes=False)
        app.add_exception_handler(HTTPException, self._no_route_response)
        app.add_exception_handler(Refused, self._refusal_response)
        app.add_exception_handler(Exception, self._failure_response)
        self._post(app, "/score", ScoreRequest, self.reader.score, self.score)
        self._post(app, "/classify", ClassifyRequest, self.reader.classify, self.classify)
        self._post(app, "/pooling", PoolingRequest, self.reader.pooling, self.pooling)
        self._post(app, "/get_reward", RewardRequest, self.reader.get_reward, self.get_reward)
        app.add_api_route("/health", self.health, methods=["GET"], response_model=None)
        app.add_api_route("/docs", self.docs, methods=["GET"], response_model=None)
        app.add_api_route("/metrics", self.page, methods=["GET"], response_model=None)
        paths = {route.path for route in app.routes if isinstance(route, Route)}
        hosts = None if config.token else {*LOCAL, config.host}
        self.access = AccessMiddleware(app, config, self.contract, paths, self.queue, self.metrics, hosts)

    def close(self) -> None:
        """Stop the parsing thread and the scoring thread. Queued requests get an error."""
        self.queue.close()
        self._reading.shutdown(wait=False, cancel_futures=True)

    # ---- requests ----

    def _post(
        self, app: FastAPI, path: str, kind: type[BaseModel], read: Callable, answer: Callable[[ScoredRequest], dict]
    ) -> None:
        async def respond(request: Request) -> Response:
            return JSONResponse(answer(await self._scored(request, kind, read)))

        schema = {"requestBody": {"content": {"application/json": {"schema": kind.model_json_schema()}}}}
        app.add_api_route(
            path,
            respond,
            methods=["POST"],
            name=path[1:],
            description=answer.__doc__ or "",
            openapi_extra=schema,
            response_model=None,
        )

    async def _scored(self, request: Request, kind: type[BaseModel], read: Callable) -> ScoredRequest:
        """Parse a request in one thread and score it in another.

        The items are removed from the queue if the client disconnects or a time limit is exceeded.
        """
        body = await request.body()

        def parse() -> tuple[BaseModel, list[Item]]:
            message = parse_body(kind, body)
            self._check_model_name(message)
            return message, read(message)

        entered: Future[Any] | None = None
        disconnected = asyncio.ensure_future(_wait_for_disconnect(request))
        try:
            async with asyncio.timeout(self.config.timeout):
                loop = asyncio.get_running_loop()
                message, items = await loop.run_in_executor(self._reading, parse)
                entered = self.queue.enter(items)
                waiting = asyncio.wrap_future(entered)
                await asyncio.wait({waiting, disconnected}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise Refused(408, "the sender left")
            scored = ScoredRequest(message, items, waiting.result())
            self.metrics.partial(items)
            return scored
        except TimeoutError:
            sentence = f"not scored within {self.config.timeout:g} s, and removed from the queue; retry later"
            raise Refused(504, sentence, retry_after=self.queue.wait_seconds()) from None
        finally:
            disconnected.cancel()
            if entered is not None:
                entered.cancel()  # itself, at once: what wraps it would pass that on only after the answer

    def _check_model_name(self, message: Any) -> None:
        name = message.model if isinstance(message, ClassifyRequest | PoolingRequest) else None
        if name not in (None, self.name, self.config.model):
            raise Refused(404, f"no model '{name[:80]}' here; this server has '{self.name}'")

    async def _no_route_response(self, request: Request, error: Any) -> Response:
        sentence = f"{request.method} {request.url.path[:80]}: {error.detail}"
        return Refused(error.status_code, sentence).response(self.contract)

    async def _refusal_response(self, request: Request, error: Any) -> Response:
        return error.response(self.contract)

    async def _failure_response(self, request: Request, error: Exception) -> Response:
        return Refused(500, FAILED).response(self.contract)

    # ---- answers ----

    def score(self, scored: ScoredRequest) -> dict[str, Any]:
        """Return `{"contract", "objectives", "results": [{"scores", "tokens", "truncated", "omitted"}]}`.

        `scores` are numbers by objective, null if not finite. `tokens` and `truncated` are null for a model without
        tokenizer. `omitted` is a text that the model's chat template leaves out, or null.
        """
        results = [
            {
                "scores": {name: _finite(value) for name, value in zip(self.objectives, rewards, strict=True)},
                "tokens": item.tokens,
                "truncated": item.truncated,
                "omitted": item.omitted,
            }
            for item, rewards in zip(scored.items, scored.rewards.tolist(), strict=True)
        ]
        return {"contract": self.contract, "objectives": [*self.objectives], "results": results}

    def classify(self, scored: ScoredRequest) -> dict[str, Any]:
        """Return the response of vLLM's pooling server with `use_activation` false: `probs` are the raw scores."""
        _check_finite(scored.rewards)
        data = [
            {
                "index": index,
                "label": self.objectives[max(range(len(scores)), key=scores.__getitem__)],
                "probs": scores,
                "num_classes": len(scores),
            }
            for index, scores in enumerate(scored.rewards.tolist())
        ]
        return self._vllm_response("classify", data, scored.items)

    def pooling(self, scored: ScoredRequest) -> dict[str, Any]:
        """Return the response of vLLM's pooling server for token_classify: `data` has the outputs [L, K] of tokens."""
        for index, outputs in enumerate(scored.rewards):
            if not np.isfinite(outputs).all():
                raise Refused(422, f"the model's outputs for sequence {index} are not finite")
        activate = expit if scored.body.use_activation is not False else np.asarray
        rows = [activate(outputs).tolist() for outputs in scored.rewards]
        data = [{"index": index, "object": "pooling", "data": row} for index, row in enumerate(rows)]
        return self._vllm_response("pool", data, scored.items)

    def _vllm_response(self, name: str, data: list[dict[str, Any]], items: Sequence[Item]) -> dict[str, Any]:
        tokens = sum(item.tokens or 0 for item in items)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0, "prompt_tokens_details": None}
        return {
            "id": f"{name}-{uuid.uuid4().hex}",
            "object": "list",
            "created": int(time.time()),
            "model": self.name,
            "data": data,
            "usage": usage,
            "contract": self.contract,
        }

    def get_reward(self, scored: ScoredRequest) -> dict[str, Any]:
        """Return the response format of OpenRLHF: one number per response, and all objectives in `extra_logs`."""
        _check_finite(scored.rewards)
        chosen = one_number(scored.rewards, self.objectives, self.config.objective).tolist()
        logs = dict(zip(self.objectives, scored.rewards.T.tolist(), strict=True))
        return {"rewards": chosen, "scores": chosen, "extra_logs": logs, "contract": self.contract}

    async def health(self) -> Response:
        """Return the server's status (ready or draining), the scoring contract and the limits of a request."""
        limits = {name: vars(self.config)[name] for name in ("request_items", "request_tokens", "body_bytes")}
        facts = {"contract": self.contract, "scoring": asdict(self.scoring), "model": self.name, "limits": limits}
        draining = self.queue.draining
        return JSONResponse({"status": "draining" if draining else "ready"} | facts, 503 if draining else 200)

    async def docs(self) -> Response:
        """Return an HTML page with the request types and their fields."""
        return HTMLResponse(docs_page(self.name, self.contract))

    async def page(self) -> Response:
        """Return the metrics in Prometheus' text format."""
        return Response(self.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _wait_for_disconnect(request: Request) -> None:
    """Wait until the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _check_finite(rewards: np.ndarray) -> None:
    """Raise `Refused` if a score is not finite, since the protocols of vLLM and OpenRLHF have no value for this."""
    if wrong := [index for index, is_finite in enumerate(np.isfinite(rewards).all(1)) if not is_finite]:
        raise Refused(422, f"the model's score of conversation {wrong[0]} is not finite")
