"""Request types of the server: the protocols of rewardlab, vLLM and OpenRLHF."""

import json
from html import escape
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from .refusals import Refused

Body = TypeVar("Body", bound=BaseModel)


class Turn(BaseModel):
    """A message of a conversation, with tool calls and text parts, in the format of `messages_and_tools.as_message`."""

    model_config = ConfigDict(strict=True, extra="allow")
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Any = None
    begins_completion: bool = False
    """Whether the response begins with this message. By default the response is the last message."""

    def raw(self) -> dict[str, Any]:
        """Return the message as it was received."""
        return self.model_dump(exclude_unset=True, exclude={"begins_completion"})


class ScoreRequest(BaseModel):
    """Request of `POST /score`: conversations that end with a response, or complete sequences of token ids.

    `tools` are the declared tools of each conversation whose first message does not declare tools.
    """

    model_config = ConfigDict(strict=True, extra="forbid")
    conversations: list[list[Turn]] | None = None
    tokens: list[list[int]] | None = None
    tools: list[dict[str, Any]] | None = None
    truncate: bool = False
    """Whether to truncate long conversations by the scoring contract. Otherwise they are refused."""

    @model_validator(mode="after")
    def _has_conversations_or_tokens(self):
        if (self.conversations is None) == (self.tokens is None):
            raise ValueError("give either conversations or tokens")
        return self


class ClassifyRequest(BaseModel):
    """Request of `POST /classify` of vLLM's pooling server: `input` (rendered text or token ids) or `messages`.

    Settings of vLLM that contradict the scoring contract are refused. Other settings are ignored.
    """

    model_config = ConfigDict(strict=True, extra="ignore")
    model: str | None = None
    input: str | list[int] | list[str] | list[list[int]] | None = None
    messages: list[Turn] | None = None
    tools: list[dict[str, Any]] | None = None
    use_activation: bool | None = None
    truncate_prompt_tokens: int | None = None
    add_generation_prompt: bool = False
    continue_final_message: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _refuse_settings_against_contract(self):
        if (self.input is None) == (self.messages is None):
            raise ValueError("give either input or messages")
        if self.use_activation:
            raise ValueError("use_activation: this server returns raw scores only; leave it out or set it to false")
        if self.truncate_prompt_tokens not in (None, -1):
            raise ValueError("truncate_prompt_tokens: the contract determines the truncation; set -1 to truncate")
        for name in ("add_generation_prompt", "continue_final_message", "chat_template", "chat_template_kwargs"):
            if vars(self)[name]:
                raise ValueError(f"{name}: the scoring contract determines how messages are rendered; leave it out")
        return self


class PoolingRequest(BaseModel):
    """Request of `POST /pooling` of vLLM's pooling server, task token_classify: token ids, for process reward models.

    The response has the model's output at each token, by default as a probability. The score of a step is the output at
    the token that ends the step.
    """

    model_config = ConfigDict(strict=True, extra="ignore")
    model: str | None = None
    input: list[int] | list[list[int]]
    task: Literal["token_classify"] = "token_classify"
    use_activation: bool | None = None
    truncate_prompt_tokens: Literal[-1] | None = None


class RewardRequest(BaseModel):
    """Request of `POST /get_reward` of OpenRLHF: rendered prompt and response (`query`), and the prompt (`prompts`)."""

    model_config = ConfigDict(strict=True, extra="ignore")
    query: list[str]
    prompts: list[str] | None = None
    labels: Any = None

    @model_validator(mode="after")
    def _has_one_prompt_per_query(self):
        if self.prompts is not None and len(self.prompts) != len(self.query):
            raise ValueError(f"{len(self.prompts)} prompts for {len(self.query)} queries; give one prompt per query")
        return self


def parse_body(kind: type[Body], body: bytes) -> Body:
    """Parse a request body. Raise `Refused` with status 400 for invalid JSON, and 422 for wrong fields or types."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        location = ".".join(map(str, first["loc"]))[:80]
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "json_invalid":
            raise Refused(400, f"the body is not JSON: {message.removeprefix('Invalid JSON: ')}") from None
        fields = f"; the fields are {', '.join(kind.model_fields)}" if len(first["loc"]) < 2 else ""
        raise Refused(422, (f"{location}: {message}" if location else message) + fields) from None


# ---- documentation ----

EXAMPLES: dict[str, tuple[type[BaseModel], dict[str, Any]]] = {
    "/score": (
        ScoreRequest,
        {"conversations": [[{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hello!"}]]},
    ),
    "/classify": (ClassifyRequest, {"input": ["rendered text of a conversation"]}),
    "/pooling": (PoolingRequest, {"input": [[1, 2, 3]], "task": "token_classify"}),
    "/get_reward": (RewardRequest, {"query": ["prompt and response"], "prompts": ["prompt"]}),
}
"""Request type and example request of each route."""


def docs_page(model: str, contract: str) -> str:
    """Return an HTML page, without scripts, with the fields of each request type and an example command."""
    sections = []
    for route, (kind, example) in EXAMPLES.items():
        rows = "".join(
            f"<tr><td><code>{escape(name)}</code></td><td>{escape(_type_name(field.annotation))}</td></tr>"
            for name, field in kind.model_fields.items()
        )
        command = f"curl -s -H 'Content-Type: application/json' -d '{json.dumps(example)}' http://ADDRESS{route}"
        sections.append(
            f"<h2>POST {route}</h2><p>{escape(' '.join((kind.__doc__ or '').split()))}</p>"
            f"<table><tr><th scope=col>field</th><th scope=col>type</th></tr>{rows}</table><pre>{escape(command)}</pre>"
        )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>rewardlab</title>"
        "<style>body{font:16px sans-serif;margin:2em;max-width:60em}td,th{text-align:left;padding:.2em 1em .2em 0}"
        "pre{overflow-x:auto;background:#eee;padding:1em}</style>"
        f"<h1>{escape(model)}</h1><p>Scoring contract <code>{escape(contract)}</code>. With a token, send "
        "<code>Authorization: Bearer TOKEN</code>. The schema is at <a href=openapi.json>openapi.json</a>.</p>"
        f"{''.join(sections)}</html>"
    )


def _type_name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
