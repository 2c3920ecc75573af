-- The schema of both databases: KEY is an integer that the database assigns, INT an integer of 64 bits, BYTES
-- bytes. A memory belongs to an owner, and every row and every index begins with its number, so that no query
-- of one user ever reads a row of another.

CREATE TABLE turnstate.owner (
    id KEY,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    next INT NOT NULL,
    size INT NOT NULL,
    words INT NOT NULL,
    version INT NOT NULL,
    dropped INT NOT NULL,
    UNIQUE (tenant, name)
);

CREATE TABLE turnstate.session (
    id KEY,
    owner INT NOT NULL,
    name TEXT NOT NULL,
    UNIQUE (owner, name)
);

CREATE TABLE turnstate.delivery (
    owner INT NOT NULL,
    key TEXT NOT NULL,
    session INT NOT NULL,
    PRIMARY KEY (owner, key)
);

-- A turn: number counts from 0 for each owner, in the order of delivery.
CREATE TABLE turnstate.document (
    owner INT NOT NULL,
    number INT NOT NULL,
    session INT NOT NULL,
    message TEXT NOT NULL,
    role TEXT NOT NULL,
    author TEXT NOT NULL,
    said TEXT NOT NULL,
    length INT NOT NULL,
    signs INT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (owner, number),
    UNIQUE (owner, session, message)
);

-- Where a term occurs: numbers of documents in order, of four bytes each, one for each occurrence. A row has
-- the documents of one chunk of numbers, so that a delivery rewrites little.
CREATE TABLE turnstate.posting (
    owner INT NOT NULL,
    term TEXT NOT NULL,
    chunk INT NOT NULL,
    numbers BYTES NOT NULL,
    PRIMARY KEY (owner, term, chunk)
);

CREATE TABLE turnstate.vector (
    owner INT NOT NULL,
    number INT NOT NULL,
    embedder TEXT NOT NULL,
    data BYTES NOT NULL,
    PRIMARY KEY (owner, number)
);

CREATE TABLE turnstate.author (
    owner INT NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    times INT NOT NULL,
    PRIMARY KEY (owner, name, role)
);

CREATE TABLE turnstate.fact (
    owner INT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    slot TEXT NOT NULL,
    value TEXT NOT NULL,
    text TEXT NOT NULL,
    said TEXT NOT NULL,
    ended TEXT,
    PRIMARY KEY (owner, id)
);

CREATE TABLE turnstate.source (
    owner INT NOT NULL,
    fact TEXT NOT NULL,
    session INT NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (owner, fact, session, message)
);

CREATE INDEX source_of_message ON turnstate.source (owner, session, message);

-- What was forgotten: a hash of a tenant with a user or a session, and when. It has no content.
CREATE TABLE turnstate.mark (
    hash BYTES PRIMARY KEY,
    at INT NOT NULL
);
