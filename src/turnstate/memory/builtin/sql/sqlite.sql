-- Statements of SQLite: lists are JSON.

-- name: lock
SELECT 1;

-- name: postings
SELECT term, chunk, numbers FROM posting
WHERE owner = :owner AND term IN (SELECT value FROM json_each(:terms)) ORDER BY term, chunk;

-- name: turns
SELECT number, session, author, role, said, length, signs FROM document
WHERE owner = :owner AND number IN (SELECT value FROM json_each(:numbers));

-- name: surroundings
SELECT group_concat(number, ','), group_concat(session, ','), group_concat(length, ','), group_concat(signs, ',')
FROM document WHERE owner = :owner AND number IN (SELECT value FROM json_each(:numbers));

-- name: texts
SELECT d.number, s.name, d.message, d.said, d.role, d.author, d.text
FROM document d JOIN session s ON s.id = d.session
WHERE d.owner = :owner AND d.number IN (SELECT value FROM json_each(:numbers));

-- name: drop_numbers
DELETE FROM document WHERE owner = :owner AND number IN (SELECT value FROM json_each(:numbers));

-- name: vectors_of
SELECT number, data FROM vector
WHERE owner = :owner AND embedder = :embedder AND number IN (SELECT value FROM json_each(:numbers));

-- name: drop_vectors_of
DELETE FROM vector WHERE owner = :owner AND number IN (SELECT value FROM json_each(:numbers));

-- name: known_messages
SELECT message FROM document
WHERE owner = :owner AND session = :session AND message IN (SELECT value FROM json_each(:messages));

-- name: facts_about
SELECT id, kind, slot, value, text, said, ended, since, until, successor FROM fact WHERE owner = :owner AND id IN (SELECT value FROM json_each(:ids))
UNION SELECT id, kind, slot, value, text, said, ended, since, until, successor FROM fact WHERE owner = :owner AND slot IN (SELECT value FROM json_each(:slots))
UNION SELECT id, kind, slot, value, text, said, ended, since, until, successor FROM fact WHERE owner = :owner AND ended IS NULL AND kind IN (SELECT value FROM json_each(:kinds));

-- name: sources_of_facts
SELECT f.fact, s.name, f.message FROM source f JOIN session s ON s.id = f.session
WHERE f.owner = :owner AND f.fact IN (SELECT value FROM json_each(:ids)) ORDER BY f.fact, f.message;

-- name: facts_of_messages
SELECT o.message, f.ended FROM source o JOIN fact f ON f.owner = o.owner AND f.id = o.fact
WHERE o.owner = :owner AND o.message IN (SELECT value FROM json_each(:messages))
AND o.session = (SELECT id FROM session WHERE owner = :owner AND name = :name);

-- name: newest_facts
WITH RECURSIVE known(kind) AS (
    SELECT min(kind) FROM fact WHERE owner = :owner AND ended IS NULL
    UNION ALL SELECT (
        SELECT min(kind) FROM fact WHERE owner = :owner AND ended IS NULL AND kind > known.kind
    ) FROM known WHERE known.kind IS NOT NULL
)
SELECT f.id, f.kind, f.slot, f.value, f.text, f.said, f.ended, f.since, f.until, f.successor
FROM known JOIN fact f ON f.rowid IN (
    SELECT rowid FROM fact
    WHERE owner = :owner AND kind = known.kind AND ended IS NULL AND (until IS NULL OR until > :now)
    ORDER BY said DESC, id DESC LIMIT :limit
);
