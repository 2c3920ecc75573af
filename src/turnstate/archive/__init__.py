"""Archives: complete sessions in a file, and from there into any store.

An archive is JSON Lines, readable for people and `grep`: a header, then each session with its branches
and entries, then an end. It has everything of a session: ids, order, branches, epochs, decisions, tokens
and times. What belongs to one store is not included: leases, idempotency keys, parcels that wait for
delivery. A session that is exported, imported elsewhere and exported again gives the same bytes.
"""

from .adopt import Transcript, adopt, adopt_state, conversation
from .export import archive, archived
from .format import (
    VERSION,
    ArchivedBranch,
    ArchivedEntry,
    ArchivedSession,
    ArchiveEnd,
    ArchiveLine,
    Header,
    encode_line,
)
from .read import Bundle, bundles
from .restore import ImportResult, is_incomplete, restore

__all__ = [
    "VERSION",
    "ArchiveEnd",
    "ArchiveLine",
    "ArchivedBranch",
    "ArchivedEntry",
    "ArchivedSession",
    "Bundle",
    "Header",
    "ImportResult",
    "Transcript",
    "adopt",
    "adopt_state",
    "archive",
    "archived",
    "bundles",
    "conversation",
    "encode_line",
    "is_incomplete",
    "restore",
]
