"""Stores with one planted bug each, and the test of the contract that must catch it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from msgspec import structs

from turnstate.errors import Busy
from turnstate.stores.admission import KnownKey
from turnstate.stores.memory import MemoryStore
from turnstate.stores.memory.tables import MemoryTables, StoredSession
from turnstate.stores.values import (
    Address,
    Change,
    FeedPage,
    Hit,
    Key,
    Lease,
    Parcel,
    Receipt,
    Record,
    Removed,
    Row,
    SessionFilter,
    SessionRow,
    Span,
)


def without(change: Change, **fields: Any) -> Change:
    """Return a change that does not ask for this."""
    return structs.replace(change, **fields)


class SkipsTheKey(MemoryStore):
    caught_by = "test_a_repeated_key_gives_the_first_receipt_whatever_happened_since"

    async def commit(self, change: Change) -> Receipt:
        return await super().commit(without(change, key=None))


class IgnoresTheDigest(MemoryStore):
    caught_by = "test_each_check_refuses_and_changes_nothing"

    async def commit(self, change: Change) -> Receipt:
        return await super().commit(without(change, key=change.key and Key(change.key.name, b"")))


class NeverForgetsAKey(MemoryStore):
    caught_by = "test_keys_are_forgotten_when_their_time_is_over"

    async def commit(self, change: Change) -> Receipt:
        receipt = await super().commit(change)
        if change.key:
            known = KnownKey(change.key.digest, receipt, 2**60)
            self._state.sessions[change.at]._keys[change.key.name] = known
        return receipt


class ForgetsKeysByAnyClock(MemoryStore):
    caught_by = "test_a_clock_that_may_have_jumped_forgets_no_key"

    async def commit(self, change: Change) -> Receipt:
        return await super().commit(without(change, trusts_clock=True))


class ChecksTheVersionBeforeTheKey(MemoryStore):
    caught_by = "test_of_two_checks_that_fail_the_earlier_one_answers"

    async def commit(self, change: Change) -> Receipt:
        row = await self.get(change.at)
        if change.epoch in (None, row.epoch) and row.ended is None:
            only_version = Change(
                at=change.at, now=2**60, fence=None, expected_version=change.expected_version
            )
            await super().commit(only_version)
        return await super().commit(change)


class SkipsTheFence(MemoryStore):
    caught_by = "test_while_a_lease_is_live_only_its_holder_writes"

    async def commit(self, change: Change) -> Receipt:
        return await super().commit(without(change, fence=(await self.get(change.at)).fence))


class ResetsWaitForTheLease(MemoryStore):
    caught_by = "test_a_reset_wins_over_a_lease_and_raises_the_fence"

    async def commit(self, change: Change) -> Receipt:
        row = await self.get(change.at)
        if change.next_epoch and row.lease_until > change.now and change.fence is None:
            raise Busy("another worker holds a lease")
        return await super().commit(change)


class ResetsKeepTheFence(MemoryStore):
    caught_by = "test_a_reset_wins_over_a_lease_and_raises_the_fence"

    async def commit(self, change: Change) -> Receipt:
        kept = self._state.kept(change.at)
        before, receipt = kept.row, await super().commit(change)
        held = {"fence": before.fence, "lease_until": before.lease_until, "holder": before.holder}
        kept.row = structs.replace(kept.row, **held)
        return receipt


class SkipsTheEpoch(MemoryStore):
    caught_by = "test_a_reset_begins_an_epoch_and_refuses_the_old_one"

    async def commit(self, change: Change) -> Receipt:
        return await super().commit(without(change, epoch=None))


class VersionGrowsWithDecisions(MemoryStore):
    caught_by = "test_the_version_grows_with_messages_and_branches_and_nothing_else"

    async def commit(self, change: Change) -> Receipt:
        receipt = await super().commit(change)
        if receipt.repeated or change.moves_path or not change.records:
            return receipt
        kept = self._state.sessions[change.at]
        kept.row = structs.replace(kept.row, version=kept.row.version + 1)
        return structs.replace(receipt, version=kept.row.version)


class _AnyTenant(MemoryTables):
    def kept(self, at: Address) -> StoredSession:
        same = [kept for known, kept in self.sessions.items() if known.session == at.session]
        return same[0] if same else super().kept(at)


class LosesTheTenantCheck(MemoryStore):
    caught_by = "test_another_tenants_session_is_not_found_by_any_operation"

    def __init__(self) -> None:
        super().__init__()
        self._tables = _AnyTenant()


class SearchesAllTenants(MemoryStore):
    caught_by = "test_another_tenants_sessions_are_in_no_list"

    async def search(self, tenant: str, words: Sequence[str], **which: Any) -> list[Hit]:
        tenants = {at.tenant for at in self._state.sessions}
        found = [await MemoryStore.search(self, one, words, **which) for one in tenants]
        return [hit for hits in found for hit in hits]


class TakesAnyWord(MemoryStore):
    caught_by = "test_all_the_words_must_be_there"

    async def search(self, tenant: str, words: Sequence[str], **which: Any) -> list[Hit]:
        return await super().search(tenant, words[:1], **which)


class SearchesAllSessions(MemoryStore):
    caught_by = "test_a_search_in_one_session_finds_nothing_of_the_others"

    async def search(self, tenant: str, words: Sequence[str], **which: Any) -> list[Hit]:
        return await super().search(tenant, words, **which | {"session": None})


class AppendsOneByOne(MemoryStore):
    caught_by = "test_an_entry_id_that_is_taken_refuses_the_whole_change"

    async def commit(self, change: Change) -> Receipt:
        if len(change.records) < 2 or change.key or change.fork or change.expected_head:
            return await super().commit(change)
        first = await super().commit(without(change, records=change.records[:1], parcels=()))
        rest = without(change, records=change.records[1:], expected_version=None, select=None)
        return structs.replace(await super().commit(rest), first=first.first)


class PausesInTheMiddle(MemoryStore):
    caught_by = "test_a_canceled_append_is_there_or_not_and_harms_no_other"

    async def commit(self, change: Change) -> Receipt:
        if len(change.records) != 2:
            return await super().commit(change)
        await super().commit(without(change, records=change.records[:1]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return await super().commit(without(change, records=change.records[1:]))


class ForksBeforeItChecks(MemoryStore):
    caught_by = "test_an_entry_id_that_is_taken_refuses_the_whole_change"

    async def commit(self, change: Change) -> Receipt:
        if change.fork and change.records:
            await super().commit(without(change, records=(), key=None, parcels=(), next_epoch=False))
            change = without(change, fork=None, expected_head=None, expected_version=None)
        return await super().commit(change)


class ComparesAndThenSets(MemoryStore):
    caught_by = "test_of_those_that_expect_one_version_one_wins"

    async def commit(self, change: Change) -> Receipt:
        if change.expected_version == (await self.get(change.at)).version:
            await asyncio.sleep(0)
            change = without(change, expected_version=None)
        return await super().commit(change)


class SendsWhatWasRefused(MemoryStore):
    caught_by = "test_parcels_go_in_with_their_change_and_not_when_it_is_refused"

    async def commit(self, change: Change) -> Receipt:
        for parcel in change.parcels:
            self._state.outbox.setdefault(parcel.id, parcel)
        return await super().commit(change)


class LetsTwoTakeOneParcel(MemoryStore):
    caught_by = "test_a_claimed_parcel_is_claimed_by_no_one_else_until_then"

    async def take(self, now: int, *, until: int, limit: int, tenant: str | None = None) -> list[Parcel]:
        return await super().take(now, until=now, limit=limit, tenant=tenant)


class GivesAFenceTwice(MemoryStore):
    caught_by = "test_fences_grow_also_after_a_release"

    async def release(self, at: Address, lease: Lease, *, now: int) -> None:
        await super().release(at, lease, now=now)
        if kept := self._state.sessions.get(at):
            kept.row = structs.replace(kept.row, fence=kept.row.fence - 1)


class TakesAReleaseForNoActivity(MemoryStore):
    caught_by = "test_a_lease_that_ends_is_activity_until_then"

    async def release(self, at: Address, lease: Lease, *, now: int) -> None:
        await super().release(at, lease, now=0)


class PagesByTimeAlone(MemoryStore):
    caught_by = "test_pages_are_complete_and_in_order_however_long_they_are"

    async def page(self, tenant: str, which: SessionFilter, **where: Any) -> list[SessionRow]:
        after = where.pop("after", None)
        return await super().page(tenant, which, after=after and after._replace(id=""), **where)


class ListsByCreationAlone(MemoryStore):
    caught_by = "test_a_list_by_activity_begins_with_the_session_that_was_used_last"

    async def page(self, tenant: str, which: SessionFilter, **where: Any) -> list[SessionRow]:
        rows = await super().page(tenant, which, **where)
        return sorted(rows, key=lambda row: row.mark(), reverse=True)


class OverwritesMetaThatWasNotExpected(MemoryStore):
    caught_by = "test_meta_is_changed_only_if_it_is_what_is_expected"

    async def update(self, at: Address, **given: Any) -> SessionRow:
        given.pop("expected", None)
        return await super().update(at, **given)


class TakesTagsForPatterns(MemoryStore):
    caught_by = "test_users_and_tags_with_hostile_names_are_told_apart"

    async def page(self, tenant: str, which: SessionFilter, **where: Any) -> list[SessionRow]:
        everything = await super().page(tenant, structs.replace(which, tag=None), **where)
        wanted = (which.tag or "*").replace("%", "*")
        return [
            row for row in everything if which.tag is None or any(fnmatchcase(t, wanted) for t in row.tags)
        ]


class CutsBodiesAtNul(MemoryStore):
    caught_by = "test_bodies_are_kept_byte_for_byte"

    async def read(self, at: Address, span: Span, **which: Any) -> list[Row]:
        rows = await super().read(at, span, **which)
        return [structs.replace(row, body=row.body.split(b"\0")[0]) for row in rows]


class ReadsMessagesOfEveryKind(MemoryStore):
    caught_by = "test_entries_of_some_kinds_are_read_without_the_others"

    async def read(self, at: Address, span: Span, **which: Any) -> list[Row]:
        kinds, limit = which.pop("kinds", None), which.pop("limit", None)
        rows = [row for row in await super().read(at, span, **which) if kinds is None or row.kind in kinds]
        return rows if limit is None else rows[len(rows) - limit :] if which.get("newest") else rows[:limit]


class FollowsBranchByBranch(MemoryStore):
    caught_by = "test_a_session_is_followed_over_its_branches_in_the_order_of_its_writes"

    async def since(self, at: Address, id: str | None, *, limit: int) -> list[Row]:
        rows = await super().since(at, id, limit=10**6)
        return sorted(rows, key=lambda row: (row.branch, row.seq))[:limit]


class UsesCursorsAgain(MemoryStore):
    caught_by = "test_what_comes_after_a_removal_is_not_taken_for_what_was_seen"

    async def remove(self, at: Address) -> Removed:
        removed = await super().remove(at)
        self._state.index = [item for item in self._state.index if item]
        return removed


class SkipsWhatIsCommittedLate(MemoryStore):
    caught_by = "test_a_follower_sees_every_entry_once_while_many_write"

    async def feed(self, tenant: str, cursor: str, *, limit: int) -> FeedPage:
        page = await super().feed(tenant, cursor, limit=limit)
        return page if len(page.items) < limit else FeedPage(page.items, str(int(page.cursor) + 1))


class SumsEachBranchFromZero(MemoryStore):
    caught_by = "test_a_fork_goes_on_counting_where_it_left_its_parent"

    async def commit(self, change: Change) -> Receipt:
        receipt = await super().commit(change)
        if change.fork:
            kept = self._state.sessions[change.at]
            kept.row = structs.replace(kept.row, total=sum(record.tokens for record in change.records))
        return receipt


class LeavesWordsBehind(MemoryStore):
    caught_by = "test_what_is_removed_is_gone_with_everything_that_hung_on_it"

    async def remove(self, at: Address) -> Removed:
        index = self._state.index
        removed = await super().remove(at)
        self._state.index = index
        return removed


class CountsDecisionsAsActivity(MemoryStore):
    caught_by = "test_only_a_message_or_a_new_epoch_is_activity"

    async def commit(self, change: Change) -> Receipt:
        receipt = await super().commit(change)
        kept = self._state.sessions[change.at]
        kept.row = structs.replace(kept.row, active=max(kept.row.active, change.now))
        return receipt


class ExpiresWhatIsHeld(MemoryStore):
    caught_by = "test_due_are_idle_sessions_without_a_lease_the_longest_idle_first"

    async def due(self, tenant: str, now: int, *, limit: int = 100) -> list[SessionRow]:
        rows = await self.page(tenant, SessionFilter(live=True), limit=10**6)
        idle = [row for row in rows if row.expires is not None and row.expires <= now]
        return sorted(idle, key=lambda row: (row.expires or 0, row.id))[:limit]


class MakesASessionOfNothing(MemoryStore):
    caught_by = "test_a_session_whose_first_entries_share_an_id_is_not_made"

    async def create(self, row: SessionRow, records: Sequence[Record] = ()) -> SessionRow:
        made = await super().create(row)
        if records:
            await self.commit(Change(at=row.address, now=row.created, records=tuple(records)))
            kept = self._state.sessions[row.address]
            kept.row = structs.replace(kept.row, version=0)
            made = kept.row
        return made


class HandsOutItsOwnMeta(MemoryStore):
    caught_by = "test_what_is_handed_out_cannot_change_what_is_kept"

    async def get(self, at: Address) -> SessionRow:
        return self._state.kept(at).row


class LooksAtOneSpan(MemoryStore):
    caught_by = "test_the_newest_of_each_kind_is_found_over_several_spans"

    async def newest(self, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
        return await super().newest(at, spans[:1], kinds)


BROKEN: list[type[Any]] = [
    kind for kind in list(globals().values()) if isinstance(kind, type) and hasattr(kind, "caught_by")
]
