"""Request types: rewardlab's own protocol, vLLM's and OpenRLHF's."""

from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from .refusals import Refused

Asked = TypeVar("Asked", bound=BaseModel)


class Turn(BaseModel):
    """A message of a conversation: as `rm.data.messages.as_message` reads it, with tool calls and text parts."""

    model_config = ConfigDict(strict=True, extra="allow")
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Any = None
    begins_completion: bool = False
    """Whether the response begins here; by default it is the last message alone."""

    def raw(self) -> dict[str, Any]:
        """Return the message as it was sent."""
        return self.model_dump(exclude_unset=True, exclude={"begins_completion"})


class ScoreRequest(BaseModel):
    """`POST /score`: conversations whose last turn is the answer, or whole sequences of token ids.

    `tools` are declared to every conversation that does not declare its own on its first message.
    """

    model_config = ConfigDict(strict=True, extra="forbid")
    conversations: list[list[Turn]] | None = None
    tokens: list[list[int]] | None = None
    tools: list[dict[str, Any]] | None = None
    truncate: bool = False
    """Truncate long conversations as the contract specifies, instead of refusing them."""

    @model_validator(mode="after")
    def _one_of_both(self):
        if (self.conversations is None) == (self.tokens is None):
            raise ValueError("give either conversations or tokens")
        return self


class ClassifyRequest(BaseModel):
    """`POST /classify` of vLLM's pooling server: `input` (rendered text or token ids) or `messages`.

    What would change a number beside the contract is refused; other settings of vLLM's are ignored.
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
    def _only_what_the_contract_allows(self):
        if (self.input is None) == (self.messages is None):
            raise ValueError("give either input or messages")
        if self.use_activation:
            raise ValueError("use_activation: scores here are raw; leave it out or set it to false")
        if self.truncate_prompt_tokens not in (None, -1):
            raise ValueError("truncate_prompt_tokens: the contract says what is cut; -1 allows it to cut")
        for name in ("add_generation_prompt", "continue_final_message", "chat_template", "chat_template_kwargs"):
            if getattr(self, name):
                raise ValueError(f"{name}: the contract says how messages are rendered; leave it out")
        return self


class RewardRequest(BaseModel):
    """`POST /get_reward` of OpenRLHF: `query` is prompt and answer as rendered text, `prompts` their heads."""

    model_config = ConfigDict(strict=True, extra="ignore")
    query: list[str]
    prompts: list[str] | None = None
    labels: Any = None

    @model_validator(mode="after")
    def _as_many_prompts_as_queries(self):
        if self.prompts is not None and len(self.prompts) != len(self.query):
            raise ValueError(f"{len(self.prompts)} prompts for {len(self.query)} queries")
        return self


def parsed(kind: type[Asked], body: bytes) -> Asked:
    """The request in a body: 400 for what is not JSON, 422 for other fields or types than `kind` has."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        location = ".".join(map(str, first["loc"]))[:80]
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "json_invalid":
            raise Refused(400, f"the body is not JSON: {message.removeprefix('Invalid JSON: ')}") from None
        raise Refused(422, f"{location}: {message}" if location else message) from None
