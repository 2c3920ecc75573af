-- name: session
-- A damaged index must not lead to another session: the columns of the row itself are compared, too.
SELECT key, tenant, id, user, title, tags, counter, meta, created, active, idle, epoch, branch, seq, total,
       version, fence, lease_until, holder, ended, reason
FROM session NOT INDEXED
WHERE key = (SELECT key FROM session WHERE tenant = :tenant AND id = :session)
  AND tenant = :tenant AND id = :session;

-- name: session_place
SELECT key, branch, seq
FROM session NOT INDEXED
WHERE key = (SELECT key FROM session WHERE tenant = :tenant AND id = :session)
  AND tenant = :tenant AND id = :session;

-- name: indexed_key
SELECT key FROM session INDEXED BY sqlite_autoindex_session_1 WHERE tenant = :tenant AND id = :session;

-- name: add_session
INSERT INTO session (tenant, id, user, title, tags, counter, meta, created, active, idle, epoch, branch, seq,
                     total, version, fence, lease_until, holder, ended, reason, expires, marks)
VALUES (:tenant, :id, :user, :title, :tags, :counter, :meta, :created, :active, :idle, :epoch, :branch, :seq,
        :total, :version, :fence, :lease_until, :holder, :ended, :reason, :expires, :marks)
RETURNING key;

-- name: advance_session
UPDATE session
SET epoch = ?, branch = ?, seq = ?, total = ?, version = ?, active = ?, ended = ?, reason = ?, expires = ?, fence = ?,
    lease_until = ?, holder = ?, marks = marks + ?
WHERE key = ?;

-- name: describe_session
UPDATE session
SET title = :title, tags = :tags, meta = :meta, idle = :idle, expires = :expires
WHERE key = :key;

-- name: lease_session
UPDATE session SET fence = :fence, lease_until = :lease_until, holder = :holder WHERE key = :key;

-- name: page
SELECT key, tenant, id, user, title, tags, counter, meta, created, active, idle, epoch, branch, seq, total,
       version, fence, lease_until, holder, ended, reason
FROM session
WHERE tenant = :tenant
  AND (:moment IS NULL OR (created, id) < (:moment, :id))
  AND (:since IS NULL OR active >= :since)
  AND (:until IS NULL OR active < :until)
  AND (:live IS NULL OR (ended IS NULL) = :live)
  AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(CAST(tags AS TEXT)) WHERE value = :tag))
ORDER BY created DESC, id DESC
LIMIT :limit;

-- name: page_of_user
SELECT key, tenant, id, user, title, tags, counter, meta, created, active, idle, epoch, branch, seq, total,
       version, fence, lease_until, holder, ended, reason
FROM session
WHERE tenant = :tenant
  AND user = :user
  AND (:moment IS NULL OR (created, id) < (:moment, :id))
  AND (:since IS NULL OR active >= :since)
  AND (:until IS NULL OR active < :until)
  AND (:live IS NULL OR (ended IS NULL) = :live)
  AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(CAST(tags AS TEXT)) WHERE value = :tag))
ORDER BY created DESC, id DESC
LIMIT :limit;

-- name: page_by_activity
SELECT key, tenant, id, user, title, tags, counter, meta, created, active, idle, epoch, branch, seq, total,
       version, fence, lease_until, holder, ended, reason
FROM session NOT INDEXED
WHERE tenant = :tenant
  AND (:user IS NULL OR user = :user)
  AND (:moment IS NULL OR (active, id) < (:moment, :id))
  AND (:since IS NULL OR active >= :since)
  AND (:until IS NULL OR active < :until)
  AND (:live IS NULL OR (ended IS NULL) = :live)
  AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(CAST(tags AS TEXT)) WHERE value = :tag))
ORDER BY active DESC, id DESC
LIMIT :limit;

-- name: due_sessions
SELECT key, tenant, id, user, title, tags, counter, meta, created, active, idle, epoch, branch, seq, total,
       version, fence, lease_until, holder, ended, reason
FROM session
WHERE tenant = :tenant AND expires <= :now AND lease_until <= :now - idle
ORDER BY expires, id
LIMIT :limit;

-- name: drop_tags
DELETE FROM tag WHERE session = :key;

-- name: add_tag
INSERT INTO tag (session, name) VALUES (:key, :name);

-- name: branches
SELECT id, parent, fork_seq, created, name, operation, former, tip FROM branch WHERE session = :key ORDER BY id;

-- name: first_entry
SELECT min(seq) FROM entry WHERE session = :key AND branch = :branch;

-- name: branch
SELECT parent, fork_seq, tip FROM branch WHERE session = :key AND id = :branch;

-- name: last_branch
SELECT max(id) FROM branch WHERE session = :key;

-- name: last_branch_of_entries
SELECT max(branch) FROM entry WHERE session = :key;

-- name: add_branch
INSERT INTO branch (session, id, parent, fork_seq, created, name, operation, former, tip)
VALUES (:key, :id, :parent, :fork_seq, :created, :name, :operation, :former, :fork_seq);

-- name: leave_branch
UPDATE branch SET tip = :seq WHERE session = :key AND id = :branch;

-- name: goes_beyond
SELECT EXISTS (SELECT 1 FROM entry WHERE session = :key AND branch = :branch AND seq > :seq);

-- name: total
SELECT total FROM entry WHERE session = :key AND branch = :branch AND seq = :seq;

-- Whether the index of kinds leads to all entries that it should.
-- name: marks
SELECT marks = (SELECT coalesce(sum(seq), 0)
                FROM entry INDEXED BY entry_by_kind
                WHERE session = :key AND kind <> 0)
FROM session
WHERE key = :key;

-- name: add_entry
INSERT INTO entry (session, branch, seq, id, kind, body, tokens, total, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: read
SELECT session, branch, seq, id, kind, body, tokens, total, checksum
FROM entry
WHERE session = :key AND branch = :branch AND seq BETWEEN :first AND :last
ORDER BY seq
LIMIT :limit;

-- name: read_newest
SELECT session, branch, seq, id, kind, body, tokens, total, checksum
FROM entry
WHERE session = :key AND branch = :branch AND seq BETWEEN :first AND :last
ORDER BY seq DESC
LIMIT :limit;

-- name: read_kinds
SELECT session, branch, seq, id, kind, body, tokens, total, checksum
FROM entry INDEXED BY entry_by_kind
WHERE session = :key AND branch = :branch AND kind IN (SELECT value FROM json_each(:kinds)) AND kind <> 0
  AND seq BETWEEN :first AND :last
ORDER BY seq
LIMIT :limit;

-- name: read_kinds_newest
SELECT session, branch, seq, id, kind, body, tokens, total, checksum
FROM entry INDEXED BY entry_by_kind
WHERE session = :key AND branch = :branch AND kind IN (SELECT value FROM json_each(:kinds)) AND kind <> 0
  AND seq BETWEEN :first AND :last
ORDER BY seq DESC
LIMIT :limit;

-- name: key_of_entry
SELECT key FROM entry WHERE session = :key AND id = :id;

-- The index has all keys of a session, so that no entry is read before it is known to be wanted.
-- name: since
SELECT session, branch, seq, id, kind, body, tokens, total, checksum
FROM entry
WHERE key IN (SELECT key FROM entry INDEXED BY sqlite_autoindex_entry_2
              WHERE session = :key AND key > :after
              ORDER BY key
              LIMIT :limit)
ORDER BY key;

-- name: scan_since
SELECT session, branch, seq, id, kind, body, tokens, total, checksum
FROM entry NOT INDEXED
WHERE session = :key AND key > :after
ORDER BY key
LIMIT :limit;

-- name: feed
SELECT entry.key, session.id, entry.session, entry.branch, entry.seq, entry.id, entry.kind, entry.body,
       entry.tokens, entry.total, entry.checksum
FROM entry NOT INDEXED
CROSS JOIN session NOT INDEXED ON session.key = entry.session
WHERE entry.key > :after AND session.tenant = :tenant
ORDER BY entry.key
LIMIT :limit;

-- name: last_entry
SELECT coalesce(max(key), 0) FROM entry NOT INDEXED;

-- name: find
SELECT session, branch, seq, id, kind, body, tokens, total, checksum FROM entry WHERE session = :key AND id = :id;

-- name: newest
SELECT session, branch, seq, id, kind, body, tokens, total, checksum
FROM entry
WHERE session = :key AND branch = :branch AND kind = :kind AND kind <> 0 AND seq BETWEEN :first AND :last
ORDER BY seq DESC
LIMIT 1;

-- name: newest_place
SELECT seq
FROM entry INDEXED BY entry_by_kind
WHERE session = :key AND branch = :branch AND kind = :kind AND kind <> 0 AND seq BETWEEN :first AND :last
ORDER BY seq DESC
LIMIT 1;

-- name: known_key
SELECT digest, epoch, version, branch, first, last, created FROM key WHERE session = :key AND name = :name;

-- name: keep_key
INSERT OR REPLACE INTO key (session, name, digest, epoch, version, branch, first, last, created)
VALUES (:key, :name, :digest, :epoch, :version, :branch, :first, :last, :created);

-- name: has_keys_until
SELECT 1 FROM key WHERE created <= :until LIMIT 1;

-- name: forget_keys
DELETE FROM key
WHERE (session, name) IN (SELECT session, name FROM key WHERE created <= :until ORDER BY created LIMIT :limit);

-- Back from now, by the farthest key within a step or, across a gap, by the next one, which counts as a step. `life`
-- is what is left at `later`; where it ends between `later` and `at`, keys are forgotten.
-- name: forgotten_until
WITH RECURSIVE back (at, later, life) AS (
    VALUES (:now, :now, :life)
    UNION ALL
    SELECT coalesce((SELECT min(created) FROM key WHERE created >= at - :step AND created < at),
                    (SELECT max(created) FROM key WHERE created < at)),
           at,
           life - min(later - at, :step)
    FROM back
    WHERE life > min(later - at, :step)
)
SELECT later - life FROM back WHERE life <= min(later - at, :step);

-- name: add_parcel
INSERT OR IGNORE INTO outbox (id, tenant, session, kind, body, due, tries, error, parked)
VALUES (:id, :tenant, :session, :kind, :body, :due, 0, '', 0);

-- name: due_parcels
SELECT id, tenant, session, kind, body, due, tries, error, parked
FROM outbox
WHERE parked = 0 AND due <= :now AND (:tenant IS NULL OR tenant = :tenant)
ORDER BY due, id
LIMIT :limit;

-- name: claim_parcel
UPDATE outbox SET due = :until, tries = tries + 1 WHERE id = :id;

-- name: parcels
SELECT id, tenant, session, kind, body, due, tries, error, parked
FROM outbox
WHERE (:tenant IS NULL OR tenant = :tenant) AND (:parked IS NULL OR parked = :parked)
ORDER BY due, id
LIMIT :limit;

-- name: drop_parcel
DELETE FROM outbox WHERE id = :id;

-- name: fail_parcel
UPDATE outbox SET error = :error, due = coalesce(:due, due), parked = :due IS NULL WHERE id = :id;

-- name: revive_parcel
UPDATE outbox SET due = :due, tries = 0, parked = 0 WHERE id = :id AND parked = 1 RETURNING id;

-- name: counts
SELECT (SELECT count(*) FROM entry INDEXED BY sqlite_autoindex_entry_1 WHERE session = :key),
       (SELECT count(*) FROM branch WHERE session = :key),
       (SELECT count(*) FROM key WHERE session = :key),
       (SELECT count(*) FROM outbox WHERE tenant = :tenant AND session = :session);

-- name: add_words
INSERT INTO word (rowid, words) VALUES (?, ?);

-- name: newest_indexed
SELECT newest, EXISTS (SELECT 1 FROM entry NOT INDEXED WHERE key = newest AND kind = 0)
FROM (SELECT max(id) AS newest FROM word_docsize);

-- name: count_after_index
SELECT count(*) FROM (SELECT 1 FROM entry NOT INDEXED WHERE key > :after LIMIT :limit);

-- name: after_index
SELECT key, session, branch, seq, id, kind, body, tokens, total, checksum
FROM entry NOT INDEXED
WHERE key > :after
ORDER BY key;

-- name: messages_after_index
SELECT key FROM entry NOT INDEXED WHERE key > :after AND key <= :last AND kind = 0;

-- name: search_after_index
SELECT entry.key, session.id, entry.session, entry.branch, entry.seq, entry.id, entry.kind, entry.body,
       entry.tokens, entry.total, entry.checksum
FROM entry NOT INDEXED
LEFT JOIN session NOT INDEXED ON session.key = entry.session
WHERE entry.key > :after
  AND (:before IS NULL OR entry.key < :before)
  AND (session.key IS NULL OR (session.tenant = :tenant AND (:user IS NULL OR session.user = :user)
                               AND (:session IS NULL OR session.id = :session)))
ORDER BY entry.key DESC;

-- A message whose row is lost is found all the same: the index for search knows that it was there.
-- name: search
SELECT word.rowid, session.id, entry.session, entry.branch, entry.seq, entry.id, entry.kind, entry.body,
       entry.tokens, entry.total, entry.checksum
FROM word
LEFT JOIN entry ON entry.key = word.rowid
LEFT JOIN session ON session.key = entry.session
WHERE word MATCH :words
  AND word.rowid BETWEEN :least AND :most
  AND (session.key IS NULL OR (session.tenant = :tenant AND (:user IS NULL OR session.user = :user)
                               AND (:session IS NULL OR session.id = :session)))
ORDER BY word.rowid DESC
LIMIT :limit;

-- name: session_to_search
SELECT key FROM session WHERE tenant = :tenant AND id = :session AND (:user IS NULL OR user = :user);

-- name: sessions_to_search
SELECT key FROM session WHERE tenant = :tenant AND user = :user LIMIT :most;

-- Keys grow with the number of an entry on its branch, so those of a session are between the first and the last entries
-- of its branches. They count if the row itself says that it is the one that the index led to.
-- name: span_of_sessions
WITH edge (session, branch, seq) AS (
    SELECT session.key, branch.id, edge.value
    FROM json_each(:keys) AS chosen
    JOIN session ON session.key = chosen.value
    JOIN branch ON branch.session = session.key
    JOIN json_each(json_array(branch.fork_seq + 1, iif(branch.id = session.branch, session.seq, branch.tip))) AS edge
    WHERE iif(branch.id = session.branch, session.seq, branch.tip) > branch.fork_seq
)
SELECT min(entry.key), max(entry.key), count(*) = count(entry.key)
FROM edge
LEFT JOIN entry NOT INDEXED
ON entry.key = (SELECT indexed.key FROM entry AS indexed
                WHERE (indexed.session, indexed.branch, indexed.seq) = (edge.session, edge.branch, edge.seq))
   AND (entry.session, entry.branch, entry.seq) = (edge.session, edge.branch, edge.seq);

-- name: size
SELECT coalesce(sum(length(body) + length(id) + 150), 0) FROM entry WHERE session = :key;

-- name: drop_words
DELETE FROM word WHERE rowid IN (SELECT key FROM entry WHERE session = :key);

-- name: optimize_words
INSERT INTO word (word) VALUES ('optimize');

-- name: drop_entries
DELETE FROM entry WHERE session = :key;

-- name: drop_damaged
DELETE FROM damaged WHERE session = :key;

-- name: drop_branches
DELETE FROM branch WHERE session = :key;

-- name: drop_keys
DELETE FROM key WHERE session = :key;

-- name: drop_parcels
DELETE FROM outbox WHERE tenant = :tenant AND session = :session;

-- name: drop_session
DELETE FROM session WHERE key = :key;
