"""Changes to a file without the store, and how the finding of each begins."""

from __future__ import annotations

CHANGED_BODY = "UPDATE entry SET body = CAST(replace(body, 'four', 'fire') AS BLOB) WHERE id = 'a4'"

EXACT = {
    "a token count": ("UPDATE entry SET tokens = 55 WHERE id = 'a4'", "its token count was changed"),
    "a total": ("UPDATE entry SET total = 55 WHERE id = 'a3'", "its running total is wrong"),
    "the total at a fork": ("UPDATE entry SET total = 55 WHERE id = 'a4'", "its running total is wrong"),
    "the total of the head": ("UPDATE entry SET total = 55 WHERE id = 'n7'", "its running total is wrong"),
    "totals": ("UPDATE entry SET total = total + 1 WHERE branch = 1", "6 running totals from entry 1 to 6"),
    "a branch that is its parent": ("UPDATE branch SET parent = 2 WHERE id = 2", "branch 2 forks after"),
    "a parent that is not there": ("UPDATE branch SET parent = 9 WHERE id = 2", "branch 2 forks after"),
    "another parent": ("UPDATE branch SET parent = 1 WHERE id = 3", "branch 3 forks after"),
    "a parent that is gone": ("UPDATE branch SET parent = NULL WHERE id = 3", "branch 3 forks after"),
    "an early fork": ("UPDATE branch SET fork_seq = 1 WHERE id = 3", "branch 3 forks after entry 1"),
    "a late fork": ("UPDATE branch SET fork_seq = 50 WHERE id = 2", "branch 2 forks after entry 50"),
    "a former branch": ("UPDATE branch SET former = 50 WHERE id = 2", "branch 2 follows branch 50"),
    "a late head": ("UPDATE session SET seq = 70 WHERE key = 1", "its head is entry 70 of branch 3"),
    "an early head": ("UPDATE session SET seq = 2 WHERE key = 1", "its head is entry 2 of branch 3"),
    "a head elsewhere": ("UPDATE session SET branch = 2 WHERE key = 1", "its head is entry 7 of branch 2"),
    "a head nowhere": ("UPDATE session SET branch = 20 WHERE key = 1", "its head is entry 7 of branch 20"),
    "the session's total": ("UPDATE session SET total = 9 WHERE key = 1", "its head is entry 7 of branch 3"),
    "a tag": ("DELETE FROM tag WHERE session = 1 AND name = 'x'", "it is listed under other tags"),
    "an expiry": ("UPDATE session SET expires = 5 WHERE key = 1", "its time of expiry is wrong"),
    "words": ("DELETE FROM word WHERE rowid = 3", "the search index does not contain"),
    "words of nothing": (
        "INSERT INTO word (rowid, words) VALUES (99, 'x')",
        "the search index does not contain",
    ),
}
"""What can be computed from the rest: a repair restores it exactly."""

MENDED = {
    "a body": (CHANGED_BODY, "its bytes do not match their checksum"),
    "a kind": ("UPDATE entry SET kind = 'note' WHERE id = 'a4'", "its bytes do not match their checksum"),
    "an id": ("UPDATE entry SET id = 'z' WHERE id = 'a4'", "its bytes do not match their checksum"),
    "an id that is no text": (
        "UPDATE entry SET id = CAST(x'ff' AS TEXT) WHERE id = 'a4'",
        "its bytes do not match their checksum",
    ),
    "a place": ("UPDATE entry SET seq = 1 << 50 WHERE id = 'a6'", "its bytes do not match their checksum"),
    "the branch of an entry": (
        "UPDATE entry SET branch = 1 << 50 WHERE id = 'a6'",
        "its bytes do not match their checksum",
    ),
    "the number of a branch": (
        "UPDATE branch SET id = 1 << 50 WHERE id = 3",
        "there are no branches between 3 and 1125899906842624, which has no entries",
    ),
    "an entry": ("DELETE FROM entry WHERE id = 'a3'", "entry 3 is missing"),
    "the first entry": ("DELETE FROM entry WHERE id = 'a1'", "entry 1 is missing"),
    "the entry at a fork": ("DELETE FROM entry WHERE id = 'a4'", "entry 4 is missing"),
    "the first of a branch": ("DELETE FROM entry WHERE id = 'b5'", "entry 5 is missing"),
    "the last entry": ("DELETE FROM entry WHERE id = 's2'", "entry 2 is missing"),
    "a whole branch": ("DELETE FROM entry WHERE branch = 3", "entries 6 to 7 are missing"),
    "a row of a branch": ("DELETE FROM branch WHERE id = 2", "branch 2 has entries and no row"),
    "all rows of branches": ("DELETE FROM branch", "branch 3 has entries and no row"),
    "all branches and entries": (
        "DELETE FROM branch WHERE session = 2; DELETE FROM entry WHERE session = 2",
        "it has no branch",
    ),
    "tags that are none": (
        "UPDATE session SET tags = x'7b' WHERE key = 1",
        "its tags are not a list of texts",
    ),
    "a meta that is none": ("UPDATE session SET meta = x'7b' WHERE key = 1", "its meta is not a JSON object"),
    "a title that is none": (
        "UPDATE session SET title = CAST(x'ff41' AS TEXT) WHERE key = 1",
        "its title is not valid UTF-8",
    ),
    "a counter that is none": (
        "UPDATE session SET counter = 'o200k_bass' WHERE key = 1",
        "its counter 'o200k_bass' does not exist",
    ),
    "a counter that is no text": (
        "UPDATE session SET counter = CAST(x'ff' AS TEXT) WHERE key = 1",
        "its counter '\ufffd' does not exist",
    ),
    "a branch's name that is none": (
        "UPDATE branch SET name = CAST(x'ff' AS TEXT) WHERE id = 2",
        "the name of branch 2 is not valid UTF-8",
    ),
    "a key for nothing": ("UPDATE key SET last = 500", "the key 'k' was answered with entry 500 of branch 1"),
    "a key on no branch": ("UPDATE key SET branch = 9", "the key 'k' was answered with entry 4 of branch 9"),
    "a session": ("DELETE FROM session WHERE key = 1", "10 rows of `entry` belong to session number 1"),
    "a session with parcels": (
        "DELETE FROM session WHERE key = 2",
        "a parcel waits for a session that does not exist",
    ),
    "a parcel's text": (
        "UPDATE outbox SET error = CAST(x'ff' AS TEXT)",
        "a parcel has a text that is not valid UTF-8",
    ),
}
"""What cannot: it is set aside, and the rest is made consistent."""
