-- Statements of PostgreSQL: lists are arrays.

-- name: lock
SELECT pg_advisory_xact_lock(:key);

-- name: postings
SELECT term, chunk, numbers FROM turnstate.posting
WHERE owner = :owner AND term = ANY(:terms::text[]) ORDER BY term, chunk;

-- name: turns
SELECT number, session, author, role, said, length, signs FROM turnstate.document
WHERE owner = :owner AND number = ANY(:numbers::bigint[]);

-- name: surroundings
SELECT string_agg(number::text, ','), string_agg(session::text, ','), string_agg(length::text, ','),
    string_agg(signs::text, ',')
FROM turnstate.document WHERE owner = :owner AND number = ANY(:numbers::bigint[]);

-- name: texts
SELECT d.number, s.name, d.message, d.said, d.role, d.author, d.text
FROM turnstate.document d JOIN turnstate.session s ON s.id = d.session
WHERE d.owner = :owner AND d.number = ANY(:numbers::bigint[]);

-- name: drop_numbers
DELETE FROM turnstate.document WHERE owner = :owner AND number = ANY(:numbers::bigint[]);

-- name: vectors_of
SELECT number, data FROM turnstate.vector
WHERE owner = :owner AND embedder = :embedder AND number = ANY(:numbers::bigint[]);

-- name: drop_vectors_of
DELETE FROM turnstate.vector WHERE owner = :owner AND number = ANY(:numbers::bigint[]);

-- name: known_messages
SELECT message FROM turnstate.document
WHERE owner = :owner AND session = :session AND message = ANY(:messages::text[]);

-- name: facts_about
SELECT id, kind, slot, value, text, said, ended, since, until, successor FROM turnstate.fact WHERE owner = :owner AND id = ANY(:ids::text[])
UNION SELECT id, kind, slot, value, text, said, ended, since, until, successor FROM turnstate.fact WHERE owner = :owner AND slot = ANY(:slots::text[])
UNION SELECT id, kind, slot, value, text, said, ended, since, until, successor FROM turnstate.fact WHERE owner = :owner AND ended IS NULL AND kind = ANY(:kinds::text[]);

-- name: sources_of_facts
SELECT f.fact, s.name, f.message FROM turnstate.source f JOIN turnstate.session s ON s.id = f.session
WHERE f.owner = :owner AND f.fact = ANY(:ids::text[]) ORDER BY f.fact, f.message;

-- name: facts_of_messages
SELECT o.message, f.ended FROM turnstate.source o JOIN turnstate.fact f ON f.owner = o.owner AND f.id = o.fact
WHERE o.owner = :owner AND o.message = ANY(:messages::text[])
AND o.session = (SELECT id FROM turnstate.session WHERE owner = :owner AND name = :name);

-- name: newest_facts
WITH RECURSIVE known(kind) AS (
    SELECT min(kind) FROM turnstate.fact WHERE owner = :owner AND ended IS NULL
    UNION ALL SELECT (
        SELECT min(kind) FROM turnstate.fact WHERE owner = :owner AND ended IS NULL AND kind > known.kind
    ) FROM known WHERE known.kind IS NOT NULL
)
SELECT f.id, f.kind, f.slot, f.value, f.text, f.said, f.ended, f.since, f.until, f.successor
FROM known CROSS JOIN LATERAL (
    SELECT * FROM turnstate.fact
    WHERE owner = :owner AND kind = known.kind AND ended IS NULL AND (until IS NULL OR until > :now)
    ORDER BY said DESC, id DESC LIMIT :limit
) f;
