"""What a Redis store remembers of sessions, and when it takes something for lost."""

from __future__ import annotations

import pytest

from turnstate.stores.redis.losses import LossDetector
from turnstate.stores.values import Address, Position, Receipt
from turnstate.testing.contract.scenes import HERE, change, message, session

BORN = 1_750_000_000_000_000


def receipt(last: int, *, first: int | None = None, version: int | None = None, **fields: int) -> Receipt:
    return Receipt(
        **{"epoch": 1, "branch": 1} | fields,
        version=last if version is None else version,
        first=last if first is None else first,
        last=last,
    )


def wrote(
    losses: LossDetector,
    id: str,
    got: Receipt,
    *,
    at: Address = HERE,
    gone: bool = False,
    born: int = BORN,
    known: bool = True,
) -> None:
    before = losses.known(at) if known else None
    losses.wrote(change(message(id), at=at), got, born=born, known=before, gone=gone)


def faults(losses: LossDetector) -> list[str]:
    return [finding.fault for finding in losses.findings()]


def test_a_log_that_only_grows_is_not_suspected() -> None:
    losses = LossDetector()
    for seq in range(1, 9):
        wrote(losses, f"m{seq}", receipt(seq))
    wrote(losses, "f", receipt(4, version=9, branch=2))
    wrote(losses, "r", receipt(1, version=10, branch=3, epoch=2))
    assert faults(losses) == []
    assert losses.known(HERE).head == Position(3, 1)


@pytest.mark.req("G6")
def test_an_append_after_an_earlier_entry_proves_a_loss() -> None:
    losses = LossDetector()
    wrote(losses, "m9", receipt(9))
    wrote(losses, "m6", receipt(6), gone=True)
    (finding,) = losses.findings()
    assert (finding.tenant, finding.session) == HERE
    assert (finding.branch, finding.seq, finding.id, finding.done) == (1, 9, "m9", "")
    assert finding.fault == (
        "entry 9 of branch 1 was acknowledged and is missing; the log was found to end at entry 5 of branch 1"
    )


@pytest.mark.req("G6")
def test_a_loss_that_was_written_over_is_proven_by_the_entry() -> None:
    losses = LossDetector()
    wrote(losses, "m9", receipt(9))
    losses.saw(session(seq=11, version=11), born=BORN, known=losses.known(HERE))
    wrote(losses, "m12", receipt(12), gone=True)
    (finding,) = losses.findings()
    assert (finding.seq, finding.id) == (9, "m9")
    assert "other entries were written since, up to entry 11" in finding.fault


@pytest.mark.req("G6")
def test_a_session_that_is_read_with_less_than_it_had_proves_a_loss() -> None:
    losses = LossDetector()
    losses.saw(session(seq=5, version=5), born=BORN, known=None)
    losses.saw(session(seq=4, version=4), born=BORN, known=losses.known(HERE))
    assert "the log was found to end at entry 4" in faults(losses)[0]


def test_answers_that_overtake_one_another_prove_nothing() -> None:
    losses = LossDetector()
    wrote(losses, "m1", receipt(1))
    known = losses.known(HERE)
    later, earlier = change(message("m3")), change(message("m2"))
    losses.wrote(later, receipt(3), born=BORN, known=known, gone=False)
    losses.wrote(earlier, receipt(2), born=BORN, known=known, gone=False)
    losses.saw(session(seq=2, version=2), born=BORN, known=known)
    assert faults(losses) == []
    assert losses.known(HERE).own.id == "m3"


def test_a_repeated_request_says_nothing_of_where_the_log_ends() -> None:
    losses = LossDetector()
    wrote(losses, "m9", receipt(9))
    again = Receipt(epoch=1, version=2, branch=1, first=2, last=2, repeated=True)
    wrote(losses, "other", again)
    assert faults(losses) == []
    assert losses.known(HERE).head.seq == 9


def test_another_session_of_the_same_name_is_no_loss() -> None:
    losses = LossDetector()
    wrote(losses, "m9", receipt(9))
    wrote(losses, "m1", receipt(1), born=BORN + 1)
    assert faults(losses) == []
    assert losses.known(HERE).own.id == "m1"


def test_a_missing_session_is_reported_with_both_reasons() -> None:
    losses = LossDetector()
    wrote(losses, "m9", receipt(9))
    losses.lost(HERE, losses.known(HERE), None)
    assert "it was removed by another process, or it is lost" in faults(losses)[0]


def test_a_session_that_this_store_removed_is_forgotten() -> None:
    losses = LossDetector()
    wrote(losses, "m9", receipt(9))
    known = losses.known(HERE)
    losses.forget(HERE)
    losses.lost(HERE, known, None)
    assert faults(losses) == []


def test_a_loss_is_reported_once_and_as_long_as_the_store_is_open() -> None:
    losses = LossDetector()
    wrote(losses, "m9", receipt(9))
    wrote(losses, "m6", receipt(6), gone=True)
    for seq in range(7, 20):
        wrote(losses, f"n{seq}", receipt(seq))
    (fault,) = faults(losses)
    wrote(losses, "n20", receipt(20))
    assert faults(losses) == [fault]


def test_it_remembers_the_sessions_that_were_used_last() -> None:
    losses = LossDetector(2)
    for name in ("s1", "s2", "s1", "s3"):
        wrote(losses, "m", receipt(1), at=Address("acme", name), known=False)
    assert [at.session for at, _ in losses.all_known()] == ["s1", "s3"]


def test_where_nothing_can_be_lost_nothing_is_remembered() -> None:
    losses = LossDetector(0)
    wrote(losses, "m", receipt(1))
    assert losses.all_known() == []
