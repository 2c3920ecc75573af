-- What takes several statements, as functions: one round trip, and a client that stalls holds no lock.
-- A function sees what others have committed before each of its statements, so the first one locks the
-- session, and all that follow see it as it is then. Whoever is refused has written nothing.
--
-- Opening a schema that is not at the newest step replaces all of them, with the same arguments, so that
-- a process that was started before goes on.
--
-- Each sets its own search_path. With the caller's, objects that another role made in "public" could be found
-- in place of the built-in ones, and would run with the caller's rights.

-- The last sequence number of a branch; a branch without entries has it from its fork, none has none.
CREATE OR REPLACE FUNCTION turnstate.tip(of_session bigint, of_branch bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        SELECT coalesce(
            (SELECT pg_catalog.max(e.seq) FROM turnstate.entry e WHERE e.session = of_session AND e.branch = of_branch),
            b.fork_seq)
        FROM turnstate.branch b
        WHERE b.session = of_session AND b.id = of_branch);
END;
$$;

-- The sum of tokens at a place of a path, which may be on an earlier branch; NULL if a branch is missing.
CREATE OR REPLACE FUNCTION turnstate.total_at(of_session bigint, of_branch bigint, at_seq bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_total bigint;
    on_branch bigint := of_branch;
    from_branch bigint;
BEGIN
    IF at_seq <= 0 THEN
        RETURN 0;
    END IF;
    WHILE on_branch IS NOT NULL LOOP
        SELECT e.total INTO found_total
        FROM turnstate.entry e
        WHERE e.session = of_session AND e.branch = on_branch AND e.seq = at_seq;
        IF FOUND THEN
            RETURN found_total;
        END IF;
        SELECT b.parent INTO from_branch FROM turnstate.branch b WHERE b.session = of_session AND b.id = on_branch;
        IF NOT FOUND OR from_branch >= on_branch THEN
            RETURN NULL;
        END IF;
        on_branch := from_branch;
    END LOOP;
    RETURN 0;
END;
$$;

-- Append entries after a position, which is mixed into the checksum that the client computed of each.
CREATE OR REPLACE FUNCTION turnstate.add_entries(
    of_session bigint, on_branch bigint, after_seq bigint, total_before bigint,
    ids text[], kinds text[], bodies bytea[], tokens bigint[], totals bigint[], sums bigint[]
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO turnstate.entry (session, branch, seq, id, kind, body, tokens, total, checksum)
    SELECT of_session, on_branch, after_seq + r.n, r.id, r.kind, r.body, r.tokens, total_before + r.total,
           r.sum # ((of_session * 1000003 + on_branch * 10007 + after_seq + r.n) & 4294967295)
    FROM ROWS FROM (
             pg_catalog.unnest(ids), pg_catalog.unnest(kinds), pg_catalog.unnest(bodies), pg_catalog.unnest(tokens),
             pg_catalog.unnest(totals), pg_catalog.unnest(sums)) WITH ORDINALITY
         AS r (id, kind, body, tokens, total, sum, n)
    ORDER BY r.n;
END;
$$;

-- The caller's time or the server's own, whichever is behind: if one of the clocks jumped ahead, no key is forgotten.
CREATE OR REPLACE FUNCTION turnstate.earlier(callers bigint) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT least(callers, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint);
$$;

-- Forget a few keys that are too old: each append with a key does its share of the sweeping.
CREATE OR REPLACE FUNCTION turnstate.forget_keys(until bigint, appends bigint)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM turnstate.key k
    WHERE (k.session, k.name) IN (
        SELECT o.session, o.name FROM turnstate.key o WHERE o.created <= until
        ORDER BY o.created LIMIT 10 * appends FOR UPDATE SKIP LOCKED);
END;
$$;

CREATE OR REPLACE FUNCTION turnstate.create_session(
    new_tenant text, new_id text, new_user text, new_title text, new_tags text[], new_counter text, new_meta bytea,
    new_marks text, new_created bigint, new_active bigint, new_idle bigint, new_epoch bigint, new_version bigint,
    new_fence bigint, new_lease_until bigint, new_holder text, new_ended bigint, new_reason text,
    ids text[], kinds text[], bodies bytea[], tokens bigint[], totals bigint[], sums bigint[]
) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made bigint;
BEGIN
    INSERT INTO turnstate.session (
        tenant, id, "user", title, tags, counter, meta, marks, created, active, idle, epoch, branch, seq, total,
        version, fence, lease_until, holder, ended, reason)
    VALUES (
        new_tenant, new_id, new_user, new_title, new_tags, new_counter, new_meta, new_marks, new_created, new_active,
        new_idle, new_epoch, 1, pg_catalog.cardinality(ids), coalesce(totals[pg_catalog.cardinality(totals)], 0),
        new_version, new_fence, new_lease_until, new_holder, new_ended, new_reason)
    ON CONFLICT DO NOTHING
    RETURNING key INTO made;
    IF made IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO turnstate.branch (session, id, parent, fork_seq, created, name, operation, former)
    VALUES (made, 1, NULL, 0, new_created, '', 'create', NULL);
    PERFORM turnstate.add_entries(made, 1, 0, 0, ids, kinds, bodies, tokens, totals, sums);
    RETURN true;
END;
$$;

-- The outcome is one of
--   taken, repeated                what the change came to, now or when its key was used first
--   refused                        the session as it is, from which the client says why
--   no session, no branch, no entry
CREATE OR REPLACE FUNCTION turnstate.append(
    of_tenant text, of_id text, now bigint, asked_created bigint, asked_epoch bigint, key_name text, key_digest bytea,
    key_life bigint,
    asked_fence bigint, asked_version bigint, asked_branch bigint, asked_seq bigint,
    forks boolean, fork_parent bigint, fork_at bigint, fork_name text, fork_operation text, selected bigint,
    ids text[], kinds text[], bodies bytea[], tokens bigint[], totals bigint[], sums bigint[],
    parcel_ids text[], parcel_tenants text[], parcel_sessions text[], parcel_kinds text[], parcel_bodies bytea[],
    parcel_dues bigint[],
    moves_path boolean, is_activity boolean, next_epoch boolean, end_reason text,
    OUT outcome text, OUT epoch bigint, OUT version bigint, OUT branch bigint, OUT first bigint, OUT last bigint,
    OUT fence bigint, OUT lease_until bigint, OUT holder text, OUT ended bigint, OUT reason text,
    OUT known_digest bytea, OUT known_created bigint, OUT created bigint, OUT total bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own record;
    known record;
    tip bigint;
    new_total bigint;
BEGIN
    SELECT s.key, s.created, s.epoch, s.branch, s.seq, s.total, s.version, s.fence, s.lease_until, s.holder, s.ended,
           s.reason
    INTO own
    FROM turnstate.session s
    WHERE s.tenant = of_tenant AND s.id = of_id
    FOR NO KEY UPDATE;  -- who writes words keeps the session from being deleted, and does not wait for appends
    IF NOT FOUND THEN
        outcome := 'no session';
        RETURN;
    END IF;
    created := own.created;
    total := own.total;
    epoch := own.epoch;
    version := own.version;
    branch := own.branch;
    last := own.seq;
    fence := own.fence;
    lease_until := own.lease_until;
    holder := own.holder;
    ended := own.ended;
    reason := own.reason;
    outcome := 'refused';

    IF asked_created <> own.created OR asked_epoch <> own.epoch OR (own.ended IS NOT NULL AND NOT next_epoch) THEN
        RETURN;
    END IF;
    IF key_name IS NOT NULL THEN
        SELECT k.digest, k.epoch, k.version, k.branch, k.first, k.last, k.created
        INTO known
        FROM turnstate.key k
        WHERE k.session = own.key AND k.name = key_name;
        IF FOUND AND turnstate.earlier(now) - known.created < key_life THEN
            known_digest := known.digest;
            known_created := known.created;
            IF known.digest = key_digest THEN
                outcome := 'repeated';
                epoch := known.epoch;
                version := known.version;
                branch := known.branch;
                first := known.first;
                last := known.last;
            END IF;
            RETURN;
        END IF;
    END IF;
    IF (NOT next_epoch AND ((asked_fence IS NULL AND own.lease_until > now) OR asked_fence <> own.fence))
        OR asked_version <> own.version OR (asked_branch, asked_seq) <> (own.branch, own.seq)
    THEN
        RETURN;
    END IF;

    new_total := own.total;
    IF forks AND fork_parent IS NOT NULL THEN
        tip := turnstate.tip(own.key, fork_parent);
        IF tip IS NULL OR fork_at NOT BETWEEN 0 AND tip THEN
            outcome := CASE WHEN tip IS NULL THEN 'no branch' ELSE 'no entry' END;
            RETURN;
        END IF;
        last := fork_at;
        new_total := turnstate.total_at(own.key, fork_parent, fork_at);
    ELSIF forks THEN
        last := 0;
        new_total := 0;
    ELSIF selected <> own.branch THEN
        last := turnstate.tip(own.key, selected);
        IF last IS NULL THEN
            outcome := 'no branch';
            RETURN;
        END IF;
        branch := selected;
        new_total := turnstate.total_at(own.key, branch, last);
    END IF;
    IF new_total IS NULL THEN
        RAISE data_corrupted USING MESSAGE = 'a branch of the session leads nowhere';
    END IF;
    IF forks THEN
        SELECT coalesce(pg_catalog.max(b.id), 0) + 1 INTO branch FROM turnstate.branch b WHERE b.session = own.key;
        INSERT INTO turnstate.branch (session, id, parent, fork_seq, created, name, operation, former)
        VALUES (own.key, branch, fork_parent, last, now, fork_name, fork_operation, own.branch);
    END IF;

    outcome := 'taken';
    first := last + 1;
    IF pg_catalog.cardinality(ids) > 0 THEN
        PERFORM turnstate.add_entries(
            own.key, branch, last, new_total, ids, kinds, bodies, tokens, totals, sums);
        last := last + pg_catalog.cardinality(ids);
        new_total := new_total + totals[pg_catalog.cardinality(totals)];
    END IF;
    epoch := own.epoch + next_epoch::int;
    version := own.version + moves_path::int;
    UPDATE turnstate.session s
    SET epoch = append.epoch,
        branch = append.branch,
        seq = append.last,
        total = new_total,
        version = append.version,
        active = CASE WHEN is_activity THEN greatest(s.active, now) ELSE s.active END,
        ended = CASE WHEN end_reason IS NOT NULL THEN now WHEN next_epoch THEN NULL ELSE s.ended END,
        reason = CASE WHEN end_reason <> '' THEN end_reason WHEN next_epoch THEN '' ELSE s.reason END,
        -- The next epoch wins over a lease on this one.
        fence = s.fence + next_epoch::int,
        lease_until = CASE WHEN next_epoch THEN 0 ELSE s.lease_until END,
        holder = CASE WHEN next_epoch THEN '' ELSE s.holder END
    WHERE s.key = own.key;
    IF pg_catalog.cardinality(parcel_ids) > 0 THEN
        -- In the order of their ids, so that two who send the same parcels do not wait for each other.
        INSERT INTO turnstate.outbox (id, tenant, session, kind, body, due, tries, error, parked)
        SELECT DISTINCT ON (p.id) p.id, p.tenant, p.session, p.kind, p.body, p.due, 0, '', false
        FROM ROWS FROM (
                 pg_catalog.unnest(parcel_ids), pg_catalog.unnest(parcel_tenants), pg_catalog.unnest(parcel_sessions),
                 pg_catalog.unnest(parcel_kinds), pg_catalog.unnest(parcel_bodies), pg_catalog.unnest(parcel_dues))
             WITH ORDINALITY AS p (id, tenant, session, kind, body, due, n)
        ORDER BY p.id, p.n
        ON CONFLICT DO NOTHING;
    END IF;
    IF key_name IS NOT NULL THEN
        INSERT INTO turnstate.key AS k (session, name, digest, epoch, version, branch, first, last, created)
        VALUES (own.key, key_name, key_digest, append.epoch, append.version, append.branch, append.first,
                append.last, now)
        ON CONFLICT (session, name) DO UPDATE
        SET digest = excluded.digest, epoch = excluded.epoch, version = excluded.version, branch = excluded.branch,
            first = excluded.first, last = excluded.last, created = excluded.created;
        PERFORM turnstate.forget_keys(turnstate.earlier(now) - key_life, 1);
    END IF;
END;
$$;

-- Appends of one moment, each to one session, in one transaction that waits for no lock: who waits may hold what others
-- wait for. Only what passes every check is written and answered; whatever is not answered has changed nothing, and is
-- sent again alone, which waits and says why it is refused. A session that is named again has its turn in a later
-- round. Records name the change that they belong to, from 1 on, and their place in it. The plan is the same for any
-- number of changes; by itself the server would plan calls with few of them each time, which takes longer than they do.
CREATE OR REPLACE FUNCTION turnstate.append_all(
    tenants text[], names text[], rounds int[], nows bigint[], creations bigint[], epochs bigint[], key_names text[],
    key_digests bytea[], key_life bigint, fences bigint[], versions bigint[], branches bigint[], seqs bigint[],
    said boolean[], counts int[], added bigint[],
    owners int[], places int[], ids text[], kinds text[], bodies bytea[], tokens bigint[], totals bigint[],
    checksums bigint[]
) RETURNS TABLE (change bigint, epoch bigint, version bigint, branch bigint, last bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    keys bigint[];
    last_round int;
    first_now bigint;
    keyed bigint;
BEGIN
    keys := ARRAY(
        SELECT (SELECT s.key FROM turnstate.session s WHERE s.tenant = c.tenant AND s.id = c.name
                FOR NO KEY UPDATE SKIP LOCKED)
        FROM ROWS FROM (pg_catalog.unnest(tenants), pg_catalog.unnest(names)) WITH ORDINALITY AS c (tenant, name, n)
        ORDER BY c.n);
    SELECT pg_catalog.max(r) INTO last_round FROM pg_catalog.unnest(rounds) r;
    FOR this_round IN 1..last_round LOOP
        RETURN QUERY
        WITH written AS (
            UPDATE turnstate.session s
            SET seq = s.seq + c.count,
                total = s.total + c.added,
                version = s.version + c.said::int,
                active = CASE WHEN c.said THEN greatest(s.active, c.now) ELSE s.active END
            FROM ROWS FROM (
                     pg_catalog.unnest(keys), pg_catalog.unnest(rounds), pg_catalog.unnest(nows),
                     pg_catalog.unnest(creations), pg_catalog.unnest(epochs), pg_catalog.unnest(key_names),
                     pg_catalog.unnest(key_digests), pg_catalog.unnest(fences), pg_catalog.unnest(versions),
                     pg_catalog.unnest(branches), pg_catalog.unnest(seqs), pg_catalog.unnest(said),
                     pg_catalog.unnest(counts), pg_catalog.unnest(added)) WITH ORDINALITY
                 AS c (key, round, now, created, epoch, key_name, key_digest, fence, version, branch, seq, said, count,
                       added, n)
            WHERE s.key = c.key AND c.round = this_round
              AND coalesce(c.created = s.created, true) AND coalesce(c.epoch = s.epoch, true) AND s.ended IS NULL
              AND (c.key_name IS NULL OR NOT EXISTS (
                  SELECT 1 FROM turnstate.key k
                  WHERE k.session = c.key AND k.name = c.key_name AND turnstate.earlier(c.now) - k.created < key_life))
              AND coalesce(c.fence = s.fence, s.lease_until <= c.now)
              AND coalesce(c.version = s.version, true)
              AND coalesce((c.branch, c.seq) = (s.branch, s.seq), true)
            RETURNING c.n, c.key_name, c.key_digest, c.now, c.count, c.added,
                      s.key, s.epoch, s.version, s.branch, s.seq, s.total
        ), logged AS (
            INSERT INTO turnstate.entry (session, branch, seq, id, kind, body, tokens, total, checksum)
            SELECT w.key, w.branch, w.seq - w.count + r.place, r.id, r.kind, r.body, r.tokens,
                   w.total - w.added + r.total,
                   r.checksum # ((w.key * 1000003 + w.branch * 10007 + w.seq - w.count + r.place) & 4294967295)
            FROM ROWS FROM (
                     pg_catalog.unnest(owners), pg_catalog.unnest(places), pg_catalog.unnest(ids),
                     pg_catalog.unnest(kinds), pg_catalog.unnest(bodies), pg_catalog.unnest(tokens),
                     pg_catalog.unnest(totals), pg_catalog.unnest(checksums)) WITH ORDINALITY
                 AS r (owner, place, id, kind, body, tokens, total, checksum, n)
            JOIN written w ON w.n = r.owner
            ORDER BY r.n
        ), remembered AS (
            INSERT INTO turnstate.key AS k (session, name, digest, epoch, version, branch, first, last, created)
            SELECT w.key, w.key_name, w.key_digest, w.epoch, w.version, w.branch, w.seq - w.count + 1, w.seq, w.now
            FROM written w
            WHERE w.key_name IS NOT NULL
            ON CONFLICT (session, name) DO UPDATE
            SET digest = excluded.digest, epoch = excluded.epoch, version = excluded.version,
                branch = excluded.branch, first = excluded.first, last = excluded.last, created = excluded.created
        )
        SELECT w.n, w.epoch, w.version, w.branch, w.seq FROM written w;
    END LOOP;
    SELECT pg_catalog.min(c.now), pg_catalog.count(*)
    INTO first_now, keyed
    FROM ROWS FROM (pg_catalog.unnest(nows), pg_catalog.unnest(key_names)) AS c (now, key_name)
    WHERE c.key_name IS NOT NULL;
    IF keyed > 0 THEN
        PERFORM turnstate.forget_keys(turnstate.earlier(first_now) - key_life, keyed);
    END IF;
END;
$$;

-- Delete a session with everything that hangs on it, and count that; nothing where there is none.
CREATE OR REPLACE FUNCTION turnstate.remove(
    of_tenant text, of_id text, OUT entries bigint, OUT branches bigint, OUT keys bigint, OUT parcels bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own bigint;
BEGIN
    SELECT s.key INTO own FROM turnstate.session s WHERE s.tenant = of_tenant AND s.id = of_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    DELETE FROM turnstate.word w
    WHERE w.entry = ANY (ARRAY(SELECT e.key FROM turnstate.entry e WHERE e.session = own));
    DELETE FROM turnstate.entry e WHERE e.session = own;
    GET DIAGNOSTICS entries = ROW_COUNT;
    DELETE FROM turnstate.branch b WHERE b.session = own;
    GET DIAGNOSTICS branches = ROW_COUNT;
    DELETE FROM turnstate.key k WHERE k.session = own;
    GET DIAGNOSTICS keys = ROW_COUNT;
    DELETE FROM turnstate.outbox o WHERE o.tenant = of_tenant AND o.session = of_id;
    GET DIAGNOSTICS parcels = ROW_COUNT;
    DELETE FROM turnstate.damaged d WHERE d.session = own;
    DELETE FROM turnstate.session s WHERE s.key = own;
END;
$$;

-- Write the words of messages that are still there and not indexed yet. Their sessions cannot be deleted meanwhile.
CREATE OR REPLACE FUNCTION turnstate.add_words(of_entries bigint[], texts text[])
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- A crash may undo this: what was not indexed is known, and is indexed again.
    PERFORM pg_catalog.set_config('synchronous_commit', 'off', true);
    PERFORM FROM turnstate.session s
    WHERE s.key = ANY (ARRAY(SELECT e.session FROM turnstate.entry e WHERE e.key = ANY (of_entries)))
    ORDER BY s.key
    FOR KEY SHARE;
    INSERT INTO turnstate.word (entry, words)
    SELECT e.key, (r.words || ' ' || s.marks)::tsvector
    FROM ROWS FROM (pg_catalog.unnest(of_entries), pg_catalog.unnest(texts)) AS r (entry, words)
    JOIN turnstate.entry e ON e.key = r.entry
    JOIN turnstate.session s ON s.key = e.session
    WHERE e.kind = 'message'
    ORDER BY e.key
    ON CONFLICT DO NOTHING;
END;
$$;

-- Record up to where everything is indexed, unless something is missing. All transactions that may have taken a
-- key below it must have ended.
CREATE OR REPLACE FUNCTION turnstate.all_indexed(new_through bigint)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_catalog.set_config('synchronous_commit', 'off', true);
    UPDATE turnstate.indexed i
    SET through = new_through
    WHERE i.through < new_through
      AND NOT EXISTS (
          SELECT 1 FROM turnstate.entry e
          WHERE e.key > i.through AND e.key <= new_through AND e.kind = 'message'
            AND (SELECT w.entry FROM turnstate.word w WHERE w.entry = e.key) IS NULL);
END;
$$;
