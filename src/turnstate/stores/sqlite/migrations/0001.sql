-- Sessions, their branches and entries, idempotency keys, the outbox, and the words for search.

-- `marks` is the sum of the numbers of all entries that are no messages, and `tip` the last entry of a branch that
-- is not the head: what the head promises beside itself, so that a damaged index is noticed.
CREATE TABLE session (
    key         INTEGER PRIMARY KEY,
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    user        TEXT,
    title       TEXT NOT NULL,
    tags        BLOB NOT NULL,
    counter     TEXT NOT NULL,
    meta        BLOB NOT NULL,
    created     INTEGER NOT NULL,
    active      INTEGER NOT NULL,
    idle        INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    branch      INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    total       INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    holder      TEXT NOT NULL,
    ended       INTEGER,
    reason      TEXT NOT NULL,
    expires     INTEGER,
    marks       INTEGER NOT NULL DEFAULT 0,
    UNIQUE (tenant, id)
) STRICT;

CREATE INDEX session_by_creation ON session (tenant, created, id);
CREATE INDEX session_by_user ON session (tenant, user, created, id);
CREATE INDEX session_by_expiry ON session (tenant, expires) WHERE expires IS NOT NULL;

CREATE TABLE tag (
    session INTEGER NOT NULL,
    name    TEXT NOT NULL,
    PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE branch (
    session   INTEGER NOT NULL,
    id        INTEGER NOT NULL,
    parent    INTEGER,
    fork_seq  INTEGER NOT NULL,
    created   INTEGER NOT NULL,
    name      TEXT NOT NULL,
    operation TEXT NOT NULL,
    former    INTEGER,
    tip       INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;

-- Keys are never used again, also not those of deleted sessions: they are the cursors of the feed. An id is 16 bytes
-- if it is a UUID, and else text; a kind is 0 for a message, and else its name; a body does not repeat the id that
-- it begins with.
CREATE TABLE entry (
    key      INTEGER PRIMARY KEY AUTOINCREMENT,
    session  INTEGER NOT NULL,
    branch   INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    id       ANY NOT NULL,
    kind     ANY NOT NULL,
    body     BLOB NOT NULL,
    tokens   INTEGER NOT NULL,
    total    INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    UNIQUE (session, branch, seq),
    UNIQUE (session, id)
) STRICT;

CREATE INDEX entry_by_kind ON entry (session, branch, kind, seq) WHERE kind <> 0;

-- What was set aside, each with its reason. What belonged to no session has 0 for it.
CREATE TABLE damaged (
    key     INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    branch  INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    id      TEXT NOT NULL,
    kind    TEXT NOT NULL,
    body    BLOB NOT NULL,
    fault   TEXT NOT NULL
) STRICT;

CREATE INDEX damaged_by_session ON damaged (session);

CREATE TABLE key (
    session INTEGER NOT NULL,
    name    TEXT NOT NULL,
    digest  BLOB NOT NULL,
    epoch   INTEGER NOT NULL,
    version INTEGER NOT NULL,
    branch  INTEGER NOT NULL,
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL,
    created INTEGER NOT NULL,
    PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX key_by_age ON key (created);

CREATE TABLE outbox (
    id      TEXT NOT NULL PRIMARY KEY,
    tenant  TEXT NOT NULL,
    session TEXT NOT NULL,
    kind    TEXT NOT NULL,
    body    BLOB NOT NULL,
    due     INTEGER NOT NULL,
    tries   INTEGER NOT NULL,
    error   TEXT NOT NULL,
    parked  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX outbox_by_due ON outbox (parked, due, id);
CREATE INDEX outbox_by_session ON outbox (tenant, session);

-- Words come ready from Python, so the tokenizer only splits at spaces. Rows are deleted by their number:
-- deleting must not depend on finding the same words in a text again.
CREATE VIRTUAL TABLE word USING fts5 (
    words, content = '', contentless_delete = 1, detail = none, tokenize = "ascii tokenchars '_'"
);
INSERT INTO word (word, rank) VALUES ('automerge', 16);
