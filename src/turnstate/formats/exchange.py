"""The part of all formats that talks to a provider: requests out, replies in.

A request holds the rendered messages, the tools and the caller's options. It is checked against the
provider's rules and returned as the arguments of the SDK's call. A reply is read like a message in a
document, so it goes back to the provider unchanged; only its ids are new, since providers repeat and omit
theirs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import force_setattr, replace

from .. import strict_json
from ..errors import InvalidConversation, InvalidPayload, InvalidSetting
from ..message import Message, minted
from ..part import Native
from ..toolspec import ToolSpec
from .adapter import Adapter
from .draft import Draft, Settling
from .edits import difference, put, value_at
from .replies.reply import Collector, ReceivedMessage, ResponseContent, ResponseStream, collected, plain
from .rules.fields import departures


class Exchange(Adapter):
    """A format that can build requests to its provider and read the replies."""

    @abstractmethod
    def _answer(self, payload: Any) -> ResponseContent:
        """Split a response into its items and the reported usage."""

    @abstractmethod
    def _stream(self) -> ResponseStream:
        """Return an accumulator that turns a stream into a response."""

    def _read_reply(self, items: list[Any]) -> Draft:
        """Read the items of a response, which form one message."""
        (draft,) = self._read(items)
        return draft

    def _settled(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return a request with the fields that the provider requires and options that fit its messages."""
        return request

    def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return a request as the arguments of the SDK's call."""
        return request

    def request(
        self, messages: Sequence[Message], /, *, tools: Iterable[ToolSpec] = (), **options: Any
    ) -> dict[str, Any]:
        """Return the arguments of the SDK's call: the messages, the tools, and the options unchanged."""
        if self.list_key in options:
            raise InvalidSetting(
                f"{self.list_key} is built from the messages argument and cannot be passed as an option"
            )
        request = self._settled(self.render(messages, tools=tools) | options)
        violations = self.validate(request, request=True)
        if violations:  # rewrite only what the provider rejects: what was sent before stays the same
            sent = [self.mended(message)[0] for message in messages]
            request = self._settled(self.render(sent, tools=tools) | options)
            violations = self.validate(request, request=True)
        if violations:
            more = f" (and {len(violations) - 1:,} more)" if len(violations) > 1 else ""
            raise InvalidConversation(f"{self.name} would reject the request: {violations[0]}{more}")
        return self._call(request)

    def reply(self, response: Any) -> ReceivedMessage:
        """Return the message in a response, with new ids, the current time, and the usage."""
        payload = plain(response)
        strict_json.check(payload)
        answer = self._answer(payload)
        draft = self._read_reply(self._tidied(answer.items))
        if draft.role != "assistant":
            raise InvalidPayload(f"expected a reply from the assistant, got role {draft.role}", path="$")
        message = Settling(Native(format=self.name)).message(0, draft)
        scope = self._scope([message])
        scope.enter(message, 0, leading=False)
        native = Native(format=self.name, edits=difference(self._write(message, scope), draft.piece))
        force_setattr(message, "native", native)  # no one else has the message yet
        if not (message.content or message.tool_calls or self._takes(message)):
            force_setattr(message, "native", Native(format=self.name))  # it is empty: send it in our own form
        (new,) = minted([message])
        fields = {name: getattr(new, name) for name in Message.__struct_fields__}
        calls = tuple(replace(call, parsed_id=None) for call in new.tool_calls)
        return ReceivedMessage(**fields | {"tool_calls": calls}, usage=answer.usage)

    def collector(self) -> Collector:
        """Return a collector for a streamed reply, fed chunk by chunk."""
        return Collector(self._stream(), self.reply)

    def collect(self, chunks: Any, *, on_text: Callable[[str], object] | None = None) -> Any:
        """Collect a reply from the chunks of a stream; return an awaitable if the stream is asynchronous."""
        collector = self.collector()
        if isinstance(chunks, dict) and "stream" in chunks:  # as boto3 returns it
            chunks = chunks["stream"]
        if isinstance(chunks, AsyncIterable):
            return collected(collector, chunks, on_text)
        if not isinstance(chunks, Iterable):
            raise InvalidPayload(f"expected the chunks of a stream, got {type(chunks).__name__}", path="$")
        for chunk in chunks:
            if (text := collector.add(chunk)) and on_text:
                on_text(text)
        return collector.reply()

    def _tidied(self, items: list[Any]) -> list[Any]:
        """Remove what carries no information from a response's items: nulls and empty response fields."""
        whole = {self.list_key: items}
        silent = [
            one.path
            for one in departures(whole, self.fields)
            if one.is_response and not value_at(whole, one.path)
        ]
        tidy: list[Any] = put(whole, [(path, UNSET) for path in silent])[self.list_key]
        return tidy
