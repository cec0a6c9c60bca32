"""Error responses of the server: HTTP status, message and remedy."""

import json
import math
from typing import Any

from starlette.responses import Response

KINDS = {
    400: "not_json",
    401: "no_token",
    403: "not_allowed",
    404: "not_found",
    405: "wrong_method",
    408: "too_slow",
    413: "too_large",
    422: "cannot_be_scored",
    429: "queue_full",
    503: "draining",
    504: "timeout",
}


class Refused(Exception):
    """Error for a refused request. `facts` are additional numbers in the response; `retry_after` is in seconds."""

    def __init__(self, status: int, sentence: str, *, retry_after: float | None = None, **facts: Any):
        super().__init__(sentence)
        self.status, self.sentence, self.retry_after, self.facts = status, sentence, retry_after, facts

    def response(self, contract: str) -> Response:
        """Return the response `{"error": {"message", "type", "code", ...}, "contract"}`, in the format of vLLM.

        The header Retry-After is `retry_after` rounded up to whole seconds, at least 1; the body states it to the
        millisecond.
        """
        headers = {}
        kind = KINDS.get(self.status, "error")
        error_body = {"message": self.sentence, "type": kind, "code": self.status, **self.facts}
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        if self.retry_after is not None:
            headers["retry-after"] = str(max(1, math.ceil(self.retry_after)))
            error_body["retry_after"] = round(self.retry_after, 3)
        body = json.dumps({"error": error_body, "contract": contract})  # ASCII, whatever the sentence repeats
        return Response(body, self.status, headers, media_type="application/json")
