-- name: session_keys
SELECT key FROM holdfast.session WHERE key > :after ORDER BY key LIMIT :limit::bigint;

-- name: described
SELECT tenant, id, "user", counter, meta, marks FROM holdfast.session WHERE key = :key;

-- name: lock_session
SELECT key FROM holdfast.session WHERE key = :key FOR UPDATE;

-- name: short_messages
SELECT body, tokens
FROM holdfast.entry
WHERE session = :key AND kind = 'message' AND length(body) <= :most
ORDER BY branch, seq
LIMIT :limit::bigint;

-- name: set_counter
UPDATE holdfast.session SET counter = :counter WHERE key = :key;

-- name: set_meta
UPDATE holdfast.session SET meta = :meta WHERE key = :key;

-- name: set_marks
UPDATE holdfast.session SET marks = :marks WHERE key = :key;

-- name: head
SELECT branch, seq, total, counter FROM holdfast.session WHERE key = :key;

-- name: set_head
UPDATE holdfast.session SET branch = :branch, seq = :seq, total = :total WHERE key = :key;

-- name: branch_rows
SELECT id, parent, fork_seq, former FROM holdfast.branch WHERE session = :key;

-- The first and the last entry of every branch that has any.
-- name: branch_ends
SELECT ends.branch, ends.first, low.total - low.tokens AS base, ends.last, high.total
FROM (SELECT branch, min(seq) AS first, max(seq) AS last FROM holdfast.entry WHERE session = :key GROUP BY branch) ends
JOIN holdfast.entry low ON low.session = :key AND low.branch = ends.branch AND low.seq = ends.first
JOIN holdfast.entry high ON high.session = :key AND high.branch = ends.branch AND high.seq = ends.last
ORDER BY ends.branch;

-- name: total
SELECT total FROM holdfast.entry WHERE session = :key AND branch = :branch AND seq = :seq;

-- name: remake_branch
INSERT INTO holdfast.branch (session, id, parent, fork_seq, created, name, operation, former)
VALUES (:key, :id, :parent, :fork_seq, 0, '', 'repair', :former);

-- name: set_origin
UPDATE holdfast.branch SET parent = :parent, fork_seq = :fork_seq WHERE session = :key AND id = :id;

-- name: set_former
UPDATE holdfast.branch SET former = :former WHERE session = :key AND id = :id;

-- name: walked
SELECT key, seq, id, kind, body, tokens, total, checksum, tsvector_to_array(words) AS words
FROM holdfast.entry
WHERE session = :key AND branch = :branch AND seq > :after AND seq <= :tip
ORDER BY seq
LIMIT :limit::bigint;

-- name: count_entry
UPDATE holdfast.entry SET tokens = :tokens WHERE key = :entry;

-- name: recount_entry
UPDATE holdfast.entry SET tokens = :tokens, checksum = :checksum WHERE key = :entry;

-- name: total_entry
UPDATE holdfast.entry SET total = :total WHERE key = :entry;

-- name: word_entry
UPDATE holdfast.entry SET words = :words::text::tsvector WHERE key = :entry;

-- name: add_note
INSERT INTO holdfast.entry (session, branch, seq, id, kind, body, tokens, total, checksum)
VALUES (:key, :branch, :seq, :id, :kind, :body, :tokens, :total, :checksum);

-- name: put_note
WITH kept AS (
    INSERT INTO holdfast.damaged (session, branch, seq, id, kind, body, fault)
    SELECT session, branch, seq, id, kind, body, :fault FROM holdfast.entry WHERE key = :entry
)
UPDATE holdfast.entry
SET id = :id, kind = :kind, body = :body, tokens = :tokens, total = :total, checksum = :checksum, words = NULL
WHERE key = :entry;

-- name: set_entry_aside
WITH gone AS (DELETE FROM holdfast.entry WHERE key = :entry RETURNING *)
INSERT INTO holdfast.damaged (session, branch, seq, id, kind, body, fault)
SELECT session, branch, seq, id, kind, body, :fault FROM gone;

-- name: set_aside
INSERT INTO holdfast.damaged (session, branch, seq, id, kind, body, fault)
VALUES (:key, 0, 0, '', :kind, :body, :fault);

-- name: stray_keys
SELECT k.name, k.branch, k.last
FROM holdfast.key k
WHERE k.session = :key
  AND (k.first > k.last + 1 OR k.first < 1 OR k.last > coalesce(holdfast.tip(k.session, k.branch), -1))
ORDER BY k.name
LIMIT :limit::bigint;

-- name: set_key_aside
WITH gone AS (DELETE FROM holdfast.key WHERE session = :key AND name = :name RETURNING *)
INSERT INTO holdfast.damaged (session, branch, seq, id, kind, body, fault)
SELECT session, branch, last, name, 'key', digest, :fault FROM gone;

-- name: orphans_entry
SELECT session, count(*)
FROM holdfast.entry t
WHERE NOT EXISTS (SELECT 1 FROM holdfast.session s WHERE s.key = t.session)
GROUP BY session
LIMIT :limit::bigint;

-- name: orphans_branch
SELECT session, count(*)
FROM holdfast.branch t
WHERE NOT EXISTS (SELECT 1 FROM holdfast.session s WHERE s.key = t.session)
GROUP BY session
LIMIT :limit::bigint;

-- name: orphans_key
SELECT session, count(*)
FROM holdfast.key t
WHERE NOT EXISTS (SELECT 1 FROM holdfast.session s WHERE s.key = t.session)
GROUP BY session
LIMIT :limit::bigint;

-- name: set_entry_orphans_aside
WITH gone AS (DELETE FROM holdfast.entry WHERE session = :key RETURNING *)
INSERT INTO holdfast.damaged (session, branch, seq, id, kind, body, fault)
SELECT 0, branch, seq, id, kind, body, :fault FROM gone;

-- name: set_branch_orphans_aside
WITH gone AS (DELETE FROM holdfast.branch WHERE session = :key RETURNING *)
INSERT INTO holdfast.damaged (session, branch, seq, id, kind, body, fault)
SELECT 0, id, fork_seq, name, 'branch',
       convert_to(json_build_array(parent, created, operation, former)::text, 'UTF8'), :fault
FROM gone;

-- name: set_key_orphans_aside
WITH gone AS (DELETE FROM holdfast.key WHERE session = :key RETURNING *)
INSERT INTO holdfast.damaged (session, branch, seq, id, kind, body, fault)
SELECT 0, branch, last, name, 'key', digest, :fault FROM gone;

-- name: stray_parcels
SELECT id, tenant, session
FROM holdfast.outbox o
WHERE NOT EXISTS (SELECT 1 FROM holdfast.session s WHERE s.tenant = o.tenant AND s.id = o.session)
ORDER BY id
LIMIT :limit::bigint;

-- name: set_parcel_aside
WITH gone AS (DELETE FROM holdfast.outbox WHERE id = :id RETURNING *)
INSERT INTO holdfast.damaged (session, branch, seq, id, kind, body, fault)
SELECT 0, 0, 0, id, 'parcel', body, :fault FROM gone;
