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
