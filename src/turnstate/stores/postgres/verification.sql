-- name: session_keys
SELECT key FROM turnstate.session WHERE key OPERATOR(pg_catalog.>) :after ORDER BY key LIMIT :limit::bigint;

-- name: described
SELECT tenant, id, "user", counter, meta, marks FROM turnstate.session WHERE key OPERATOR(pg_catalog.=) :key;

-- name: lock_session
SELECT key FROM turnstate.session WHERE key OPERATOR(pg_catalog.=) :key FOR UPDATE;

-- name: set_counter
UPDATE turnstate.session SET counter = :counter WHERE key OPERATOR(pg_catalog.=) :key;

-- name: set_meta
UPDATE turnstate.session SET meta = :meta WHERE key OPERATOR(pg_catalog.=) :key;

-- name: set_marks
UPDATE turnstate.session SET marks = :marks WHERE key OPERATOR(pg_catalog.=) :key;

-- name: head
SELECT branch, seq, total, counter FROM turnstate.session WHERE key OPERATOR(pg_catalog.=) :key;

-- name: set_head
UPDATE turnstate.session SET branch = :branch, seq = :seq, total = :total WHERE key OPERATOR(pg_catalog.=) :key;

-- name: branch_rows
SELECT id, parent, fork_seq, former FROM turnstate.branch WHERE session OPERATOR(pg_catalog.=) :key;

-- The first and the last entry of every branch that has any.
-- name: branch_ends
SELECT ends.branch, ends.first, low.total OPERATOR(pg_catalog.-) low.tokens AS base, ends.last, high.total
FROM (
    SELECT branch, pg_catalog.min(seq) AS first, pg_catalog.max(seq) AS last
    FROM turnstate.entry
    WHERE session OPERATOR(pg_catalog.=) :key
    GROUP BY branch) ends
JOIN turnstate.entry low
    ON low.session OPERATOR(pg_catalog.=) :key AND low.branch OPERATOR(pg_catalog.=) ends.branch
   AND low.seq OPERATOR(pg_catalog.=) ends.first
JOIN turnstate.entry high
    ON high.session OPERATOR(pg_catalog.=) :key AND high.branch OPERATOR(pg_catalog.=) ends.branch
   AND high.seq OPERATOR(pg_catalog.=) ends.last
ORDER BY ends.branch;

-- name: total
SELECT total
FROM turnstate.entry
WHERE session OPERATOR(pg_catalog.=) :key AND branch OPERATOR(pg_catalog.=) :branch AND seq OPERATOR(pg_catalog.=) :seq;

-- name: remake_branch
INSERT INTO turnstate.branch (session, id, parent, fork_seq, created, name, operation, former)
VALUES (:key, :id, :parent, :fork_seq, 0, '', 'repair', :former);

-- name: remove_branch
DELETE FROM turnstate.branch WHERE session OPERATOR(pg_catalog.=) :key AND id OPERATOR(pg_catalog.=) :id;

-- name: set_origin
UPDATE turnstate.branch SET parent = :parent, fork_seq = :fork_seq
WHERE session OPERATOR(pg_catalog.=) :key AND id OPERATOR(pg_catalog.=) :id;

-- name: set_former
UPDATE turnstate.branch SET former = :former WHERE session OPERATOR(pg_catalog.=) :key AND id OPERATOR(pg_catalog.=) :id;

-- The words are NULL if the entry is not indexed, and need not be.
-- name: walked
SELECT e.key, e.seq, e.id, e.kind, e.body, e.tokens, e.total, e.checksum,
       CASE WHEN w.entry IS NULL
                 AND (e.kind OPERATOR(pg_catalog.<>) 'message'
                      OR e.key OPERATOR(pg_catalog.>) (SELECT coalesce(pg_catalog.max(through), 0) FROM turnstate.indexed))
            THEN NULL
            ELSE coalesce(pg_catalog.tsvector_to_array(w.words), '{}') END AS words
FROM turnstate.entry e
LEFT JOIN turnstate.word w ON w.entry OPERATOR(pg_catalog.=) e.key
WHERE e.session OPERATOR(pg_catalog.=) :key AND e.branch OPERATOR(pg_catalog.=) :branch
  AND e.seq OPERATOR(pg_catalog.>) :after AND e.seq OPERATOR(pg_catalog.<=) :tip
ORDER BY e.seq
LIMIT :limit::bigint;

-- name: count_entry
UPDATE turnstate.entry SET tokens = :tokens WHERE key OPERATOR(pg_catalog.=) :entry;

-- name: recount_entry
UPDATE turnstate.entry SET tokens = :tokens, checksum = :checksum WHERE key OPERATOR(pg_catalog.=) :entry;

-- name: total_entry
UPDATE turnstate.entry SET total = :total WHERE key OPERATOR(pg_catalog.=) :entry;

-- name: word_entry
INSERT INTO turnstate.word (entry, words) VALUES (:entry, :words::pg_catalog.text::pg_catalog.tsvector)
ON CONFLICT (entry) DO UPDATE SET words = excluded.words;

-- name: unword_entry
DELETE FROM turnstate.word WHERE entry OPERATOR(pg_catalog.=) :entry;

-- name: add_note
INSERT INTO turnstate.entry (session, branch, seq, id, kind, body, tokens, total, checksum)
VALUES (:key, :branch, :seq, :id, :kind, :body, :tokens, :total, :checksum);

-- name: put_note
WITH kept AS (
    INSERT INTO turnstate.damaged (session, branch, seq, id, kind, body, fault)
    SELECT session, branch, seq, id, kind, body, :fault FROM turnstate.entry WHERE key OPERATOR(pg_catalog.=) :entry
), unindexed AS (DELETE FROM turnstate.word WHERE entry OPERATOR(pg_catalog.=) :entry)
UPDATE turnstate.entry
SET id = :id, kind = :kind, body = :body, tokens = :tokens, total = :total, checksum = :checksum
WHERE key OPERATOR(pg_catalog.=) :entry;

-- name: set_entry_aside
WITH gone AS (DELETE FROM turnstate.entry WHERE key OPERATOR(pg_catalog.=) :entry RETURNING *),
     unindexed AS (DELETE FROM turnstate.word WHERE entry OPERATOR(pg_catalog.=) :entry)
INSERT INTO turnstate.damaged (session, branch, seq, id, kind, body, fault)
SELECT session, branch, seq, id, kind, body, :fault FROM gone;

-- name: set_aside
INSERT INTO turnstate.damaged (session, branch, seq, id, kind, body, fault)
VALUES (:key, 0, 0, '', :kind, :body, :fault);

-- name: stray_keys
SELECT k.name, k.branch, k.last
FROM turnstate.key k
WHERE k.session OPERATOR(pg_catalog.=) :key
  AND (k.first OPERATOR(pg_catalog.>) (k.last OPERATOR(pg_catalog.+) 1) OR k.first OPERATOR(pg_catalog.<) 1
       OR k.last OPERATOR(pg_catalog.>) coalesce(turnstate.tip(k.session, k.branch), -1))
ORDER BY k.name
LIMIT :limit::bigint;

-- name: set_key_aside
WITH gone AS (
    DELETE FROM turnstate.key
    WHERE session OPERATOR(pg_catalog.=) :key AND name OPERATOR(pg_catalog.=) :name
    RETURNING *)
INSERT INTO turnstate.damaged (session, branch, seq, id, kind, body, fault)
SELECT session, branch, last, name, 'key', digest, :fault FROM gone;

-- name: orphans_entry
SELECT session, pg_catalog.count(*)
FROM turnstate.entry t
WHERE NOT EXISTS (SELECT 1 FROM turnstate.session s WHERE s.key OPERATOR(pg_catalog.=) t.session)
GROUP BY session
LIMIT :limit::bigint;

-- name: orphans_branch
SELECT session, pg_catalog.count(*)
FROM turnstate.branch t
WHERE NOT EXISTS (SELECT 1 FROM turnstate.session s WHERE s.key OPERATOR(pg_catalog.=) t.session)
GROUP BY session
LIMIT :limit::bigint;

-- name: orphans_key
SELECT session, pg_catalog.count(*)
FROM turnstate.key t
WHERE NOT EXISTS (SELECT 1 FROM turnstate.session s WHERE s.key OPERATOR(pg_catalog.=) t.session)
GROUP BY session
LIMIT :limit::bigint;

-- name: set_entry_orphans_aside
WITH gone AS (DELETE FROM turnstate.entry WHERE session OPERATOR(pg_catalog.=) :key RETURNING *)
INSERT INTO turnstate.damaged (session, branch, seq, id, kind, body, fault)
SELECT 0, branch, seq, id, kind, body, :fault FROM gone;

-- name: set_branch_orphans_aside
WITH gone AS (DELETE FROM turnstate.branch WHERE session OPERATOR(pg_catalog.=) :key RETURNING *)
INSERT INTO turnstate.damaged (session, branch, seq, id, kind, body, fault)
SELECT 0, id, fork_seq, name, 'branch',
       pg_catalog.convert_to(
           pg_catalog.json_build_array(parent, created, operation, former)::pg_catalog.text, 'UTF8'),
       :fault
FROM gone;

-- name: set_key_orphans_aside
WITH gone AS (DELETE FROM turnstate.key WHERE session OPERATOR(pg_catalog.=) :key RETURNING *)
INSERT INTO turnstate.damaged (session, branch, seq, id, kind, body, fault)
SELECT 0, branch, last, name, 'key', digest, :fault FROM gone;

-- name: stray_words
SELECT pg_catalog.count(*)
FROM turnstate.word w
WHERE NOT EXISTS (SELECT 1 FROM turnstate.entry e WHERE e.key OPERATOR(pg_catalog.=) w.entry);

-- name: drop_stray_words
DELETE FROM turnstate.word w
WHERE NOT EXISTS (SELECT 1 FROM turnstate.entry e WHERE e.key OPERATOR(pg_catalog.=) w.entry);

-- The sequence has the newest key that an entry ever had.
-- name: index_end
SELECT pg_catalog.count(*), pg_catalog.max(through), (SELECT last_value FROM turnstate.entry_key_seq)
FROM turnstate.indexed;

-- name: reset_index_end
WITH gone AS (DELETE FROM turnstate.indexed)
INSERT INTO turnstate.indexed (through) VALUES (0);

-- name: stray_parcels
SELECT id, tenant, session
FROM turnstate.outbox o
WHERE NOT EXISTS (
    SELECT 1 FROM turnstate.session s
    WHERE s.tenant OPERATOR(pg_catalog.=) o.tenant AND s.id OPERATOR(pg_catalog.=) o.session)
ORDER BY id
LIMIT :limit::bigint;

-- name: set_parcel_aside
WITH gone AS (DELETE FROM turnstate.outbox WHERE id OPERATOR(pg_catalog.=) :id RETURNING *)
INSERT INTO turnstate.damaged (session, branch, seq, id, kind, body, fault)
SELECT 0, 0, 0, id, 'parcel', body, :fault FROM gone;
