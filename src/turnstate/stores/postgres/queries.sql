-- Until the transaction ends, only built-in objects are found without a schema.
-- name: pin_names
SET LOCAL search_path = pg_catalog, pg_temp;

-- The types that the driver does not know by itself.
-- name: array_types
SELECT :numbers::bigint[], :bytes::pg_catalog.bytea[], :small::int[], :flags::boolean[];

-- name: settings
SELECT pg_catalog.current_setting('server_version') AS version,
       pg_catalog.current_setting('server_version_num')::int AS number,
       pg_catalog.current_setting('server_encoding') AS encoding,
       pg_catalog.current_setting('synchronous_commit') AS synchronous_commit,
       pg_catalog.current_setting('fsync') AS fsync,
       pg_catalog.current_setting('full_page_writes') AS full_page_writes,
       pg_catalog.pg_is_in_recovery() AS is_replica,
       pg_catalog.current_setting('transaction_read_only') AS read_only;

-- name: sizes
SELECT pg_catalog.pg_database_size(pg_catalog.current_database()) AS database,
       (SELECT coalesce(pg_catalog.sum(pg_catalog.pg_total_relation_size(c.oid)), 0)
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
        WHERE n.nspname OPERATOR(pg_catalog.=) :schema::pg_catalog.text
          AND c.relkind OPERATOR(pg_catalog.=) 'r')::bigint AS own,
       pg_catalog.current_database()::pg_catalog.text AS name;

-- name: time
SELECT (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000)::bigint;

-- What is in the schema and was not made by the steps, or not by the role that took them: it may run as ours.
-- name: foreign
WITH own AS (
    SELECT n.oid, c.relowner AS role
    FROM pg_catalog.pg_namespace n
    JOIN pg_catalog.pg_class c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid
    WHERE n.nspname OPERATOR(pg_catalog.=) :schema::pg_catalog.text AND c.relname OPERATOR(pg_catalog.=) 'migration'
), relation AS (
    SELECT c.oid, c.relname, c.relkind,
           c.relowner OPERATOR(pg_catalog.=) own.role
               AND c.relname OPERATOR(pg_catalog.=) ANY (:tables::pg_catalog.text[]) AS ours
    FROM pg_catalog.pg_class c JOIN own ON c.relnamespace OPERATOR(pg_catalog.=) own.oid
)
SELECT 'relation' AS kind, r.relname::pg_catalog.text AS name
FROM relation r
WHERE NOT r.ours AND r.relkind OPERATOR(pg_catalog.<>) ALL ('{i,I,t,S}'::pg_catalog."char"[])
UNION ALL
SELECT 'function', p.proname::pg_catalog.text
FROM pg_catalog.pg_proc p JOIN own ON p.pronamespace OPERATOR(pg_catalog.=) own.oid
WHERE p.proowner OPERATOR(pg_catalog.<>) own.role
   OR p.proname OPERATOR(pg_catalog.<>) ALL (:functions::pg_catalog.text[])
UNION ALL
SELECT 'operator', o.oprname::pg_catalog.text
FROM pg_catalog.pg_operator o JOIN own ON o.oprnamespace OPERATOR(pg_catalog.=) own.oid
UNION ALL
SELECT 'type', t.typname::pg_catalog.text
FROM pg_catalog.pg_type t JOIN own ON t.typnamespace OPERATOR(pg_catalog.=) own.oid
WHERE t.typrelid OPERATOR(pg_catalog.=) 0::pg_catalog.oid AND t.typcategory OPERATOR(pg_catalog.<>) 'A'
UNION ALL
SELECT 'trigger', t.tgname::pg_catalog.text
FROM pg_catalog.pg_trigger t JOIN relation r ON t.tgrelid OPERATOR(pg_catalog.=) r.oid
WHERE NOT t.tgisinternal
UNION ALL
SELECT 'rule', w.rulename::pg_catalog.text
FROM pg_catalog.pg_rewrite w JOIN relation r ON w.ev_class OPERATOR(pg_catalog.=) r.oid
WHERE r.ours
UNION ALL
SELECT 'policy', y.polname::pg_catalog.text
FROM pg_catalog.pg_policy y JOIN relation r ON y.polrelid OPERATOR(pg_catalog.=) r.oid
ORDER BY 1, 2
LIMIT :limit::bigint;

-- name: create
SELECT turnstate.create_session(
    :tenant, :id, :user, :title, :tags, :counter, :meta, :marks, :created, :active, :idle, :epoch, :version, :fence,
    :lease_until, :holder, :ended, :reason, :ids, :kinds, :bodies, :tokens, :totals, :sums);

-- name: append
SELECT outcome, epoch, version, branch, first, last, fence, lease_until, holder, ended, reason, known_digest,
       known_created, created, total
FROM turnstate.append(
    :tenant, :session, :now, :created, :epoch, :key_name, :key_digest, :key_life, :fence, :expected_version, :expected_branch,
    :expected_seq, :forks, :fork_parent, :fork_at, :fork_name, :fork_operation, :select, :ids, :kinds, :bodies,
    :tokens, :totals, :sums, :parcel_ids, :parcel_tenants, :parcel_sessions, :parcel_kinds, :parcel_bodies,
    :parcel_dues, :moves_path, :is_activity, :next_epoch, :end);

-- name: append_all
SELECT change, epoch, version, branch, last
FROM turnstate.append_all(
    :tenants, :sessions, :rounds, :nows, :creations, :epochs, :key_names, :key_digests, :key_life, :fences, :versions,
    :branches, :seqs, :said, :counts, :added, :owners, :places, :ids, :kinds, :bodies, :tokens, :totals, :sums);

-- name: remove
SELECT entries, branches, keys, parcels FROM turnstate.remove(:tenant, :session);

-- name: session
SELECT tenant, id, "user", title, tags, counter, meta, created, active, idle, epoch, branch, seq, total, version,
       fence, lease_until, holder, ended, reason
FROM turnstate.session
WHERE tenant OPERATOR(pg_catalog.=) :tenant AND id OPERATOR(pg_catalog.=) :session;

-- name: describe
UPDATE turnstate.session
SET title = coalesce(:title::pg_catalog.text, title), tags = coalesce(:tags::pg_catalog.text[], tags),
    meta = coalesce(:meta::pg_catalog.bytea, meta),
    idle = coalesce(:idle::bigint, idle)
WHERE tenant OPERATOR(pg_catalog.=) :tenant AND id OPERATOR(pg_catalog.=) :session
  AND (:known::pg_catalog.bytea IS NULL OR meta OPERATOR(pg_catalog.=) :known)
RETURNING tenant, id, "user", title, tags, counter, meta, created, active, idle, epoch, branch, seq, total, version,
          fence, lease_until, holder, ended, reason;

-- name: acquire
UPDATE turnstate.session
SET fence = fence OPERATOR(pg_catalog.+) 1, lease_until = :until, holder = :holder
WHERE tenant OPERATOR(pg_catalog.=) :tenant AND id OPERATOR(pg_catalog.=) :session
  AND lease_until OPERATOR(pg_catalog.<=) :now
RETURNING fence;

-- name: renew
UPDATE turnstate.session
SET lease_until = :until
WHERE tenant OPERATOR(pg_catalog.=) :tenant AND id OPERATOR(pg_catalog.=) :session
  AND fence OPERATOR(pg_catalog.=) :fence
RETURNING fence;

-- name: release
UPDATE turnstate.session
SET lease_until = 0, holder = '', active = greatest(active, least(lease_until, :now::bigint))
WHERE tenant OPERATOR(pg_catalog.=) :tenant AND id OPERATOR(pg_catalog.=) :session
  AND fence OPERATOR(pg_catalog.=) :fence;

-- name: page
SELECT tenant, id, "user", title, tags, counter, meta, created, active, idle, epoch, branch, seq, total, version,
       fence, lease_until, holder, ended, reason
FROM turnstate.session
WHERE tenant OPERATOR(pg_catalog.=) :tenant
  AND (:moment::bigint IS NULL OR (created, id) OPERATOR(pg_catalog.<) (:moment, :id::pg_catalog.text))
  AND (:since::bigint IS NULL OR active OPERATOR(pg_catalog.>=) :since)
  AND (:until::bigint IS NULL OR active OPERATOR(pg_catalog.<) :until)
  AND (:live::boolean IS NULL OR (ended IS NULL) OPERATOR(pg_catalog.=) :live)
  AND (:tag::pg_catalog.text IS NULL OR tags OPERATOR(pg_catalog.@>) ARRAY[:tag])
ORDER BY created DESC, id DESC
LIMIT :limit::bigint;

-- name: page_of_user
SELECT tenant, id, "user", title, tags, counter, meta, created, active, idle, epoch, branch, seq, total, version,
       fence, lease_until, holder, ended, reason
FROM turnstate.session
WHERE tenant OPERATOR(pg_catalog.=) :tenant
  AND "user" OPERATOR(pg_catalog.=) :user
  AND (:moment::bigint IS NULL OR (created, id) OPERATOR(pg_catalog.<) (:moment, :id::pg_catalog.text))
  AND (:since::bigint IS NULL OR active OPERATOR(pg_catalog.>=) :since)
  AND (:until::bigint IS NULL OR active OPERATOR(pg_catalog.<) :until)
  AND (:live::boolean IS NULL OR (ended IS NULL) OPERATOR(pg_catalog.=) :live)
  AND (:tag::pg_catalog.text IS NULL OR tags OPERATOR(pg_catalog.@>) ARRAY[:tag])
ORDER BY created DESC, id DESC
LIMIT :limit::bigint;

-- An index by activity would be written by every append, so the sessions of the tenant are sorted.
-- name: page_by_activity
SELECT tenant, id, "user", title, tags, counter, meta, created, active, idle, epoch, branch, seq, total, version,
       fence, lease_until, holder, ended, reason
FROM turnstate.session
WHERE tenant OPERATOR(pg_catalog.=) :tenant
  AND (:user::pg_catalog.text IS NULL OR "user" OPERATOR(pg_catalog.=) :user)
  AND (:moment::bigint IS NULL OR (active, id) OPERATOR(pg_catalog.<) (:moment, :id::pg_catalog.text))
  AND (:since::bigint IS NULL OR active OPERATOR(pg_catalog.>=) :since)
  AND (:until::bigint IS NULL OR active OPERATOR(pg_catalog.<) :until)
  AND (:live::boolean IS NULL OR (ended IS NULL) OPERATOR(pg_catalog.=) :live)
  AND (:tag::pg_catalog.text IS NULL OR tags OPERATOR(pg_catalog.@>) ARRAY[:tag])
ORDER BY active DESC, id DESC
LIMIT :limit::bigint;

-- name: due_sessions
SELECT tenant, id, "user", title, tags, counter, meta, created, active, idle, epoch, branch, seq, total, version,
       fence, lease_until, holder, ended, reason
FROM turnstate.session
WHERE tenant OPERATOR(pg_catalog.=) :tenant AND expires OPERATOR(pg_catalog.<=) :now
  AND lease_until OPERATOR(pg_catalog.<=) (:now OPERATOR(pg_catalog.-) idle)
ORDER BY expires, id
LIMIT :limit::bigint;

-- A session without what is asked for is one row of nothing; no session is no row.
-- name: branches
SELECT b.id, b.parent, b.fork_seq, b.created, b.name, b.operation, b.former
FROM turnstate.session s
LEFT JOIN turnstate.branch b ON b.session OPERATOR(pg_catalog.=) s.key
WHERE s.tenant OPERATOR(pg_catalog.=) :tenant AND s.id OPERATOR(pg_catalog.=) :session
ORDER BY b.id;

-- name: read
SELECT s.key, e.branch, e.seq, e.id, e.kind, e.body, e.tokens, e.total, e.checksum
FROM turnstate.session s
LEFT JOIN LATERAL (
    SELECT * FROM turnstate.entry
    WHERE session OPERATOR(pg_catalog.=) s.key AND branch OPERATOR(pg_catalog.=) :branch
      AND seq OPERATOR(pg_catalog.>=) :first AND seq OPERATOR(pg_catalog.<=) :last
    ORDER BY seq
    LIMIT :limit::bigint) e ON true
WHERE s.tenant OPERATOR(pg_catalog.=) :tenant AND s.id OPERATOR(pg_catalog.=) :session
ORDER BY e.seq;

-- name: read_newest
SELECT s.key, e.branch, e.seq, e.id, e.kind, e.body, e.tokens, e.total, e.checksum
FROM turnstate.session s
LEFT JOIN LATERAL (
    SELECT * FROM turnstate.entry
    WHERE session OPERATOR(pg_catalog.=) s.key AND branch OPERATOR(pg_catalog.=) :branch
      AND seq OPERATOR(pg_catalog.>=) :first AND seq OPERATOR(pg_catalog.<=) :last
    ORDER BY seq DESC
    LIMIT :limit::bigint) e ON true
WHERE s.tenant OPERATOR(pg_catalog.=) :tenant AND s.id OPERATOR(pg_catalog.=) :session
ORDER BY e.seq;

-- A session with the first rows of its branch, the newest ones up to a size, and the newest of some kinds.
-- name: ahead
SELECT s.tenant, s.id, s."user", s.title, s.tags, s.counter, s.meta, s.created, s.active, s.idle, s.epoch, s.branch,
       s.seq, s.total, s.version, s.fence, s.lease_until, s.holder, s.ended, s.reason,
       s.key AS entry_session, e.branch AS entry_branch, e.seq AS entry_seq, e.id AS entry_id, e.kind, e.body, e.tokens,
       e.total AS entry_total, e.checksum
FROM turnstate.session s
LEFT JOIN LATERAL (
    (SELECT branch, seq, id, kind, body, tokens, total, checksum
     FROM turnstate.entry
     WHERE session OPERATOR(pg_catalog.=) s.key AND branch OPERATOR(pg_catalog.=) s.branch
     ORDER BY seq
     LIMIT :first::bigint)
    UNION ALL
    (SELECT branch, seq, id, kind, body, tokens, total, checksum
     FROM (
         SELECT pg_catalog.sum(pg_catalog.octet_length(body)) OVER (ORDER BY seq DESC)
                    OPERATOR(pg_catalog.-) pg_catalog.octet_length(body) AS size_before,
                latest.*
         FROM (
             SELECT * FROM turnstate.entry
             WHERE session OPERATOR(pg_catalog.=) s.key AND branch OPERATOR(pg_catalog.=) s.branch
             ORDER BY seq DESC
             LIMIT :newest::bigint) latest) sized
     WHERE size_before OPERATOR(pg_catalog.<) :size::bigint)
    UNION ALL
    (SELECT of_kind.*
     FROM pg_catalog.unnest(:kinds::pg_catalog.text[]) AS wanted (kind)
     CROSS JOIN LATERAL (
         SELECT branch, seq, id, kind, body, tokens, total, checksum
         FROM turnstate.entry
         WHERE session OPERATOR(pg_catalog.=) s.key AND branch OPERATOR(pg_catalog.=) s.branch
           AND kind OPERATOR(pg_catalog.=) wanted.kind AND kind OPERATOR(pg_catalog.<>) 'message'
         ORDER BY seq DESC
         LIMIT 1) of_kind)
) e ON true
WHERE s.tenant OPERATOR(pg_catalog.=) :tenant AND s.id OPERATOR(pg_catalog.=) :session;

-- Within a session the order of keys is that of the commits: whoever writes has locked the session.
-- name: since
-- OFFSET 0 keeps the planner from walking the keys of all sessions.
SELECT e.session, e.branch, e.seq, e.id, e.kind, e.body, e.tokens, e.total, e.checksum
FROM (SELECT own.key
      FROM (SELECT o.key
            FROM turnstate.session s
            JOIN turnstate.entry o ON o.session OPERATOR(pg_catalog.=) s.key
            WHERE s.tenant OPERATOR(pg_catalog.=) :tenant AND s.id OPERATOR(pg_catalog.=) :session
            OFFSET 0) own
      WHERE own.key OPERATOR(pg_catalog.>) :after::bigint
      ORDER BY own.key
      LIMIT :limit::bigint) following
JOIN turnstate.entry e ON e.key OPERATOR(pg_catalog.=) following.key
ORDER BY e.key;

-- name: key_of_entry
SELECT s.key, e.key
FROM turnstate.session s
LEFT JOIN turnstate.entry e
    ON e.session OPERATOR(pg_catalog.=) s.key AND e.id OPERATOR(pg_catalog.=) :id::pg_catalog.text
WHERE s.tenant OPERATOR(pg_catalog.=) :tenant AND s.id OPERATOR(pg_catalog.=) :session;

-- name: last_entry
SELECT pg_catalog.max(key) FROM turnstate.entry;

-- Transactions that may have taken a key and not committed yet: each has locked the table first.
-- name: writers
SELECT l.virtualtransaction
FROM pg_catalog.pg_locks l
WHERE l.locktype OPERATOR(pg_catalog.=) 'relation' AND l.granted
  AND l.database OPERATOR(pg_catalog.=)
      (SELECT d.oid FROM pg_catalog.pg_database d
       WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
  AND l.relation OPERATOR(pg_catalog.=) 'turnstate.entry'::pg_catalog.regclass::pg_catalog.oid
  AND l.mode OPERATOR(pg_catalog.=) 'RowExclusiveLock';

-- name: feed
SELECT e.key, s.id, e.session, e.branch, e.seq, e.id, e.kind, e.body, e.tokens, e.total, e.checksum
FROM turnstate.entry e
JOIN turnstate.session s ON s.key OPERATOR(pg_catalog.=) e.session
WHERE e.key OPERATOR(pg_catalog.>) :after::bigint AND e.key OPERATOR(pg_catalog.<=) :until::bigint
  AND s.tenant OPERATOR(pg_catalog.=) :tenant
ORDER BY e.key
LIMIT :limit::bigint;

-- Kind by kind: for all kinds at once the planner walks the span until statistics tell it that the kinds are rare, which
-- takes 30 ms for 30,000 entries.
-- name: read_kinds
SELECT s.key, e.branch, e.seq, e.id, e.kind, e.body, e.tokens, e.total, e.checksum
FROM turnstate.session s
LEFT JOIN LATERAL (
    SELECT of_kind.*
    FROM (SELECT DISTINCT pg_catalog.unnest(:kinds::pg_catalog.text[]) AS kind) AS wanted
    CROSS JOIN LATERAL (
        SELECT * FROM turnstate.entry
        WHERE session OPERATOR(pg_catalog.=) s.key AND branch OPERATOR(pg_catalog.=) :branch
          AND kind OPERATOR(pg_catalog.=) wanted.kind AND kind OPERATOR(pg_catalog.<>) 'message'
          AND seq OPERATOR(pg_catalog.>=) :first AND seq OPERATOR(pg_catalog.<=) :last
        ORDER BY seq
        LIMIT :limit::bigint) of_kind
    ORDER BY of_kind.seq
    LIMIT :limit::bigint) e ON true
WHERE s.tenant OPERATOR(pg_catalog.=) :tenant AND s.id OPERATOR(pg_catalog.=) :session
ORDER BY e.seq;

-- name: read_kinds_newest
SELECT s.key, e.branch, e.seq, e.id, e.kind, e.body, e.tokens, e.total, e.checksum
FROM turnstate.session s
LEFT JOIN LATERAL (
    SELECT of_kind.*
    FROM (SELECT DISTINCT pg_catalog.unnest(:kinds::pg_catalog.text[]) AS kind) AS wanted
    CROSS JOIN LATERAL (
        SELECT * FROM turnstate.entry
        WHERE session OPERATOR(pg_catalog.=) s.key AND branch OPERATOR(pg_catalog.=) :branch
          AND kind OPERATOR(pg_catalog.=) wanted.kind AND kind OPERATOR(pg_catalog.<>) 'message'
          AND seq OPERATOR(pg_catalog.>=) :first AND seq OPERATOR(pg_catalog.<=) :last
        ORDER BY seq DESC
        LIMIT :limit::bigint) of_kind
    ORDER BY of_kind.seq DESC
    LIMIT :limit::bigint) e ON true
WHERE s.tenant OPERATOR(pg_catalog.=) :tenant AND s.id OPERATOR(pg_catalog.=) :session
ORDER BY e.seq;

-- name: find
SELECT s.key, e.branch, e.seq, e.id, e.kind, e.body, e.tokens, e.total, e.checksum
FROM turnstate.session s
LEFT JOIN turnstate.entry e
    ON e.session OPERATOR(pg_catalog.=) s.key AND e.id OPERATOR(pg_catalog.=) ANY (:ids::pg_catalog.text[])
WHERE s.tenant OPERATOR(pg_catalog.=) :tenant AND s.id OPERATOR(pg_catalog.=) :session
ORDER BY e.branch, e.seq;

-- Messages are many, so the newest is near the end of a span; the other kinds have an index of their own.
-- name: newest
SELECT s.key, e.branch, e.seq, e.id, e.kind, e.body, e.tokens, e.total, e.checksum
FROM turnstate.session s
LEFT JOIN LATERAL (
    SELECT of_kind.*
    FROM pg_catalog.unnest(:kinds::pg_catalog.text[]) AS wanted (kind)
    CROSS JOIN LATERAL (
        SELECT in_span.*
        FROM ROWS FROM (
                 pg_catalog.unnest(:branches::bigint[]), pg_catalog.unnest(:firsts::bigint[]),
                 pg_catalog.unnest(:lasts::bigint[])) WITH ORDINALITY
             AS span (branch, first, last, place)
        CROSS JOIN LATERAL (
            (SELECT * FROM turnstate.entry
             WHERE session OPERATOR(pg_catalog.=) s.key AND branch OPERATOR(pg_catalog.=) span.branch
               AND seq OPERATOR(pg_catalog.>=) span.first AND seq OPERATOR(pg_catalog.<=) span.last
               AND kind OPERATOR(pg_catalog.=) wanted.kind AND kind OPERATOR(pg_catalog.<>) 'message'
             ORDER BY seq DESC
             LIMIT 1)
            UNION ALL
            (SELECT * FROM turnstate.entry
             WHERE session OPERATOR(pg_catalog.=) s.key AND branch OPERATOR(pg_catalog.=) span.branch
               AND seq OPERATOR(pg_catalog.>=) span.first AND seq OPERATOR(pg_catalog.<=) span.last
               AND kind OPERATOR(pg_catalog.=) 'message' AND wanted.kind OPERATOR(pg_catalog.=) 'message'
             ORDER BY seq DESC
             LIMIT 1)
        ) in_span
        ORDER BY span.place
        LIMIT 1
    ) of_kind
) e ON true
WHERE s.tenant OPERATOR(pg_catalog.=) :tenant AND s.id OPERATOR(pg_catalog.=) :session;

-- The marks of tenant and user are among the words, so that the index alone finds what is theirs.
-- name: search
SELECT e.key, s.id, e.session, e.branch, e.seq, e.id, e.kind, e.body, e.tokens, e.total, e.checksum
FROM turnstate.word w
JOIN turnstate.entry e ON e.key OPERATOR(pg_catalog.=) w.entry
JOIN turnstate.session s ON s.key OPERATOR(pg_catalog.=) e.session
WHERE w.words OPERATOR(pg_catalog.@@) :words::pg_catalog.text::pg_catalog.tsquery
  AND w.entry OPERATOR(pg_catalog.<) :before::bigint
  AND s.tenant OPERATOR(pg_catalog.=) :tenant
  AND (:user::pg_catalog.text IS NULL OR s."user" OPERATOR(pg_catalog.=) :user)
  AND (:session::pg_catalog.text IS NULL OR s.id OPERATOR(pg_catalog.=) :session)
ORDER BY w.entry DESC
LIMIT :limit::bigint;

-- Messages that are not indexed, at most as many bytes at once, but one in any case.
-- The lookup in `word` is a subquery, not a join: the planner might read all of `word` for a join.
-- name: unindexed
SELECT key, session, branch, seq, id, kind, body, tokens, total, checksum
FROM (
    SELECT pg_catalog.sum(pg_catalog.octet_length(body)) OVER (ORDER BY key)
               OPERATOR(pg_catalog.-) pg_catalog.octet_length(body) AS size_before,
           missing.*
    FROM (
        SELECT e.*
        FROM turnstate.entry e
        WHERE e.key OPERATOR(pg_catalog.>) (SELECT coalesce(pg_catalog.max(through), 0) FROM turnstate.indexed)
          AND e.key OPERATOR(pg_catalog.>) :after::bigint AND e.kind OPERATOR(pg_catalog.=) 'message'
          AND (SELECT w.entry FROM turnstate.word w WHERE w.entry OPERATOR(pg_catalog.=) e.key) IS NULL
        ORDER BY e.key
        LIMIT :limit::bigint) missing) sized
WHERE size_before OPERATOR(pg_catalog.<) :size::bigint
ORDER BY key;

-- name: count_unindexed
SELECT pg_catalog.count(*), pg_catalog.max(key)
FROM (
    SELECT e.key
    FROM turnstate.entry e
    WHERE e.key OPERATOR(pg_catalog.>) (SELECT coalesce(pg_catalog.max(through), 0) FROM turnstate.indexed)
      AND e.kind OPERATOR(pg_catalog.=) 'message'
      AND (SELECT w.entry FROM turnstate.word w WHERE w.entry OPERATOR(pg_catalog.=) e.key) IS NULL
    ORDER BY e.key
    LIMIT :limit::bigint) missing;

-- name: search_unindexed
SELECT key, session_id, session, branch, seq, id, kind, body, tokens, total, checksum
FROM (
    SELECT pg_catalog.sum(pg_catalog.octet_length(body)) OVER (ORDER BY key DESC)
               OPERATOR(pg_catalog.-) pg_catalog.octet_length(body) AS size_before,
           missing.*
    FROM (
        SELECT s.id AS session_id, e.*
        FROM turnstate.entry e
        JOIN turnstate.session s ON s.key OPERATOR(pg_catalog.=) e.session
        WHERE e.key OPERATOR(pg_catalog.>) (SELECT coalesce(pg_catalog.max(through), 0) FROM turnstate.indexed)
          AND e.key OPERATOR(pg_catalog.<) :before::bigint AND e.kind OPERATOR(pg_catalog.=) 'message'
          AND s.tenant OPERATOR(pg_catalog.=) :tenant
          AND (:user::pg_catalog.text IS NULL OR s."user" OPERATOR(pg_catalog.=) :user)
          AND (:session::pg_catalog.text IS NULL OR s.id OPERATOR(pg_catalog.=) :session)
          AND (SELECT w.entry FROM turnstate.word w WHERE w.entry OPERATOR(pg_catalog.=) e.key) IS NULL
        ORDER BY e.key DESC
        LIMIT :limit::bigint) missing) sized
WHERE size_before OPERATOR(pg_catalog.<) :size::bigint
ORDER BY key DESC;

-- name: add_words
SELECT turnstate.add_words(:entries, :words);

-- name: all_indexed
SELECT turnstate.all_indexed(:through);

-- name: take
WITH taken AS (
    SELECT id, due FROM turnstate.outbox
    WHERE NOT parked AND due OPERATOR(pg_catalog.<=) :now
      AND (:tenant::pg_catalog.text IS NULL OR tenant OPERATOR(pg_catalog.=) :tenant)
    ORDER BY due, id
    LIMIT :limit::bigint
    FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE turnstate.outbox o SET due = :until, tries = o.tries OPERATOR(pg_catalog.+) 1
    FROM taken
    WHERE o.id OPERATOR(pg_catalog.=) taken.id
    RETURNING taken.due AS was_due, o.*
)
SELECT id, tenant, session, kind, body, due, tries, error, parked FROM claimed ORDER BY was_due, id;

-- name: parcels
SELECT id, tenant, session, kind, body, due, tries, error, parked
FROM turnstate.outbox
WHERE (:tenant::pg_catalog.text IS NULL OR tenant OPERATOR(pg_catalog.=) :tenant)
  AND (:parked::boolean IS NULL OR parked OPERATOR(pg_catalog.=) :parked)
ORDER BY due, id
LIMIT :limit::bigint;

-- name: deliver
DELETE FROM turnstate.outbox WHERE id OPERATOR(pg_catalog.=) :id;

-- name: fail
UPDATE turnstate.outbox
SET error = :error, due = coalesce(:due::bigint, due), parked = :due IS NULL
WHERE id OPERATOR(pg_catalog.=) :id;

-- name: revive
UPDATE turnstate.outbox SET due = :due, tries = 0, parked = false
WHERE id OPERATOR(pg_catalog.=) :id AND parked
RETURNING id;

-- Read from the tables of the catalogue: what a connection has cached of it may be old.
-- name: schema
WITH own AS (
    SELECT oid FROM pg_catalog.pg_namespace WHERE nspname OPERATOR(pg_catalog.=) :schema::pg_catalog.text
), relation AS (
    SELECT c.relname FROM pg_catalog.pg_class c JOIN own ON c.relnamespace OPERATOR(pg_catalog.=) own.oid
)
SELECT EXISTS (SELECT 1 FROM own),
       EXISTS (SELECT 1 FROM relation WHERE relname OPERATOR(pg_catalog.=) 'migration'),
       EXISTS (SELECT 1 FROM relation);

-- name: lock_schema
SELECT pg_catalog.pg_advisory_xact_lock(:lock);

-- name: make_migration
CREATE TABLE turnstate.migration (
    number int PRIMARY KEY,
    taken pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.now()
);

-- name: version
SELECT pg_catalog.max(number) FROM turnstate.migration;

-- name: add_migration
INSERT INTO turnstate.migration (number) VALUES (:number);
