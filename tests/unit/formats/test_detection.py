"""A document tells whose it is, by what only one provider has."""

from __future__ import annotations

import json

from tests.unit.formats.provider_replies import REPLIES
from turnstate import Message, ToolSpec, formats
from turnstate.message import ToolCallResult


def test_the_documents_of_a_provider_are_recognized_with_and_without_their_envelope() -> None:
    for sample in REPLIES:
        provider = formats.get(sample.provider)
        reply = provider.reply(sample.response)
        if not reply.tool_calls:
            continue
        results = Message.tool([ToolCallResult.of(call.id, "fog") for call in reply.tool_calls])
        payload = provider.render([Message.user("How?"), reply, results], tools=[ToolSpec(name="look")])
        assert formats.detect(payload) is provider, sample.name
        assert formats.detect(payload[provider.list_key]) is provider, sample.name
        assert formats.detect(json.loads(json.dumps(payload))) is provider


def test_a_list_of_plain_texts_is_taken_for_openais() -> None:
    plain = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "y"}]},
    ]
    assert formats.detect(plain).name == "openai-chat"
    assert formats.detect({"messages": plain}).name == "openai-chat"
    assert formats.detect({"system": "Be brief.", "messages": plain}).name == "anthropic"


def test_what_is_no_document_is_still_given_a_format_that_says_so() -> None:
    for odd in (None, 7, "text", [], {}, [7, None], {"messages": "text"}, [{"content": [None]}]):
        assert formats.detect(odd).name in formats.names()
