"""Archives: complete sessions in a file, which can be imported into any store.

An archive is JSON Lines, readable by people and `grep`: a header, then each session with its branches and
entries, then an end line. It contains everything about a session: ids, order, branches, epochs, decisions,
tokens and times. It does not contain what belongs to one store: leases, idempotency keys, and parcels that
wait for delivery. Exporting a session, importing it elsewhere and exporting it again yields the same bytes.
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
