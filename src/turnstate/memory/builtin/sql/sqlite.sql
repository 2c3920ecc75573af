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
