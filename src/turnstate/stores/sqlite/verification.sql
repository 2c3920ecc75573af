-- Entries in their table without any index; backwards if the beginning of the table is damaged.
-- name: scan
SELECT session, branch, seq, id, kind, body, tokens, total, checksum
FROM entry NOT INDEXED
WHERE session = :key AND branch = :branch AND seq BETWEEN :first AND :last
ORDER BY key;

-- name: scan_backwards
SELECT session, branch, seq, id, kind, body, tokens, total, checksum
FROM entry NOT INDEXED
WHERE session = :key AND branch = :branch AND seq BETWEEN :first AND :last
ORDER BY key DESC;

-- Whose an entry is that the index of places leads to, as its own row says.
-- name: own_place
SELECT session, branch, seq
FROM entry NOT INDEXED
WHERE key = (SELECT key FROM entry WHERE session = :key AND branch = :branch AND seq = :seq);

-- name: scan_for_id
SELECT session, branch, seq, id, kind, body, tokens, total, checksum
FROM entry NOT INDEXED
WHERE session = :key AND id = :id;

-- name: scan_for_first
SELECT min(seq) FROM entry NOT INDEXED WHERE session = :key AND branch = :branch;

-- How many entries a session has, as its rows say, and as the index of ids does.
-- name: entry_counts
SELECT (SELECT sum(iif(branch.id = session.branch, session.seq, branch.tip) - fork_seq)
        FROM branch
        WHERE branch.session = session.key),
       (SELECT count(*) FROM entry INDEXED BY sqlite_autoindex_entry_2 WHERE entry.session = session.key)
FROM session
WHERE key = :key;

-- name: last_key
SELECT seq FROM sqlite_sequence WHERE name = 'entry' AND typeof(seq) = 'integer';

-- name: continue_keys
UPDATE sqlite_sequence SET seq = max(seq, :last) WHERE name = 'entry';

-- SQLite counts the rows of whichever tree is the smallest; it does not so with sum.
-- name: scanned_entries
SELECT coalesce(sum(session = :key), 0) FROM entry NOT INDEXED;

-- name: scan_for_key
SELECT key FROM entry NOT INDEXED WHERE session = :key AND id = :id;

-- name: ids_are_indexed
SELECT (SELECT sum(iif(branch.id = session.branch, session.seq, branch.tip) - fork_seq)
        FROM branch
        WHERE branch.session = session.key)
       = (SELECT count(*) FROM entry INDEXED BY sqlite_autoindex_entry_2 WHERE entry.session = session.key)
FROM session
WHERE key = :key;

-- SQLite counts the rows of whichever tree is the smallest, whatever INDEXED BY says; it does not so with sum.
-- name: session_counts
SELECT sessions,
       (SELECT coalesce(sum(1), 0) FROM session INDEXED BY sqlite_autoindex_session_1),
       (SELECT coalesce(sum(1), 0) FROM session INDEXED BY session_by_creation),
       (SELECT coalesce(sum(1), 0) FROM session INDEXED BY session_by_user),
       expiring,
       (SELECT coalesce(sum(1), 0) FROM session INDEXED BY session_by_expiry WHERE expires IS NOT NULL)
FROM (SELECT count(*) AS sessions, count(expires) AS expiring FROM session NOT INDEXED);

-- name: outbox_counts
SELECT (SELECT coalesce(sum(1), 0) FROM outbox INDEXED BY sqlite_autoindex_outbox_1),
       (SELECT coalesce(sum(1), 0) FROM outbox INDEXED BY outbox_by_due),
       (SELECT coalesce(sum(1), 0) FROM outbox INDEXED BY outbox_by_session);

-- name: all_entries
SELECT (SELECT coalesce(sum(iif(branch.id = session.branch, session.seq, branch.tip) - fork_seq), 0)
        FROM session NOT INDEXED
        CROSS JOIN branch ON branch.session = session.key),
       (SELECT coalesce(sum(1), 0) FROM entry NOT INDEXED);

-- name: promises
SELECT 0, marks, coalesce((SELECT sum(seq) FROM entry WHERE entry.session = :key AND kind <> 0), 0)
FROM session
WHERE key = :key
UNION ALL
SELECT id, tip,
       coalesce((SELECT max(seq) FROM entry WHERE entry.session = :key AND entry.branch = branch.id), fork_seq)
FROM branch
WHERE session = :key AND id <> (SELECT branch FROM session WHERE key = :key);

-- name: set_promises
UPDATE session
SET marks = coalesce((SELECT sum(seq) FROM entry WHERE entry.session = session.key AND kind <> 0), 0)
WHERE :key IS NULL OR key = :key;
UPDATE branch
SET tip = coalesce((SELECT max(seq) FROM entry WHERE entry.session = branch.session AND entry.branch = branch.id),
                   fork_seq)
WHERE (:key IS NULL OR session = :key) AND id <> (SELECT branch FROM session WHERE key = branch.session);

-- name: structure_of_words
SELECT block FROM word_data WHERE id = 10;

-- name: pages_of_words
SELECT segid, pgno >> 1 FROM word_idx;

-- name: page_of_words
SELECT block FROM word_data WHERE id = :id;

-- name: schema
SELECT type, name, tbl_name, sql FROM sqlite_schema;

-- name: session_keys
SELECT key FROM session WHERE key > :after ORDER BY key LIMIT :limit;

-- Texts are read as bytes: what is damaged may be no text.
-- name: address
SELECT CAST(tenant AS BLOB), CAST(id AS BLOB) FROM session WHERE key = :key;

-- name: description
SELECT CAST(title AS BLOB), CAST(holder AS BLOB), CAST(reason AS BLOB), CAST(counter AS BLOB), CAST(tags AS BLOB),
       CAST(meta AS BLOB), expires, iif(idle <> 0 AND ended IS NULL, active + idle, NULL)
FROM session
WHERE key = :key;

-- name: tags
SELECT CAST(name AS BLOB) FROM tag WHERE session = :key;

-- name: set_title
UPDATE session SET title = :title WHERE key = :key;

-- name: set_counter
UPDATE session SET counter = :counter WHERE key = :key;

-- name: set_holder
UPDATE session SET holder = :holder WHERE key = :key;

-- name: set_reason
UPDATE session SET reason = :reason WHERE key = :key;

-- name: set_meta
UPDATE session SET meta = :meta WHERE key = :key;

-- name: set_tags
UPDATE session SET tags = :tags WHERE key = :key;

-- name: set_expiry
UPDATE session SET expires = :expires WHERE key = :key;

-- name: head
SELECT branch, seq, total, CAST(counter AS BLOB) FROM session WHERE key = :key;

-- name: set_head
UPDATE session SET branch = :branch, seq = :seq, total = :total WHERE key = :key;

-- name: branch_rows
SELECT id, parent, fork_seq, former FROM branch WHERE session = :key;

-- name: branch_names
SELECT id, CAST(name AS BLOB), CAST(operation AS BLOB) FROM branch WHERE session = :key;

-- name: set_branch_names
UPDATE branch SET name = :name, operation = :operation WHERE session = :key AND id = :id;

-- The first and the last entry of every branch that has any.
-- name: branch_ends
SELECT branch,
       first,
       (SELECT total - tokens FROM entry WHERE session = :key AND branch = ends.branch AND seq = first),
       last,
       (SELECT total FROM entry WHERE session = :key AND branch = ends.branch AND seq = last)
FROM (SELECT branch, min(seq) AS first, max(seq) AS last FROM entry WHERE session = :key GROUP BY branch) ends;

-- name: remake_branch
INSERT INTO branch (session, id, parent, fork_seq, created, name, operation, former)
VALUES (:key, :id, :parent, :fork_seq, 0, '', 'repair', :former);

-- name: remove_branch
DELETE FROM branch WHERE session = :key AND id = :id;

-- name: set_origin
UPDATE branch SET parent = :parent, fork_seq = :fork_seq WHERE session = :key AND id = :id;

-- name: set_former
UPDATE branch SET former = :former WHERE session = :key AND id = :id;

-- name: walked
SELECT key, seq, entry_id(typeof(id), CAST(id AS BLOB)), CAST(iif(kind = 0, 'message', kind) AS BLOB),
       entry_body(typeof(id), CAST(id AS BLOB), CAST(body AS BLOB)), tokens, total, checksum
FROM entry
WHERE session = :key AND branch = :branch AND seq > :after AND seq <= :tip
ORDER BY seq
LIMIT :limit;

-- name: count_entry
UPDATE entry SET tokens = :tokens WHERE key = :entry;

-- name: recount_entry
UPDATE entry SET tokens = :tokens, checksum = :checksum WHERE key = :entry;

-- name: total_entry
UPDATE entry SET total = :total WHERE key = :entry;

-- name: put_note
INSERT INTO damaged (session, branch, seq, id, kind, body, fault)
SELECT session, branch, seq, CAST(entry_id(typeof(id), CAST(id AS BLOB)) AS TEXT),
       CAST(iif(kind = 0, 'message', kind) AS TEXT), entry_body(typeof(id), CAST(id AS BLOB), CAST(body AS BLOB)), :fault
FROM entry
WHERE key = :entry;
DELETE FROM word WHERE rowid = :entry;
UPDATE entry
SET id = stored_id(:id), kind = :kind, body = :body, tokens = :tokens, total = :total, checksum = :checksum
WHERE key = :entry;

-- name: add_note
INSERT INTO entry (session, branch, seq, id, kind, body, tokens, total, checksum)
VALUES (:key, :branch, :seq, stored_id(:id), :kind, :body, :tokens, :total, :checksum);

-- name: set_entry_aside
INSERT INTO damaged (session, branch, seq, id, kind, body, fault)
SELECT session, branch, seq, CAST(entry_id(typeof(id), CAST(id AS BLOB)) AS TEXT),
       CAST(iif(kind = 0, 'message', kind) AS TEXT), entry_body(typeof(id), CAST(id AS BLOB), CAST(body AS BLOB)), :fault
FROM entry
WHERE key = :entry;
DELETE FROM word WHERE rowid = :entry;
DELETE FROM entry WHERE key = :entry;

-- name: set_aside
INSERT INTO damaged (session, branch, seq, id, kind, body, fault) VALUES (:key, 0, 0, '', :kind, :body, :fault);

-- name: stray_keys
SELECT CAST(name AS BLOB), branch, last
FROM key
WHERE session = :key
  AND (first > last + 1 OR first < 1
       OR last > coalesce((SELECT max(seq) FROM entry WHERE entry.session = key.session AND entry.branch = key.branch),
                          (SELECT fork_seq FROM branch WHERE branch.session = key.session AND branch.id = key.branch),
                          -1));

-- name: set_key_aside
INSERT INTO damaged (session, branch, seq, id, kind, body, fault)
SELECT session, branch, last, name, 'key', digest, :fault
FROM key
WHERE session = :key AND name = CAST(:name AS TEXT);
DELETE FROM key WHERE session = :key AND name = CAST(:name AS TEXT);

-- name: orphans_entry
SELECT session, count(*) FROM entry WHERE session NOT IN (SELECT key FROM session) GROUP BY session;

-- name: orphans_branch
SELECT session, count(*) FROM branch WHERE session NOT IN (SELECT key FROM session) GROUP BY session;

-- name: orphans_key
SELECT session, count(*) FROM key WHERE session NOT IN (SELECT key FROM session) GROUP BY session;

-- name: orphans_tag
SELECT session, count(*) FROM tag WHERE session NOT IN (SELECT key FROM session) GROUP BY session;

-- name: set_entry_orphans_aside
INSERT INTO damaged (session, branch, seq, id, kind, body, fault)
SELECT 0, branch, seq, CAST(entry_id(typeof(id), CAST(id AS BLOB)) AS TEXT), CAST(iif(kind = 0, 'message', kind) AS TEXT),
       entry_body(typeof(id), CAST(id AS BLOB), CAST(body AS BLOB)), :fault
FROM entry
WHERE session = :key;
DELETE FROM word WHERE rowid IN (SELECT key FROM entry WHERE session = :key);
DELETE FROM entry WHERE session = :key;

-- name: set_branch_orphans_aside
INSERT INTO damaged (session, branch, seq, id, kind, body, fault)
SELECT 0, id, fork_seq, name, 'branch', CAST(json_array(parent, created, operation, former) AS BLOB), :fault
FROM branch
WHERE session = :key;
DELETE FROM branch WHERE session = :key;

-- name: set_key_orphans_aside
INSERT INTO damaged (session, branch, seq, id, kind, body, fault)
SELECT 0, branch, last, name, 'key', digest, :fault FROM key WHERE session = :key;
DELETE FROM key WHERE session = :key;

-- name: set_tag_orphans_aside
INSERT INTO damaged (session, branch, seq, id, kind, body, fault)
SELECT 0, 0, 0, name, 'tag', x'', :fault FROM tag WHERE session = :key;
DELETE FROM tag WHERE session = :key;

-- name: stray_parcels
SELECT CAST(id AS BLOB), CAST(tenant AS BLOB), CAST(session AS BLOB)
FROM outbox
WHERE NOT EXISTS (SELECT 1 FROM session WHERE session.tenant = outbox.tenant AND session.id = outbox.session);

-- name: parcel_texts
SELECT CAST(id AS BLOB), CAST(tenant AS BLOB), CAST(session AS BLOB), CAST(kind AS BLOB), CAST(error AS BLOB)
FROM outbox;

-- name: set_parcel_aside
INSERT INTO damaged (session, branch, seq, id, kind, body, fault)
SELECT 0, 0, 0, id, 'parcel', body, :fault FROM outbox WHERE id = CAST(:id AS TEXT);
DELETE FROM outbox WHERE id = CAST(:id AS TEXT);

-- name: note_lost_commits
INSERT INTO damaged (session, branch, seq, id, kind, body, fault)
SELECT 0, 0, 0, :id, 'log', x'', :fault
WHERE NOT EXISTS (SELECT 1 FROM damaged WHERE session = 0 AND kind IN ('log', 'told') AND id = :id);

-- name: is_noted
SELECT 1 FROM damaged WHERE session = 0 AND kind IN ('log', 'told') AND id = :id;

-- name: lost_commits
SELECT key, fault FROM damaged WHERE session = 0 AND kind = 'log';

-- name: told_of_lost_commits
UPDATE damaged SET kind = 'told' WHERE key = :key;

-- name: make_vocabulary
CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary USING fts5vocab (main, word, instance);

-- name: vocabulary
SELECT term, doc FROM temp.vocabulary;

-- name: bodies
SELECT key, iif(kind = 0, 'message', kind), entry_body(typeof(id), CAST(id AS BLOB), CAST(body AS BLOB))
FROM entry
WHERE key > :after AND key <= :last ORDER BY key LIMIT :limit;

-- name: empty_words
INSERT INTO word (word) VALUES ('delete-all');

-- Salvage reads texts as bytes, row by row from a damaged file, and writes them to a new one.
-- name: first_of_session
SELECT min(key) FROM session NOT INDEXED;

-- name: last_of_session
SELECT max(key) FROM session NOT INDEXED;

-- name: salvage_session
SELECT key, CAST(tenant AS BLOB), CAST(id AS BLOB), CAST(user AS BLOB), CAST(title AS BLOB), tags,
       CAST(counter AS BLOB), meta, created, active, idle, epoch, branch, seq, total, version, fence, lease_until,
       CAST(holder AS BLOB), ended, CAST(reason AS BLOB), expires
FROM session NOT INDEXED
WHERE key BETWEEN ? AND ?
ORDER BY key;

-- name: restore_session
INSERT OR IGNORE INTO session (key, tenant, id, user, title, tags, counter, meta, created, active, idle, epoch, branch,
                               seq, total, version, fence, lease_until, holder, ended, reason, expires)
VALUES (?, CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), ?, CAST(? AS TEXT), ?, ?, ?, ?,
        ?, ?, ?, ?, ?, ?, ?, CAST(? AS TEXT), ?, CAST(? AS TEXT), ?);

-- name: first_of_entry
SELECT min(key) FROM entry NOT INDEXED;

-- name: last_of_entry
SELECT max(key) FROM entry NOT INDEXED;

-- name: salvage_entry
SELECT key, session, branch, seq, entry_id(typeof(id), CAST(id AS BLOB)), CAST(iif(kind = 0, 'message', kind) AS BLOB),
       entry_body(typeof(id), CAST(id AS BLOB), CAST(body AS BLOB)), tokens, total, checksum
FROM entry NOT INDEXED
WHERE key BETWEEN ? AND ?
ORDER BY key;

-- name: restore_entry
INSERT OR IGNORE INTO entry
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: first_of_damaged
SELECT min(key) FROM damaged NOT INDEXED;

-- name: last_of_damaged
SELECT max(key) FROM damaged NOT INDEXED;

-- name: salvage_damaged
SELECT key, session, branch, seq, CAST(id AS BLOB), CAST(kind AS BLOB), body, CAST(fault AS BLOB)
FROM damaged NOT INDEXED
WHERE key BETWEEN ? AND ?
ORDER BY key;

-- name: restore_damaged
INSERT OR IGNORE INTO damaged
VALUES (?, ?, ?, ?, CAST(? AS TEXT), CAST(? AS TEXT), ?, CAST(? AS TEXT));

-- name: first_of_branch
SELECT min(session) FROM branch;

-- name: last_of_branch
SELECT max(session) FROM branch;

-- name: salvage_branch
SELECT session, id, parent, fork_seq, created, CAST(name AS BLOB), CAST(operation AS BLOB), former
FROM branch
WHERE session BETWEEN ? AND ?
ORDER BY session;

-- name: restore_branch
INSERT OR IGNORE INTO branch (session, id, parent, fork_seq, created, name, operation, former, tip)
VALUES (?1, ?2, ?3, ?4, ?5, CAST(?6 AS TEXT), CAST(?7 AS TEXT), ?8, ?4);

-- name: first_of_tag
SELECT min(session) FROM tag;

-- name: last_of_tag
SELECT max(session) FROM tag;

-- name: salvage_tag
SELECT session, CAST(name AS BLOB)
FROM tag
WHERE session BETWEEN ? AND ?
ORDER BY session;

-- name: restore_tag
INSERT OR IGNORE INTO tag
VALUES (?, CAST(? AS TEXT));

-- name: first_of_key
SELECT min(session) FROM key NOT INDEXED;

-- name: last_of_key
SELECT max(session) FROM key NOT INDEXED;

-- name: salvage_key
SELECT session, CAST(name AS BLOB), digest, epoch, version, branch, first, last, created
FROM key NOT INDEXED
WHERE session BETWEEN ? AND ?
ORDER BY session;

-- name: restore_key
INSERT OR IGNORE INTO key
VALUES (?, CAST(? AS TEXT), ?, ?, ?, ?, ?, ?, ?);

-- name: restore_unsound_entry
INSERT INTO damaged (session, branch, seq, id, kind, body, fault)
VALUES (coalesce(CAST(? AS INTEGER), 0), coalesce(CAST(? AS INTEGER), 0), coalesce(CAST(? AS INTEGER), 0),
        coalesce(CAST(? AS TEXT), ''), coalesce(CAST(? AS TEXT), ''), coalesce(CAST(? AS BLOB), x''),
        'its bytes do not match their checksum');

-- name: next_parcel
SELECT id, tenant, session, kind, body, due, tries, error, parked
FROM outbox NOT INDEXED
WHERE id > :after
ORDER BY id
LIMIT 1;

-- name: parcel_before
SELECT id, tenant, session, kind, body, due, tries, error, parked
FROM outbox NOT INDEXED
WHERE id < :after
ORDER BY id DESC
LIMIT 1;

-- name: restore_parcel
INSERT OR IGNORE INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: indexed_sessions
SELECT key, tenant, id, user, created FROM session INDEXED BY session_by_user ORDER BY tenant, user, created, id;

-- name: indexed_sessions_from_the_end
SELECT key, tenant, id, user, created
FROM session INDEXED BY session_by_user
ORDER BY tenant DESC, user DESC, created DESC, id DESC;

-- name: restore_indexed_session
INSERT OR IGNORE INTO session (key, tenant, id, user, created, counter, title, tags, meta, active, idle, epoch, branch,
                               seq, total, version, fence, lease_until, holder, ended, reason)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, '', x'', CAST('{}' AS BLOB), ?5, 0, 1, 0, 0, 0, 0, 0, 0, '', NULL, '');

-- name: salvaged
SELECT (SELECT count(*) FROM session), (SELECT count(*) FROM entry);
