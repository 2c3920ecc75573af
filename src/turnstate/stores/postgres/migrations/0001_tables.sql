-- Sessions, their branches and entries with the words for search, idempotency keys, and the outbox.
--
-- Texts are compared byte by byte (COLLATE "C"): alike on every server, in the order of code points.
-- Rows hang on the integer key of their session without foreign keys: whoever writes has locked the session.

CREATE TABLE turnstate.session (
    key         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant      text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    "user"      text COLLATE "C",
    title       text NOT NULL,
    tags        text[] COLLATE "C" NOT NULL,
    counter     text NOT NULL,
    meta        bytea NOT NULL,
    marks       text NOT NULL,  -- of tenant and user, among the words of every entry
    created     bigint NOT NULL,
    active      bigint NOT NULL,
    idle        bigint NOT NULL,
    epoch       bigint NOT NULL,
    branch      bigint NOT NULL,
    seq         bigint NOT NULL,
    total       bigint NOT NULL,
    version     bigint NOT NULL,
    fence       bigint NOT NULL,
    lease_until bigint NOT NULL,
    holder      text NOT NULL,
    ended       bigint,
    reason      text NOT NULL,
    expires     bigint GENERATED ALWAYS AS (CASE WHEN idle <> 0 AND ended IS NULL THEN active + idle END) STORED,
    CONSTRAINT session_by_name UNIQUE (tenant, id)
) WITH (fillfactor = 50);  -- an append changes the row: with room beside it no index is touched

CREATE INDEX session_by_creation ON turnstate.session (tenant, created, id);
CREATE INDEX session_by_user ON turnstate.session (tenant, "user", created, id);
CREATE INDEX session_by_tag ON turnstate.session USING gin (tags);
CREATE INDEX session_by_expiry ON turnstate.session (tenant, expires, id) WHERE expires IS NOT NULL;

CREATE TABLE turnstate.branch (
    session   bigint NOT NULL,
    id        bigint NOT NULL,
    parent    bigint,
    fork_seq  bigint NOT NULL,
    created   bigint NOT NULL,
    name      text NOT NULL,
    operation text NOT NULL,
    former    bigint,
    PRIMARY KEY (session, id)
);

CREATE TABLE turnstate.entry (
    key      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session  bigint NOT NULL,
    branch   bigint NOT NULL,
    seq      bigint NOT NULL,
    id       text COLLATE "C" NOT NULL,
    kind     text COLLATE "C" NOT NULL,
    body     bytea NOT NULL,
    tokens   bigint NOT NULL,
    total    bigint NOT NULL,
    checksum bigint NOT NULL,
    words    tsvector,
    CONSTRAINT entry_by_place UNIQUE (session, branch, seq) INCLUDE (key),  -- the keys of a session
    CONSTRAINT entry_by_id UNIQUE (session, id)
);

CREATE INDEX entry_by_kind ON turnstate.entry (session, branch, kind, seq) WHERE kind <> 'message';
CREATE INDEX entry_by_words ON turnstate.entry USING gin (words) WHERE words IS NOT NULL;

-- What was set aside, each with its reason. What belonged to no session has 0 for it.
CREATE TABLE turnstate.damaged (
    key     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session bigint NOT NULL,
    branch  bigint NOT NULL,
    seq     bigint NOT NULL,
    id      text NOT NULL,
    kind    text NOT NULL,
    body    bytea NOT NULL,
    fault   text NOT NULL
);

CREATE INDEX damaged_by_session ON turnstate.damaged (session);

CREATE TABLE turnstate.key (
    session bigint NOT NULL,
    name    text COLLATE "C" NOT NULL,
    digest  bytea NOT NULL,
    epoch   bigint NOT NULL,
    version bigint NOT NULL,
    branch  bigint NOT NULL,
    first   bigint NOT NULL,
    last    bigint NOT NULL,
    created bigint NOT NULL,
    PRIMARY KEY (session, name)
);

CREATE INDEX key_by_age ON turnstate.key (created);

CREATE TABLE turnstate.outbox (
    id      text COLLATE "C" NOT NULL PRIMARY KEY,
    tenant  text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    kind    text NOT NULL,
    body    bytea NOT NULL,
    due     bigint NOT NULL,
    tries   bigint NOT NULL,
    error   text NOT NULL,
    parked  boolean NOT NULL
);

CREATE INDEX outbox_by_due ON turnstate.outbox (due, id) WHERE NOT parked;
CREATE INDEX outbox_by_session ON turnstate.outbox (tenant, session);
