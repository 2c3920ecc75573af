"""Documents of conversations with something wrong in them: refused with the place, or read and usable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.harness.thoroughness import examples
from tests.properties.conversation_strategies import mutations
from turnstate.conversation import ConversationState, from_json, to_json
from turnstate.errors import NothingToUndo, TurnstateError

pytestmark = pytest.mark.req("I9")

KEPT = Path(__file__).parents[1] / "unit/conversation/version_1"
OLD = [json.loads(path.read_text())["document"] for path in sorted(KEPT.glob("*.json"))]
NEW = [json.loads(json.dumps(to_json(from_json(document)))) for document in OLD]


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """Draw a document of either version; most have something wrong in their log, some elsewhere."""
    document = draw(st.sampled_from(OLD + NEW))
    if draw(st.integers(0, 3)):
        return {**document, "turnstate": draw(mutations(document["turnstate"]))}
    return draw(mutations(document))


def exactly(state: ConversationState) -> str:
    return json.dumps(to_json(state))


@given(damaged())
@examples(300, long=2_000)
def test_a_damaged_document_is_refused_or_read_and_usable(document: Any) -> None:
    try:
        state = from_json(document)
    except TurnstateError as error:
        event(type(error).__name__)
        return
    event("read")
    assert exactly(from_json(json.loads(exactly(state)))) == exactly(state)
    for kept in state.kept_tangents():
        aside = from_json(json.loads(exactly(state)))
        aside.reopen_tangent(kept.name)
        assert aside.is_in_tangent_mode()
    while state.is_in_tangent_mode():
        state.exit_tangent_mode_with_tail()
    for _ in range(30):
        try:
            state.undo()
        except NothingToUndo:
            break
    state.set_next_user_message("go on")
    assert state.preview().messages
    exactly(from_json(json.loads(exactly(state))))
