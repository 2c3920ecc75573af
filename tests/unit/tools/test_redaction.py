"""No part of a secret is in what is quoted, wherever the quotation is cut."""

from __future__ import annotations

import pytest

from turnstate.tools.redaction import Redaction

SECRET = "0123456789abcdef"
SIZE = 20
FORMS = ["{}", "{0}{0}", "{0} {0}{0}", "päper {} ", "{0}" * 9]


@pytest.mark.req("L2")
@pytest.mark.parametrize("form", FORMS)
def test_a_text_is_cut_where_no_secret_is(form: str) -> None:
    redaction = Redaction({SECRET: "$S", SECRET[:4]: "$PART", "": "$EMPTY"})
    for around in range(3 * SIZE):
        for text in (f"{'x' * around}{form}", f"{form}{'x' * around}"):
            said = text.format(SECRET)
            kept = said.encode()[-redaction.kept(SIZE) :].decode(errors="replace")
            begun = said.encode()[: redaction.kept(SIZE)].decode(errors="replace")
            for quoted in (redaction(said), redaction.first(begun, SIZE), redaction.last(kept, SIZE)):
                assert not set(quoted) & set(SECRET[:10])
                assert "$EMPTY" not in quoted
            assert redaction(said) == text.format("$S")
            assert redaction.first(said, SIZE).replace("$S", SECRET).startswith(said[:SIZE])
            assert redaction.last(kept, SIZE).replace("$S", SECRET).endswith(said[-SIZE:])


def test_a_secret_of_several_lines_is_found_line_by_line() -> None:
    redaction = Redaction({"-----BEGIN\nAAAABBBBCCCC\n}\n": "$KEY"})
    assert redaction("{AAAABBBBCCCC}") == "{$KEY}"
    assert redaction("a -----BEGIN\nAAAABBBBCCCC\n}\n") == "a $KEY"
