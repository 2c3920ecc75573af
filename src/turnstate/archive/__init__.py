"""Archives: sessions in a file, whole, and from there into any store.

An archive is JSON Lines that people can read and `grep` can search: a header, then each session with
its branches and its entries, then an end. Everything that a session is comes along: ids, order,
branches, epochs, decisions, tokens and times. What belongs to one store alone stays behind: leases,
idempotency keys, parcels that wait for delivery. A session that was exported, imported elsewhere and
exported again gives the same bytes.
"""

from .adopt import Conversation, adopt, conversation
from .export import archive, archived
from .format import VERSION, ArchivedBranch, ArchivedEntry, ArchivedSession, ArchiveEnd, Header, Line, written
from .read import Bundle, bundles
from .restore import Restored, is_half_made, restore

__all__ = [
    "VERSION",
    "ArchiveEnd",
    "ArchivedBranch",
    "ArchivedEntry",
    "ArchivedSession",
    "Bundle",
    "Conversation",
    "Header",
    "Line",
    "Restored",
    "adopt",
    "archive",
    "archived",
    "bundles",
    "conversation",
    "is_half_made",
    "restore",
    "written",
]
