-- Statements that SQLite and PostgreSQL read alike. Tables are written as turnstate.NAME.

-- name: mark
SELECT max(at) FROM turnstate.mark WHERE hash IN (:one, :other);

-- name: add_mark
INSERT INTO turnstate.mark (hash, at) VALUES (:hash, :at)
ON CONFLICT (hash) DO UPDATE SET at = excluded.at WHERE excluded.at > mark.at;

-- name: owner
SELECT id, next, size, words, version, dropped FROM turnstate.owner WHERE tenant = :tenant AND name = :name;

-- name: add_owner
INSERT INTO turnstate.owner (tenant, name, next, size, words, version, dropped)
VALUES (:tenant, :name, 0, 0, 0, 0, 0) ON CONFLICT (tenant, name) DO NOTHING;

-- name: set_owner
UPDATE turnstate.owner SET next = :next, size = :size, words = :words, version = version + 1, dropped = :dropped
WHERE id = :owner;

-- name: owners
SELECT tenant, name, size, dropped FROM turnstate.owner WHERE tenant = :tenant ORDER BY name;

-- name: owners_of_session
SELECT o.id, o.tenant, o.name FROM turnstate.owner o JOIN turnstate.session s ON s.owner = o.id
WHERE o.tenant = :tenant AND s.name = :session ORDER BY o.id;

-- name: session
SELECT id FROM turnstate.session WHERE owner = :owner AND name = :name;

-- name: add_session
INSERT INTO turnstate.session (owner, name) VALUES (:owner, :name) ON CONFLICT (owner, name) DO NOTHING;

-- name: delivered
SELECT 1 FROM turnstate.delivery WHERE owner = :owner AND key = :key;

-- name: add_delivery
INSERT INTO turnstate.delivery (owner, key, session) VALUES (:owner, :key, :session)
ON CONFLICT (owner, key) DO NOTHING;

-- name: numbers_of_session
SELECT number, role FROM turnstate.document WHERE owner = :owner AND session = :session;

-- name: add_document
INSERT INTO turnstate.document
    (owner, number, session, message, role, author, said, length, signs, text)
VALUES (:owner, :number, :session, :message, :role, :author, :said, :length, :signs, :text);

-- name: sign_document
UPDATE turnstate.document SET signs = (signs & :kept) | :signs
WHERE owner = :owner AND message = :message
AND session = (SELECT id FROM turnstate.session WHERE owner = :owner AND name = :name);

-- name: number
SELECT number FROM turnstate.document WHERE owner = :owner AND message = :message
AND session = (SELECT id FROM turnstate.session WHERE owner = :owner AND name = :name);

-- name: put_posting
INSERT INTO turnstate.posting (owner, term, chunk, numbers) VALUES (:owner, :term, :chunk, :numbers)
ON CONFLICT (owner, term, chunk) DO UPDATE SET numbers = excluded.numbers;

-- name: drop_posting
DELETE FROM turnstate.posting WHERE owner = :owner AND term = :term AND chunk = :chunk;

-- name: put_vector
INSERT INTO turnstate.vector (owner, number, embedder, data) VALUES (:owner, :number, :embedder, :data)
ON CONFLICT (owner, number) DO UPDATE SET embedder = excluded.embedder, data = excluded.data;

-- name: vectors
SELECT v.number, d.session, substr(v.data, 1, CAST(:width AS INTEGER)) FROM turnstate.vector v
JOIN turnstate.document d ON d.owner = v.owner AND d.number = v.number
WHERE v.owner = :owner AND v.embedder = :embedder AND v.number >= :first ORDER BY v.number LIMIT :limit;

-- name: without_vector
SELECT d.number, d.text FROM turnstate.document d
LEFT JOIN turnstate.vector v ON v.owner = d.owner AND v.number = d.number AND v.embedder = :embedder
WHERE d.owner = :owner AND d.number >= :first AND v.number IS NULL AND d.text <> '' ORDER BY d.number DESC LIMIT :limit;

-- name: authors
SELECT name, role, times FROM turnstate.author WHERE owner = :owner ORDER BY times DESC, name LIMIT 200;

-- name: add_author
INSERT INTO turnstate.author (owner, name, role, times) VALUES (:owner, :name, :role, :times)
ON CONFLICT (owner, name, role) DO UPDATE SET times = author.times + excluded.times;

-- name: oldest_documents
SELECT d.number FROM turnstate.document d
WHERE d.owner = :owner AND NOT EXISTS (
    SELECT 1 FROM turnstate.source s
    WHERE s.owner = d.owner AND s.session = d.session AND s.message = d.message)
ORDER BY d.number LIMIT :limit;

-- name: oldest_of_all
SELECT number FROM turnstate.document WHERE owner = :owner ORDER BY number LIMIT :limit;

-- name: facts
SELECT id, kind, slot, value, text, said, ended, since, until, successor FROM turnstate.fact WHERE owner = :owner ORDER BY said, id;

-- name: fact
SELECT id, kind, slot, value, text, said, ended, since, until, successor FROM turnstate.fact WHERE owner = :owner AND id = :id;

-- name: sources
SELECT f.fact, s.name, f.message FROM turnstate.source f JOIN turnstate.session s ON s.id = f.session
WHERE f.owner = :owner ORDER BY f.fact, f.message;

-- name: put_fact
INSERT INTO turnstate.fact (owner, id, kind, slot, value, text, said, ended, since, until, successor)
VALUES (:owner, :id, :kind, :slot, :value, :text, :said, :ended, :since, :until, :successor)
ON CONFLICT (owner, id) DO UPDATE SET
    kind = excluded.kind, slot = excluded.slot, value = excluded.value, text = excluded.text,
    said = excluded.said, ended = excluded.ended, since = excluded.since, until = excluded.until,
    successor = excluded.successor;

-- name: count_facts
SELECT count(*) FROM turnstate.fact WHERE owner = :owner;

-- name: least_facts
SELECT id FROM turnstate.fact WHERE owner = :owner
ORDER BY CASE WHEN ended IS NOT NULL OR until < :now THEN 0 WHEN kind IN ('health', 'name', 'wish', 'note') THEN 2
    ELSE 1 END, said, id LIMIT :limit;

-- name: add_source
INSERT INTO turnstate.source (owner, fact, session, message)
SELECT :owner, :fact, s.id, :message FROM turnstate.session s WHERE s.owner = :owner AND s.name = :name
ON CONFLICT (owner, fact, session, message) DO NOTHING;

-- name: note
SELECT number FROM turnstate.document WHERE owner = :owner AND message = :message AND role = 'note'
AND session = (SELECT id FROM turnstate.session WHERE owner = :owner AND name = :name);

-- name: drop_fact
DELETE FROM turnstate.fact WHERE owner = :owner AND id = :id;

-- name: drop_sources_of_fact
DELETE FROM turnstate.source WHERE owner = :owner AND fact = :id;

-- name: drop_sources_of_session
DELETE FROM turnstate.source WHERE owner = :owner AND session = :session;

-- name: newest_documents
SELECT d.number, s.name, d.message, d.role, d.author, d.said, d.text
FROM turnstate.document d JOIN turnstate.session s ON s.id = d.session
WHERE d.owner = :owner AND d.number < :before ORDER BY d.number DESC LIMIT :limit;

-- name: first_and_last
SELECT min(said), max(said) FROM turnstate.document WHERE owner = :owner AND number IN (
    SELECT min(number) FROM turnstate.document WHERE owner = :owner
    UNION ALL SELECT max(number) FROM turnstate.document WHERE owner = :owner);

-- name: documents_where
SELECT d.number, d.role FROM turnstate.document d JOIN turnstate.session s ON s.id = d.session
WHERE d.owner = :owner AND (:anywhere = 1 OR s.name = :session)
AND d.said >= :since AND (:until = '' OR d.said < :until);

-- name: documents_after
SELECT d.number, s.name, d.message, d.role, d.author, d.said, d.text
FROM turnstate.document d JOIN turnstate.session s ON s.id = d.session
WHERE d.owner = :owner AND d.number >= :first ORDER BY d.number LIMIT :limit;

-- name: deliveries
SELECT s.name, d.key FROM turnstate.delivery d JOIN turnstate.session s ON s.id = d.session
WHERE d.owner = :owner ORDER BY d.key;

-- name: count_documents
SELECT count(*) FROM turnstate.document WHERE owner = :owner AND role NOT IN ('summary', 'note');

-- name: drop_documents
DELETE FROM turnstate.document WHERE owner = :owner;

-- name: drop_postings
DELETE FROM turnstate.posting WHERE owner = :owner;

-- name: drop_vectors
DELETE FROM turnstate.vector WHERE owner = :owner;

-- name: drop_authors
DELETE FROM turnstate.author WHERE owner = :owner;

-- name: drop_facts
DELETE FROM turnstate.fact WHERE owner = :owner;

-- name: drop_sources
DELETE FROM turnstate.source WHERE owner = :owner;

-- name: drop_deliveries
DELETE FROM turnstate.delivery WHERE owner = :owner;

-- name: drop_sessions
DELETE FROM turnstate.session WHERE owner = :owner;

-- name: drop_owner
DELETE FROM turnstate.owner WHERE id = :owner;

-- name: drop_deliveries_of_session
DELETE FROM turnstate.delivery WHERE owner = :owner AND session = :session;

-- name: drop_session
DELETE FROM turnstate.session WHERE id = :session;
