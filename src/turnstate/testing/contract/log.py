"""What a store promises about the log and its branches.

A fork copies nothing, continues the numbering, and loses nothing. A branch is a parent and a place on it; the
head of a session is always the tip of one branch.
"""

from __future__ import annotations

from ...errors import AlreadyExists, InputError, NotFound
from ...stores.port import Store
from ...stores.values import MESSAGE, Address, BranchRow, Fork, Position, Receipt, Record, Span
from .scenes import (
    BODY,
    END,
    HERE,
    NOTE,
    NOW,
    Scene,
    change,
    equal,
    holds,
    message,
    note,
    path,
    refused,
    scenario,
    session,
    unchanged,
)

# ruff: noqa: D102 - the name of a test is its sentence


class BranchContract(Scene):
    """Creating and selecting branches."""

    @scenario
    async def test_a_fork_goes_on_counting_where_it_left_its_parent(self, store: Store) -> None:
        await store.create(session())
        await store.commit(change(*(message(f"m{n}", tokens=10) for n in range(1, 6))))
        fork = Fork(parent=1, seq=3, name="aside", operation="tangent")
        receipt = await store.commit(change(message("x", tokens=1), fork=fork, now=NOW + 1))
        equal(receipt, Receipt(epoch=1, version=2, branch=2, first=4, last=4), "the receipt of a fork")
        equal((await store.get(HERE)).total, 31, "the total after a fork")
        made = BranchRow(
            id=2, parent=1, fork_seq=3, created=NOW + 1, name="aside", operation="tangent", former=1
        )
        equal((await store.branches(HERE))[1], made, "the branch that was made")
        equal([row.id for row in await path(store, receipt.head)], ["m1", "m2", "m3", "x"], "the path")
        equal(len(await store.read(HERE, Span(1, 1, END))), 5, "the parent after a fork")

    @scenario
    async def test_a_new_session_has_one_root_branch(self, store: Store) -> None:
        await store.create(session())
        root = BranchRow(id=1, parent=None, fork_seq=0, created=NOW, operation="create")
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
            equal((await store.get(HERE)).total, total + 100, f"the total of a fork after {seq}")
            equal(receipt.first, seq + 1, f"the first entry of a fork after {seq}")
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


# The log: order without gaps, running totals, branches, and reading what was written.


# ruff: noqa: D102 - the name of a test is its sentence


class LogContract(Scene):
    """Appending and reading."""

    @scenario
    async def test_entries_are_numbered_without_gaps_and_read_back_as_written(self, store: Store) -> None:
        await store.create(session())
        first = await store.commit(change(message("a", tokens=5, body=b'{"n":1}'), note("b", tokens=2)))
        equal(first, Receipt(epoch=1, version=1, branch=1, first=1, last=2), "the first receipt")
        second = await store.commit(change(message("c", tokens=7)))
        equal(second, Receipt(epoch=1, version=2, branch=1, first=3, last=3), "the second receipt")
        rows = await store.read(HERE, Span(1, 1, END))
        equal(
            [(row.branch, row.seq, row.id, row.kind, row.body, row.tokens, row.total) for row in rows],
            [
                (1, 1, "a", MESSAGE, b'{"n":1}', 5, 5),
                (1, 2, "b", "note", NOTE, 2, 7),
                (1, 3, "c", MESSAGE, BODY, 7, 14),
            ],
            "entries as written",
        )
        holds(not any(row.damaged for row in rows), "no entry is damaged")
        row = await store.get(HERE)
        equal((row.head, row.total, row.version), (Position(1, 3), 14, 2), "the session after two changes")

    @scenario
    async def test_a_change_without_records_returns_the_head(self, store: Store) -> None:
        await store.create(session(), [message("a")])
        receipt = await store.commit(change())
        equal((receipt.first, receipt.last, receipt.version), (2, 1, 0), "an empty change")
        equal(receipt.head, Position(1, 1), "the head after an empty change")

    @scenario
    async def test_the_version_grows_with_messages_and_branches_and_nothing_else(self, store: Store) -> None:
        await store.create(session())
        steps = [
            (change(message("a"), message("b")), 1),
            (change(note("n1"), note("n2", kind="cut")), 1),
            (change(note("n3"), message("c")), 2),
            (change(fork=Fork(parent=1, seq=2, operation="fork")), 3),
            (change(select=1), 4),
            (change(), 4),
            (change(next_epoch=True), 4),
            (change(end="closed"), 4),
        ]
        for step, version in steps:
            equal((await store.commit(step)).version, version, f"the version after {step}")
            equal((await store.get(HERE)).version, version, "the version of the session")

    @scenario
    async def test_only_a_message_or_a_new_epoch_is_activity(self, store: Store) -> None:
        await store.create(session())
        steps = [
            (change(note("a"), now=NOW + 1), NOW),
            (change(message("b"), now=NOW + 5), NOW + 5),
            (change(message("c"), now=NOW + 3), NOW + 5),
            (change(select=1, now=NOW + 8), NOW + 5),
            (change(next_epoch=True, now=NOW + 9), NOW + 9),
        ]
        for step, active in steps:
            await store.commit(step)
            equal((await store.get(HERE)).active, active, f"activity after {step}")

    @scenario
    async def test_an_entry_id_that_is_taken_refuses_the_whole_change(self, store: Store) -> None:
        await store.create(session(), [message("a")])
        await store.commit(change(message("b"), fork=Fork(parent=1, seq=1, operation="fork")))
        wrong = [
            change(message("x"), message("b")),
            change(message("x"), message("a")),
            change(message("x"), message("y"), message("x")),
            change(message("b"), fork=Fork(parent=1, seq=0, operation="fork")),
            change(message("b"), next_epoch=True),
        ]
        for one in wrong:
            async with unchanged(store):
                with refused(AlreadyExists, claim=str(one)):
                    await store.commit(one)
        await store.commit(change(message("x")))
        await store.create(session("s2"))
        await store.commit(change(message("a"), at=Address(HERE.tenant, "s2")))

    @scenario
    async def test_a_span_gives_what_lies_in_it(self, store: Store) -> None:
        await store.create(session())
        await store.commit(change(*(message(f"m{n}") for n in range(1, 11))))
        await store.commit(
            change(*(message(f"x{n}") for n in range(5, 8)), fork=Fork(parent=1, seq=4, operation="f"))
        )
        spans: list[tuple[Span, list[str]]] = [
            (Span(1, 3, 5), ["m3", "m4", "m5"]),
            (Span(1, 9, 99), ["m9", "m10"]),
            (Span(1, 11, 99), []),
            (Span(1, 5, 3), []),
            (Span(1, -5, 1), ["m1"]),
            (Span(2, 1, 6), ["x5", "x6"]),
            (Span(2, 1, 4), []),
            (Span(3, 1, END), []),
        ]
        for span, ids in spans:
            equal([row.id for row in await store.read(HERE, span)], ids, f"{span}")

    @scenario
    async def test_a_limit_gives_the_first_or_the_newest_always_in_order(self, store: Store) -> None:
        await store.create(session(), [message(f"m{n}") for n in range(1, 11)])
        for limit, first, newest in [
            (3, [2, 3, 4], [6, 7, 8]),
            (7, [*range(2, 9)], [*range(2, 9)]),
            (0, [], []),
            (99, [*range(2, 9)], [*range(2, 9)]),
        ]:
            rows = await store.read(HERE, Span(1, 2, 8), limit=limit)
            equal([row.seq for row in rows], first, f"the first {limit}")
            rows = await store.read(HERE, Span(1, 2, 8), limit=limit, newest=True)
            equal([row.seq for row in rows], newest, f"the newest {limit}")

    @scenario
    async def test_entries_of_some_kinds_are_read_without_the_others(self, store: Store) -> None:
        kinds = ["note", MESSAGE, "cut", "prompt", "note", MESSAGE, "note", "cut"]
        await store.create(session(), [note(f"e{n}", kind=kind) for n, kind in enumerate(kinds, start=1)])
        await store.commit(change(note("f", kind="note"), fork=Fork(parent=1, seq=4, operation="fork")))
        for span, wanted, limit, newest, seqs in (
            (Span(1, 1, END), ["note"], None, False, [1, 5, 7]),
            (Span(1, 1, END), ["note"], 2, False, [1, 5]),
            (Span(1, 1, END), ["note"], 2, True, [5, 7]),
            (Span(1, 2, 7), ["cut", "note"], None, False, [3, 5, 7]),
            (Span(1, 2, END), ["note", "cut"], 2, True, [7, 8]),
            (Span(1, 1, END), ["note", MESSAGE], None, True, [1, 5, 7]),
            (Span(1, 1, END), [MESSAGE], None, False, []),
            (Span(1, 1, END), [], None, False, []),
            (Span(1, 1, END), ["note"], 0, False, []),
            (Span(1, 8, 2), ["note"], None, False, []),
            (Span(2, 1, END), ["note", "cut"], None, False, [5]),
            (Span(9, 1, END), ["note"], None, False, []),
        ):
            found = await store.read(HERE, span, limit=limit, newest=newest, kinds=wanted)
            equal([row.seq for row in found], seqs, f"{wanted} of {span}, {limit}, newest: {newest}")
            holds(all(row.kind in wanted for row in found), "entries of these kinds")

    @scenario
    async def test_entries_are_found_by_their_ids_in_the_order_of_the_log(self, store: Store) -> None:
        await store.create(session(), [message(f"m{n}") for n in range(1, 2_001)])
        await store.commit(change(message("x"), fork=Fork(parent=1, seq=5, operation="f")))
        found = await store.find(HERE, ["x", "m9", "nobody", "m2", "m9", "' OR 1=1 --"])
        equal([(row.branch, row.seq, row.id) for row in found], [(1, 2, "m2"), (1, 9, "m9"), (2, 6, "x")], "")
        equal(await store.find(HERE, []), [], "no ids")
        many = await store.find(HERE, [f"m{n}" for n in range(2_000, 0, -1)])
        equal([row.seq for row in many], list(range(1, 2_001)), "two thousand ids at once")

    @scenario
    async def test_the_newest_of_each_kind_is_found_over_several_spans(self, store: Store) -> None:
        await store.create(session(), [note("p1", kind="prompt"), message("a"), note("c1", kind="cut")])
        await store.commit(change(note("p2", kind="prompt"), message("b"), note("c2", kind="cut")))
        forked = Fork(parent=1, seq=4, operation="f")
        await store.commit(
            change(message("c"), note("u1", kind="usage"), note("u2", kind="usage"), fork=forked)
        )
        path_of_fork = [Span(2, 5, END), Span(1, 1, 4)]
        kinds = ["prompt", "cut", "usage", MESSAGE, "tangent"]
        found = await store.newest(HERE, path_of_fork, kinds)
        equal(
            {kind: row.id for kind, row in found.items()},
            {"prompt": "p2", "cut": "c1", "usage": "u2", MESSAGE: "c"},
            "the newest of each kind on the fork",
        )
        found = await store.newest(HERE, [Span(1, 1, 3)], ["prompt", "cut"])
        equal({kind: row.id for kind, row in found.items()}, {"prompt": "p1", "cut": "c1"}, "up to a place")
        equal(await store.newest(HERE, [Span(1, 1, END)], []), {}, "no kinds")
        equal(await store.newest(HERE, [], ["prompt"]), {}, "no spans")

    @scenario
    async def test_bodies_are_kept_byte_for_byte(self, store: Store) -> None:
        bodies = [
            b"",
            bytes(range(256)),
            b'{"nul":"a\x00b"}',
            '{"text":"😀 \U0010ffff \u2028 𠮷"}'.encode(),
            b"'; DROP TABLE session; --",
            bytes(range(256)) * 40_960,
        ]
        records = [Record(id=f"m{n}", kind=MESSAGE, body=body) for n, body in enumerate(bodies)]
        await store.create(session())
        await store.commit(change(*records))
        rows = await store.read(HERE, Span(1, 1, END))
        for row, body in zip(rows, bodies, strict=True):
            holds(row.body == body and not row.damaged, f"a body of {len(body)} bytes comes back as it was")

    @scenario
    async def test_a_session_that_is_not_there_is_not_found_by_any_reader(self, store: Store) -> None:
        for calls in (
            lambda: store.commit(change(message("a"))),
            lambda: store.read(HERE, Span(1, 1, END)),
            lambda: store.find(HERE, ["a"]),
            lambda: store.newest(HERE, [Span(1, 1, END)], ["prompt"]),
            lambda: store.branches(HERE),
        ):
            with refused(NotFound):
                await calls()
