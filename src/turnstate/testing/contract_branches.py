"""The promises about branches: a fork copies nothing, goes on counting, and loses nothing.

A branch is a parent and a place on it; the head of a session is always the tip of one branch.
"""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

from ..errors import InputError, NotFound
from ..stores.port import Store
from ..stores.values import Branch, Fork, Position, Receipt, Span
from .contract_scenes import (
    END,
    HERE,
    NOW,
    Scene,
    change,
    equal,
    message,
    path,
    refused,
    scenario,
    session,
    unchanged,
)

__all__ = ["BranchContract"]


class BranchContract(Scene):
    """Making and selecting branches."""

    @scenario
    async def test_a_fork_goes_on_counting_where_it_left_its_parent(self, store: Store) -> None:
        await store.create(session())
        await store.commit(change(*(message(f"m{n}", tokens=10) for n in range(1, 6))))
        fork = Fork(parent=1, seq=3, name="aside", operation="tangent")
        receipt = await store.commit(change(message("x", tokens=1), fork=fork, now=NOW + 1))
        equal(receipt, Receipt(epoch=1, version=2, branch=2, first=4, last=4), "the receipt of a fork")
        equal((await store.get(HERE)).total, 31, "the total behind a fork")
        made = Branch(
            id=2, parent=1, fork_seq=3, created=NOW + 1, name="aside", operation="tangent", former=1
        )
        equal((await store.branches(HERE))[1], made, "the branch that was made")
        equal([row.id for row in await path(store, receipt.head)], ["m1", "m2", "m3", "x"], "the path")
        equal(len(await store.read(HERE, Span(1, 1, END))), 5, "the parent after a fork")

    @scenario
    async def test_a_new_session_has_one_root_branch(self, store: Store) -> None:
        await store.create(session())
        root = Branch(id=1, parent=None, fork_seq=0, created=NOW, operation="create")
        equal(await store.branches(HERE), [root], "branches of a new session")

    @scenario
    async def test_a_fork_without_a_parent_is_a_root_that_begins_at_one(self, store: Store) -> None:
        await store.create(session())
        await store.commit(change(message("a", tokens=4), message("b", tokens=4)))
        receipt = await store.commit(
            change(message("c", tokens=3), fork=Fork(parent=None, seq=2, operation="reset"))
        )
        equal((receipt.branch, receipt.first, receipt.last), (2, 1, 1), "the receipt of a new root")
        equal((await store.get(HERE)).total, 3, "the total of a new root")
        root = (await store.branches(HERE))[1]
        equal((root.parent, root.fork_seq, root.former), (None, 0, 1), "the new root")

    @scenario
    async def test_forks_of_forks_keep_their_totals(self, store: Store) -> None:
        await store.create(session())
        await store.commit(change(*(message(f"a{n}", tokens=1) for n in range(4))))
        await store.commit(
            change(
                *(message(f"b{n}", tokens=10) for n in range(3)), fork=Fork(parent=1, seq=2, operation="x")
            )
        )
        for seq, total in [(5, 32), (3, 12), (2, 2), (1, 1), (0, 0)]:
            fork = Fork(parent=2, seq=seq, operation="x")
            receipt = await store.commit(change(message(f"c{seq}", tokens=100), fork=fork))
            equal((await store.get(HERE)).total, total + 100, f"the total of a fork behind {seq}")
            equal(receipt.first, seq + 1, f"the first entry of a fork behind {seq}")
            rows = await path(store, receipt.head)
            equal([row.seq for row in rows], list(range(1, seq + 2)), "numbers on the path")
            equal(rows[-1].total, sum(row.tokens for row in rows), "a running sum over forks")

    @scenario
    async def test_an_empty_fork_stands_at_its_fork_point(self, store: Store) -> None:
        await store.create(session())
        await store.commit(change(message("a", tokens=2), message("b", tokens=3)))
        receipt = await store.commit(change(fork=Fork(parent=1, seq=1, operation="rewind")))
        equal(receipt.head, Position(2, 1), "the head of an empty fork")
        equal((await store.get(HERE)).total, 2, "the total at the fork point")
        await store.commit(change(message("c", tokens=4)))
        row = await store.get(HERE)
        equal((row.head, row.total), (Position(2, 2), 6), "the fork after its first entry")
        await store.commit(change(message("d"), fork=Fork(parent=2, seq=2, operation="fork")))
        nested = await store.commit(change(select=2))
        equal(nested.head, Position(2, 2), "the head after going back to the fork")

    @scenario
    async def test_selecting_a_branch_puts_the_head_at_its_tip(self, store: Store) -> None:
        await store.create(session())
        await store.commit(change(message("a", tokens=2), message("b", tokens=3)))
        await store.commit(change(message("c", tokens=9), fork=Fork(parent=1, seq=1, operation="fork")))
        receipt = await store.commit(change(select=1))
        equal((receipt.head, receipt.first), (Position(1, 2), 3), "the head after selecting")
        equal((await store.get(HERE)).total, 5, "the total after selecting")
        receipt = await store.commit(change(message("d"), select=2))
        equal((receipt.head, receipt.first), (Position(2, 3), 3), "selecting and appending at once")
        equal(len(await store.branches(HERE)), 2, "selecting makes no branch")

    @scenario
    async def test_branches_and_places_that_are_not_there_are_not_found(self, store: Store) -> None:
        await store.create(session(), [message("a")])
        wrong = [
            change(message("x"), select=2),
            change(message("x"), select=0),
            change(message("x"), fork=Fork(parent=2, seq=0, operation="fork")),
            change(message("x"), fork=Fork(parent=1, seq=2, operation="fork")),
            change(message("x"), fork=Fork(parent=1, seq=-1, operation="fork")),
        ]
        for one in wrong:
            async with unchanged(store):
                with refused(NotFound, claim=str(one)):
                    await store.commit(one)

    @scenario
    async def test_a_change_either_makes_a_branch_or_selects_one(self, store: Store) -> None:
        await store.create(session(), [message("a")])
        async with unchanged(store):
            with refused(InputError):
                await store.commit(change(fork=Fork(parent=1, seq=1, operation="fork"), select=1))
