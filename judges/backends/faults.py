"""Table of an endpoint's faults: the action on each fault and the cost that is counted (docs/guides/judges.md)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class Action(StrEnum):
    """Action on a fault."""

    FATAL = "fatal"
    """Stop sending requests, since each would fail for the same reason."""
    RETRY = "retry"
    """Send the same request again after a pause, up to the number of retries. After that it counts as failed."""
    ABSTAIN = "abstain"
    """Record the request as failed or unreadable, and continue with the others."""


class Billed(StrEnum):
    """Cost that is counted for a faulty request."""

    NO = "no"
    USAGE = "usage"
    """The tokens that the response reports, as for any other reply."""
    AT_MOST = "at most"
    """The upper bound of the request's cost, since the server may have written a reply that was lost."""


class ApiFault(NamedTuple):
    """A row of the table of faults."""

    name: str
    action: Action
    billed: Billed = Billed.NO
    statuses: tuple[int, ...] = ()
    """HTTP statuses of the fault."""
    codes: tuple[str, ...] = ()
    """Values of `code` or `type` in the `error` of the response body. They take precedence over the HTTP status."""


BAD_REQUEST = ApiFault("the request is refused", Action.ABSTAIN, statuses=(400, 422, 501))
SERVER_FAILED = ApiFault("the server failed", Action.RETRY, statuses=(500, 503, 529))
TIMEOUT = ApiFault("no reply in time", Action.RETRY, Billed.AT_MOST)
NO_CONNECTION = ApiFault("no connection", Action.RETRY)
LOST = ApiFault("the connection was lost", Action.RETRY, Billed.AT_MOST)
NO_COMPLETION = ApiFault("the response is no completion", Action.RETRY, Billed.AT_MOST)
EMPTY = ApiFault("the reply has no text", Action.ABSTAIN, Billed.USAGE)
UNFINISHED = ApiFault("the server did not finish the reply", Action.ABSTAIN, Billed.USAGE)
CUT_OFF = ApiFault("the reply is cut off", Action.ABSTAIN, Billed.USAGE)
DECLINED = ApiFault("the model or a filter declines to reply", Action.ABSTAIN, Billed.USAGE)

FAULTS = (
    ApiFault(
        "the quota or credit of the account is used up", Action.FATAL, statuses=(402,),
        codes=("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error"),
    ),
    ApiFault(
        "the request is refused by a content filter", Action.ABSTAIN,
        codes=("content_filter", "content_policy_violation", "flagged_input"),
    ),
    ApiFault(
        "the request is too long", Action.ABSTAIN, statuses=(413,),
        codes=("context_length_exceeded", "string_above_max_length", "request_too_large"),
    ),
    ApiFault(
        "the API key is refused", Action.FATAL, statuses=(401,),
        codes=("invalid_api_key", "account_deactivated", "authentication_error"),
    ),
    ApiFault("the key may not use the model", Action.FATAL, statuses=(403,), codes=("permission_error",)),
    ApiFault("no such model or address", Action.FATAL, statuses=(404,), codes=("model_not_found", "not_found_error")),
    BAD_REQUEST,
    ApiFault("the server asks to try again", Action.RETRY, statuses=(408, 409, 425)),
    ApiFault("too many requests", Action.RETRY, statuses=(429,), codes=("rate_limit_exceeded", "rate_limit_error")),
    SERVER_FAILED,
    ApiFault("a gateway has no reply from the server", Action.RETRY, Billed.AT_MOST, statuses=(502, 504)),
    TIMEOUT, NO_CONNECTION, LOST, NO_COMPLETION, EMPTY, UNFINISHED, CUT_OFF, DECLINED,
)  # fmt: skip


def fault_of(status: int | None, error: Any) -> ApiFault:
    """Return the fault for an HTTP `status` (None: 200) and the `error` in the response body, without its message."""
    codes = _codes(error) if isinstance(error, Mapping) else set()
    by_code = [fault for fault in FAULTS if codes.intersection(fault.codes)]
    by_status = [fault for fault in FAULTS if status in fault.statuses]
    otherwise = NO_COMPLETION if status is None else SERVER_FAILED if status >= 500 else BAD_REQUEST
    return next(iter([*by_code, *by_status]), otherwise)


def _codes(error: Mapping[str, Any]) -> set[str]:
    """Return the values of `code` and `type`, and `flagged_input` for an error of OpenRouter's moderation (403)."""
    metadata = error.get("metadata")
    flagged = metadata if isinstance(metadata, Mapping) else {}
    return {str(error.get(name)) for name in ("code", "type")} | ({"flagged_input"} & flagged.keys())
