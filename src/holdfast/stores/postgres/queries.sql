-- name: settings
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number,
       current_setting('server_encoding') AS encoding, current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
       pg_is_in_recovery() AS is_replica, current_setting('transaction_read_only') AS read_only;

-- name: sizes
SELECT pg_database_size(current_database()) AS database,
       (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = :schema::text AND c.relkind = 'r')::bigint AS own,
       current_database()::text AS name;

-- name: create
SELECT holdfast.create_session(
    :tenant, :id, :user, :title, :tags, :counter, :meta, :marks, :created, :active, :idle, :epoch, :version, :fence,
    :lease_until, :holder, :ended, :reason, :ids, :kinds, :bodies, :tokens, :totals, :sums, :words);

-- name: append
SELECT outcome, epoch, version, branch, first, last, fence, lease_until, holder, ended, reason, known_digest,
       known_created
FROM holdfast.append(
    :tenant, :session, :now, :epoch, :key_name, :key_digest, :key_life, :fence, :expected_version, :expected_branch,
    :expected_seq, :forks, :fork_parent, :fork_at, :fork_name, :fork_operation, :select, :ids, :kinds, :bodies,
    :tokens, :totals, :sums, :words, :parcel_ids, :parcel_tenants, :parcel_sessions, :parcel_kinds, :parcel_bodies,
    :parcel_dues, :moves_path, :is_activity, :next_epoch, :end);

-- name: remove
SELECT entries, branches, keys, parcels FROM holdfast.remove(:tenant, :session);

-- name: session
SELECT tenant, id, "user", title, tags, counter, meta, created, active, idle, epoch, branch, seq, total, version,
       fence, lease_until, holder, ended, reason
FROM holdfast.session
WHERE tenant = :tenant AND id = :session;

-- name: describe
UPDATE holdfast.session
SET title = coalesce(:title::text, title), tags = coalesce(:tags::text[], tags), meta = coalesce(:meta::bytea, meta),
    idle = coalesce(:idle::bigint, idle)
WHERE tenant = :tenant AND id = :session
RETURNING tenant, id, "user", title, tags, counter, meta, created, active, idle, epoch, branch, seq, total, version,
          fence, lease_until, holder, ended, reason;

-- name: acquire
UPDATE holdfast.session
SET fence = fence + 1, lease_until = :until, holder = :holder
WHERE tenant = :tenant AND id = :session AND lease_until <= :now
RETURNING fence;

-- name: renew
UPDATE holdfast.session
SET lease_until = :until
WHERE tenant = :tenant AND id = :session AND fence = :fence
RETURNING fence;

-- name: release
UPDATE holdfast.session
SET lease_until = 0, holder = ''
WHERE tenant = :tenant AND id = :session AND fence = :fence;

-- name: page
SELECT tenant, id, "user", title, tags, counter, meta, created, active, idle, epoch, branch, seq, total, version,
       fence, lease_until, holder, ended, reason
FROM holdfast.session
WHERE tenant = :tenant
  AND (:created::bigint IS NULL OR (created, id) < (:created, :id::text))
  AND (:since::bigint IS NULL OR active >= :since)
  AND (:until::bigint IS NULL OR active < :until)
  AND (:live::boolean IS NULL OR (ended IS NULL) = :live)
  AND (:tag::text IS NULL OR tags @> ARRAY[:tag])
ORDER BY created DESC, id DESC
LIMIT :limit::bigint;

-- name: page_of_user
SELECT tenant, id, "user", title, tags, counter, meta, created, active, idle, epoch, branch, seq, total, version,
       fence, lease_until, holder, ended, reason
FROM holdfast.session
WHERE tenant = :tenant
  AND "user" = :user
  AND (:created::bigint IS NULL OR (created, id) < (:created, :id::text))
  AND (:since::bigint IS NULL OR active >= :since)
  AND (:until::bigint IS NULL OR active < :until)
  AND (:live::boolean IS NULL OR (ended IS NULL) = :live)
  AND (:tag::text IS NULL OR tags @> ARRAY[:tag])
ORDER BY created DESC, id DESC
LIMIT :limit::bigint;

-- name: due_sessions
SELECT tenant, id, "user", title, tags, counter, meta, created, active, idle, epoch, branch, seq, total, version,
       fence, lease_until, holder, ended, reason
FROM holdfast.session
WHERE tenant = :tenant AND expires <= :now AND lease_until <= :now
ORDER BY expires, id
LIMIT :limit::bigint;

-- A session without what is asked for is one row of nothing; no session is no row.
-- name: branches
SELECT b.id, b.parent, b.fork_seq, b.created, b.name, b.operation, b.former
FROM holdfast.session s
LEFT JOIN holdfast.branch b ON b.session = s.key
WHERE s.tenant = :tenant AND s.id = :session
ORDER BY b.id;

-- name: read
SELECT s.key, e.branch, e.seq, e.id, e.kind, e.body, e.tokens, e.total, e.checksum
FROM holdfast.session s
LEFT JOIN LATERAL (
    SELECT * FROM holdfast.entry
    WHERE session = s.key AND branch = :branch AND seq BETWEEN :first AND :last
    ORDER BY seq
    LIMIT :limit::bigint) e ON true
WHERE s.tenant = :tenant AND s.id = :session
ORDER BY e.seq;

-- name: read_newest
SELECT s.key, e.branch, e.seq, e.id, e.kind, e.body, e.tokens, e.total, e.checksum
FROM holdfast.session s
LEFT JOIN LATERAL (
    SELECT * FROM holdfast.entry
    WHERE session = s.key AND branch = :branch AND seq BETWEEN :first AND :last
    ORDER BY seq DESC
    LIMIT :limit::bigint) e ON true
WHERE s.tenant = :tenant AND s.id = :session
ORDER BY e.seq;

-- name: find
SELECT s.key, e.branch, e.seq, e.id, e.kind, e.body, e.tokens, e.total, e.checksum
FROM holdfast.session s
LEFT JOIN holdfast.entry e ON e.session = s.key AND e.id = ANY (:ids::text[])
WHERE s.tenant = :tenant AND s.id = :session
ORDER BY e.branch, e.seq;

-- Messages are many, so the newest is near the end of a span; the other kinds have an index of their own.
-- name: newest
SELECT s.key, e.branch, e.seq, e.id, e.kind, e.body, e.tokens, e.total, e.checksum
FROM holdfast.session s
LEFT JOIN LATERAL (
    SELECT of_kind.*
    FROM unnest(:kinds::text[]) AS wanted (kind)
    CROSS JOIN LATERAL (
        SELECT in_span.*
        FROM unnest(:branches::bigint[], :firsts::bigint[], :lasts::bigint[]) WITH ORDINALITY
             AS span (branch, first, last, place)
        CROSS JOIN LATERAL (
            (SELECT * FROM holdfast.entry
             WHERE session = s.key AND branch = span.branch AND seq BETWEEN span.first AND span.last
               AND kind = wanted.kind AND kind <> 'message'
             ORDER BY seq DESC
             LIMIT 1)
            UNION ALL
            (SELECT * FROM holdfast.entry
             WHERE session = s.key AND branch = span.branch AND seq BETWEEN span.first AND span.last
               AND kind = 'message' AND wanted.kind = 'message'
             ORDER BY seq DESC
             LIMIT 1)
        ) in_span
        ORDER BY span.place
        LIMIT 1
    ) of_kind
) e ON true
WHERE s.tenant = :tenant AND s.id = :session;

-- The marks of tenant and user are among the words, so that the index alone finds what is theirs.
-- name: search
SELECT e.key, s.id, e.session, e.branch, e.seq, e.id, e.kind, e.body, e.tokens, e.total, e.checksum
FROM holdfast.entry e
JOIN holdfast.session s ON s.key = e.session
WHERE e.words @@ :words::text::tsquery
  AND e.key < :before::bigint
  AND s.tenant = :tenant
  AND (:user::text IS NULL OR s."user" = :user)
ORDER BY e.key DESC
LIMIT :limit::bigint;

-- name: take
WITH taken AS (
    SELECT id, due FROM holdfast.outbox
    WHERE NOT parked AND due <= :now AND (:tenant::text IS NULL OR tenant = :tenant)
    ORDER BY due, id
    LIMIT :limit::bigint
    FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE holdfast.outbox o SET due = :until, tries = o.tries + 1
    FROM taken
    WHERE o.id = taken.id
    RETURNING taken.due AS was_due, o.*
)
SELECT id, tenant, session, kind, body, due, tries, error, parked FROM claimed ORDER BY was_due, id;

-- name: parcels
SELECT id, tenant, session, kind, body, due, tries, error, parked
FROM holdfast.outbox
WHERE (:tenant::text IS NULL OR tenant = :tenant) AND (:parked::boolean IS NULL OR parked = :parked)
ORDER BY due, id
LIMIT :limit::bigint;

-- name: deliver
DELETE FROM holdfast.outbox WHERE id = :id;

-- name: fail
UPDATE holdfast.outbox
SET error = :error, due = coalesce(:due::bigint, due), parked = :due IS NULL
WHERE id = :id;

-- name: revive
UPDATE holdfast.outbox SET due = :due, tries = 0, parked = false WHERE id = :id AND parked RETURNING id;

-- Read from the tables of the catalogue: what a connection has cached of it may be old.
-- name: schema
SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = :schema::text),
       EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = :schema::text AND c.relname = 'migration'),
       EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = :schema::text);

-- name: lock_schema
SELECT pg_advisory_xact_lock(:lock);

-- name: make_migration
CREATE TABLE holdfast.migration (number int PRIMARY KEY, taken timestamptz NOT NULL DEFAULT now());

-- name: version
SELECT max(number) FROM holdfast.migration;

-- name: add_migration
INSERT INTO holdfast.migration (number) VALUES (:number);
