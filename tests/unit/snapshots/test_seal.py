"""A seal tells damage from foreign origin, by the bytes alone, and hides nothing of the document."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.snapshots.snapshot_scenes import snapshot
from turnstate import ContextSnapshot, Message, ToolCallRequest, ToolCallResult, strict_json
from turnstate.errors import ForbiddenJSON, InputError, TooLarge
from turnstate.home import SigningKey
from turnstate.snapshots import seal

KEY, OTHER = SigningKey(b"k" * 32), SigningKey(b"o" * 32)
DATA = seal.sealed(snapshot(7, extension={"seq": 4}), session="s1", key=KEY)


def opened(data: bytes, *, session: str = "s1", key: SigningKey | None = KEY) -> seal.Verdict:
    return seal.opened(data, session=session, key=key)


@pytest.mark.req("H1", "H2")
@pytest.mark.parametrize("extension", [{}, {"seq": 4}, {"a": {}}, {"a": {"b": {"c": [{}]}}}])
@pytest.mark.parametrize("summary", [None, "", "what was"])
def test_a_sealed_snapshot_comes_back_as_it_was(extension: dict[str, object], summary: str | None) -> None:
    taken = snapshot(1, extension=extension, summary=summary)
    verdict = opened(seal.sealed(taken, session="s1", key=KEY))
    assert (verdict.state, verdict.reason, verdict.snapshot) == ("own", "", taken)


@pytest.mark.req("H1")
def test_a_sealed_snapshot_is_one_document_with_exactly_the_keys_of_the_specification() -> None:
    document = json.loads(seal.sealed(snapshot(extension={"seq": 4}, summary="s"), session="s1", key=KEY))
    assert list(document) == ["version", "timestamp", "tokenCount", "messages", "summary", "extension"]
    assert list(document["extension"]) == ["seq", "seal"]
    assert list(document["extension"]["seal"]) == ["session", "hmac", "checksum"]


@pytest.mark.req("H1")
def test_any_reader_of_snapshots_reads_a_sealed_one() -> None:
    assert ContextSnapshot.from_json(DATA).messages == snapshot(7).messages


@pytest.mark.req("H2", "H3")
def test_no_change_of_a_single_bit_passes() -> None:
    for position in range(len(DATA)):
        for bit in range(8):
            changed = bytearray(DATA)
            changed[position] ^= 1 << bit
            verdict = opened(bytes(changed))
            assert (verdict.state, verdict.snapshot) == ("damaged", None), (position, bit)
            assert verdict.reason


@pytest.mark.req("H2", "H3")
def test_no_cut_at_any_length_passes_and_nothing_may_follow() -> None:
    for length in range(len(DATA)):
        assert opened(DATA[:length]).state == "damaged"
        assert opened(DATA[length:] if length else b"").state == "damaged"
    assert {opened(DATA + tail).state for tail in (b" ", b"\n", b"}", DATA)} == {"damaged"}


@pytest.mark.req("H2")
@pytest.mark.parametrize("indent", [None, 2])
def test_a_document_that_was_laid_out_anew_is_damaged(indent: int | None) -> None:
    assert opened(json.dumps(json.loads(DATA), indent=indent).encode()).state == "damaged"


@pytest.mark.req("H4")
@pytest.mark.parametrize("key", [OTHER, None])
def test_what_another_installation_wrote_is_foreign_and_whole(key: SigningKey | None) -> None:
    verdict = opened(DATA, key=key)
    assert verdict.state == "foreign"
    assert verdict.snapshot == snapshot(7, extension={"seq": 4})


@pytest.mark.req("H4")
def test_a_forger_who_knows_the_layout_does_not_know_the_key() -> None:
    forged = seal.sealed(snapshot(text="obey"), session="s1", key=SigningKey(b"\0" * 32))
    assert opened(forged).state == "foreign"


@pytest.mark.req("H4")
def test_a_snapshot_of_one_session_is_foreign_to_another() -> None:
    verdict = opened(DATA, session="s2")
    assert (verdict.state, verdict.reason) == ("foreign", "it belongs to session 's1'")


@pytest.mark.req("H4")
def test_a_document_without_a_seal_is_foreign() -> None:
    verdict = opened(snapshot(3, extension={"seq": 1}).to_json())
    assert (verdict.state, verdict.reason) == ("foreign", "it has no seal")
    assert verdict.snapshot == snapshot(3, extension={"seq": 1})


@pytest.mark.req("H3")
@pytest.mark.parametrize("key", [KEY, OTHER])
def test_a_newer_version_is_neither_damaged_nor_read(key: SigningKey) -> None:
    class Newer(ContextSnapshot, frozen=True, kw_only=True):
        def to_json(self) -> bytes:
            return super().to_json().replace(b'"1.0"', b'"9.0"', 1) if self.messages else super().to_json()

    taken = snapshot()
    fields = {name: getattr(taken, name) for name in taken.__struct_fields__}
    verdict = opened(seal.sealed(Newer(**fields), session="s1", key=key))
    assert (verdict.state, verdict.snapshot) == ("newer", None)
    assert "update Turnstate" in verdict.reason


@pytest.mark.req("H3")
def test_json_without_a_version_is_no_snapshot_of_a_newer_turnstate() -> None:
    verdict = opened(b'{"messages": []}')
    assert (verdict.state, verdict.snapshot) == ("damaged", None)
    assert "it is not a snapshot" in verdict.reason


def test_a_seal_that_was_there_is_replaced() -> None:
    again = seal.sealed(ContextSnapshot.from_json(DATA), session="s1", key=KEY)
    assert again == DATA


@pytest.mark.req("H2")
@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"extension": {"a": float("nan")}}, "$.extension.a"),
        ({"extension": {"a": "\ud800"}}, "$.extension.a"),
        ({"extension": {"a": {1, 2}}}, "$.extension.a"),
        ({"summary": "\ud800"}, "$.summary"),
        ({"summary": 5}, "$.summary"),
        ({"token_count": 1.5}, "$.tokenCount"),
        ({"timestamp": "now"}, "$.timestamp"),
    ],
)
def test_what_would_not_be_read_back_is_not_written(change: dict[str, object], path: str) -> None:
    taken = snapshot()
    fields = {name: getattr(taken, name) for name in taken.__struct_fields__} | change
    with pytest.raises(InputError) as caught:
        seal.sealed(ContextSnapshot(**fields), session="s1", key=KEY)
    assert caught.value.path == path


@pytest.mark.req("H2")
def test_more_than_can_be_read_back_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seal.MAX_BYTES == strict_json.MAX_BYTES
    monkeypatch.setattr(
        seal, "MAX_BYTES", len(seal.sealed(snapshot(text="w" * 1_000), session="s1", key=KEY))
    )
    seal.sealed(snapshot(text="w" * 1_000), session="s1", key=KEY)
    with pytest.raises(TooLarge, match="are read back"):
        seal.sealed(snapshot(text="w" * 1_001), session="s1", key=KEY)


@pytest.mark.req("H2")
def test_the_most_deeply_nested_result_that_a_message_takes_can_be_read_back() -> None:
    deep: object = 0
    for _ in range(180):
        deep = [deep]
    call = ToolCallRequest(name="f", args={})
    said = (
        Message.assistant(tool_calls=[call]),
        Message.tool([ToolCallResult(tool_call_id=call.id, result=deep)]),
    )
    taken = ContextSnapshot(timestamp=0, token_count=0, messages=said)
    assert opened(seal.sealed(taken, session="s1", key=KEY)).snapshot == taken


def test_a_forbidden_extension_says_what_it_holds() -> None:
    with pytest.raises(ForbiddenJSON, match="not JSON"):
        seal.sealed(snapshot(extension={"a": object()}), session="s1", key=KEY)


@given(st.binary() | st.text().map(str.encode) | st.sampled_from([DATA]).flatmap(st.permutations).map(bytes))
@example(b"{}")
@example(DATA[-300:])
@example(b'{"version":"1.0","timestamp":0,"tokenCount":0,"messages":[],"extension":{"seal":5}}')
def test_whatever_the_bytes_there_is_a_verdict(data: bytes) -> None:
    assert opened(data).state in ({"own"} if data == DATA else {"damaged", "newer", "foreign"})


@given(st.text(), st.dictionaries(st.text(), st.text()))
def test_any_session_and_extension_come_back(session: str, extension: dict[str, str]) -> None:
    data = seal.sealed(snapshot(extension=extension), session=session, key=KEY)
    verdict = opened(data, session=session)
    assert verdict.snapshot == snapshot(extension={k: v for k, v in extension.items() if k != "seal"})
