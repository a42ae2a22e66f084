-- Every statement the PostgreSQL store makes, by name. Values are bound, never written in.

-- name: head
SELECT id, version, stop, length, n_system, n_user, n_assistant, framed, size, parent, base, origin,
       title, tags, created, updated, erased
FROM palaver.conversations WHERE id = %s;

-- name: listing
SELECT id, version, stop, length, n_system, n_user, n_assistant, framed, size, parent, base, origin,
       title, tags, created, updated, erased
FROM palaver.conversations
WHERE (updated, id) < (%(updated)s, %(id)s)
  AND (%(tag)s::text IS NULL OR %(tag)s = ANY (tags))
ORDER BY updated DESC, id DESC
LIMIT %(limit)s;

-- name: forks
SELECT id, version, stop, length, n_system, n_user, n_assistant, framed, size, parent, base, origin,
       title, tags, created, updated, erased
FROM palaver.conversations WHERE parent = %s ORDER BY created, id;

-- name: named
SELECT id FROM palaver.conversations WHERE id >= %s AND id < %s ORDER BY id LIMIT %s;

-- name: create
WITH parent AS (
    SELECT 1 FROM palaver.conversations WHERE id = %(parent)s::text FOR KEY SHARE
), made AS (
    INSERT INTO palaver.conversations (
        id, version, stop, length, n_system, n_user, n_assistant, framed, size, parent, base, origin,
        title, tags, created, updated, hash)
    SELECT %(id)s::text, 0, %(stop)s, %(length)s, %(system)s, %(user)s, %(assistant)s, 0, %(size)s,
           %(parent)s, %(base)s, %(origin)s, %(title)s::text, %(tags)s::text[], %(created)s,
           %(updated)s, %(label_hash)s
    WHERE %(parent)s::text IS NULL OR EXISTS (SELECT 1 FROM parent)
    ON CONFLICT (id) DO NOTHING
    RETURNING id
), told AS (
    INSERT INTO palaver.journal (number, conversation, version, kind, at, first, count, stop, data,
                                 key, attempt, frame, hash)
    SELECT (pg_current_xact_id()::text::bigint + (SELECT shift FROM palaver.store)) * 4194304
               + %(index)s,
           id, 0, %(kind)s::text, %(at)s, %(first)s, %(count)s, %(stop)s, %(data)s::text,
           %(key)s::text, %(attempt)s, %(frame)s::bytea, %(journal_hash)s
    FROM made
), added AS (
    INSERT INTO palaver.messages (conversation, seq, role, ordinal, n_system, n_user, n_assistant,
                                  time, replaces, hash, id, body)
    SELECT made.id, seq, role, ordinal, n_system, n_user, n_assistant, time,
           nullif(replaces, -1), hash, r.id, body
    FROM made, unnest(%(seqs)b::bigint[], %(roles)b::bigint[], %(ordinals)b::bigint[],
                      %(systems)b::bigint[], %(users)b::bigint[], %(assistants)b::bigint[],
                      %(times)b::bigint[], %(replaces)b::bigint[], %(hashes)b::bigint[],
                      %(ids)b::text[], %(bodies)b::text[])
               AS r (seq, role, ordinal, n_system, n_user, n_assistant, time, replaces, hash, id,
                     body)
), kept AS (
    INSERT INTO palaver.records (conversation, kind, name, value, hash)
    SELECT made.id, r.kind, r.name, r.value, r.hash
    FROM made, unnest(%(stored_kinds)b::text[], %(stored_names)b::text[], %(values)b::bytea[],
                      %(stored_hashes)b::bigint[])
               AS r (kind, name, value, hash)
)
SELECT id FROM made;

-- name: commit
WITH moved AS (
    UPDATE palaver.conversations
    SET version = version + 1, stop = %(stop)s, length = length + %(count)s,
        n_system = n_system + %(system)s, n_user = n_user + %(user)s,
        n_assistant = n_assistant + %(assistant)s, framed = coalesce(%(framed)s::bigint, framed),
        size = %(size)s, updated = greatest(updated, %(at)s)
    WHERE id = %(id)s AND version = %(after)s AND length = %(first)s
      AND (%(token)s::bigint IS NULL OR lease_token = %(token)s)
      AND (%(key)s::text IS NULL OR NOT EXISTS (
              SELECT 1 FROM palaver.journal WHERE conversation = %(id)s AND key = %(key)s))
    RETURNING id, version
), told AS (
    INSERT INTO palaver.journal (number, conversation, version, kind, at, first, count, stop, data,
                                 key, attempt, frame, hash)
    SELECT (pg_current_xact_id()::text::bigint + (SELECT shift FROM palaver.store)) * 4194304
               + %(index)s,
           id, version, %(kind)s::text, %(at)s, %(first)s, %(count)s, %(stop)s, %(data)s::text,
           %(key)s, %(attempt)s, %(frame)s::bytea, %(journal_hash)s
    FROM moved
), added AS (
    INSERT INTO palaver.messages (conversation, seq, role, ordinal, n_system, n_user, n_assistant,
                                  time, replaces, hash, id, body)
    SELECT moved.id, seq, role, ordinal, n_system, n_user, n_assistant, time,
           nullif(replaces, -1), hash, r.id, body
    FROM moved, unnest(%(seqs)b::bigint[], %(roles)b::bigint[], %(ordinals)b::bigint[],
                       %(systems)b::bigint[], %(users)b::bigint[], %(assistants)b::bigint[],
                       %(times)b::bigint[], %(replaces)b::bigint[], %(hashes)b::bigint[],
                       %(ids)b::text[], %(bodies)b::text[])
                AS r (seq, role, ordinal, n_system, n_user, n_assistant, time, replaces, hash, id,
                      body)
), kept AS (
    INSERT INTO palaver.records (conversation, kind, name, value, hash)
    SELECT moved.id, r.kind, r.name, r.value, r.hash
    FROM moved, unnest(%(stored_kinds)b::text[], %(stored_names)b::text[], %(values)b::bytea[],
                       %(stored_hashes)b::bigint[])
                AS r (kind, name, value, hash)
    ON CONFLICT (conversation, kind, name)
    DO UPDATE SET value = excluded.value, hash = excluded.hash
), dropped AS (
    DELETE FROM palaver.records AS k
    USING moved, unnest(%(dropped_kinds)b::text[], %(dropped_names)b::text[]) AS r (kind, name)
    WHERE k.conversation = moved.id AND k.kind = r.kind AND k.name = r.name
)
SELECT version FROM moved;

-- name: append
WITH moved AS (
    UPDATE palaver.conversations
    SET version = version + 1, stop = %(stop)s, length = length + 1,
        n_system = n_system + (%(role)s = 0)::integer, n_user = n_user + (%(role)s = 1)::integer,
        n_assistant = n_assistant + (%(role)s = 2)::integer, size = %(size)s,
        updated = greatest(updated, %(at)s)
    WHERE id = %(id)s AND version = %(after)s AND length = %(first)s
      AND (%(token)s::bigint IS NULL OR lease_token = %(token)s)
      AND (%(key)s::text IS NULL OR NOT EXISTS (
              SELECT 1 FROM palaver.journal WHERE conversation = %(id)s AND key = %(key)s))
    RETURNING id, version
), told AS (
    INSERT INTO palaver.journal (number, conversation, version, kind, at, first, count, stop, key,
                                 attempt, hash)
    SELECT (pg_current_xact_id()::text::bigint + (SELECT shift FROM palaver.store)) * 4194304
               + %(index)s,
           id, version, 'append', %(at)s, %(first)s, 1, %(stop)s, %(key)s, %(attempt)s,
           %(journal_hash)s
    FROM moved
), added AS (
    INSERT INTO palaver.messages (conversation, seq, role, ordinal, n_system, n_user, n_assistant,
                                  time, hash, id, body)
    SELECT id, %(first)s, %(role)s, %(ordinal)s, %(system)s, %(user)s, %(assistant)s, %(time)s,
           %(hash)s, %(message)s::text, %(body)s::text
    FROM moved
)
SELECT version FROM moved;

-- name: outcome
SELECT c.lease_token,
       (SELECT version FROM palaver.journal WHERE conversation = c.id AND key = %(key)s::text),
       (SELECT attempt FROM palaver.journal WHERE conversation = c.id AND version = %(version)s)
FROM palaver.conversations AS c WHERE c.id = %(id)s;

-- name: bodies
SELECT body FROM palaver.messages WHERE conversation = %s AND seq >= %s AND seq < %s ORDER BY seq;

-- The same of several conversations.
-- name: bodies_of
SELECT m.body
FROM unnest(%(names)s::text[], %(starts)s::bigint[], %(stops)s::bigint[])
     AS r (conversation, start, stop)
JOIN palaver.messages AS m
  ON m.conversation = r.conversation AND m.seq >= r.start AND m.seq < r.stop
ORDER BY m.seq;

-- name: before
SELECT n_system, n_user, n_assistant FROM palaver.messages WHERE conversation = %s AND seq = %s;

-- name: befores_of
SELECT m.seq, m.n_system, m.n_user, m.n_assistant
FROM unnest(%(names)s::text[], %(starts)s::bigint[], %(stops)s::bigint[])
     AS r (conversation, start, stop)
JOIN palaver.messages AS m
  ON m.conversation = r.conversation AND m.seq >= r.start AND m.seq < r.stop
ORDER BY m.seq;

-- name: select
SELECT seq FROM palaver.messages
WHERE conversation = %s AND role = %s AND ordinal >= %s AND ordinal < %s AND seq < %s
ORDER BY ordinal;

-- name: select_of
SELECT m.seq
FROM unnest(%(names)s::text[], %(starts)s::bigint[], %(stops)s::bigint[])
     AS r (conversation, start, stop)
JOIN palaver.messages AS m
  ON m.conversation = r.conversation AND m.role = %(role)s AND m.ordinal >= %(first)s
 AND m.ordinal < %(last)s AND m.seq < r.stop
ORDER BY m.seq;

-- name: positions_of
SELECT m.seq
FROM unnest(%(names)s::text[], %(starts)s::bigint[], %(stops)s::bigint[])
     AS r (conversation, start, stop)
JOIN palaver.messages AS m
  ON m.conversation = r.conversation AND m.id = %(id)s AND m.seq < r.stop
ORDER BY m.seq;

-- name: between_times
SELECT seq FROM palaver.messages
WHERE conversation = %s AND seq < %s AND time >= %s AND time < %s ORDER BY seq;

-- name: between_times_of
SELECT m.seq
FROM unnest(%(names)s::text[], %(starts)s::bigint[], %(stops)s::bigint[])
     AS r (conversation, start, stop)
JOIN palaver.messages AS m
  ON m.conversation = r.conversation AND m.time >= %(since)s AND m.time < %(until)s
 AND m.seq < r.stop
ORDER BY m.seq;

-- name: replaced
SELECT replaces FROM palaver.messages WHERE conversation = %s AND seq = %s;

-- name: stop
SELECT stop FROM palaver.journal WHERE conversation = %s AND version = %s;

-- name: frames
SELECT version, frame FROM palaver.journal
WHERE conversation = %s AND frame IS NOT NULL AND version > %s AND version <= %s ORDER BY version;

-- name: frames_of
SELECT j.conversation, j.version, j.frame
FROM unnest(%(names)s::text[], %(starts)s::bigint[], %(stops)s::bigint[])
     AS r (conversation, after, upto)
JOIN palaver.journal AS j
  ON j.conversation = r.conversation AND j.version > r.after AND j.version <= r.upto
WHERE j.frame IS NOT NULL;

-- A conversation and its ancestors, one index lookup for each, whatever the planner knows of the
-- table. UNION ends even where damaged rows lead in a circle.
-- name: line
WITH RECURSIVE up (id, parent, base, origin) AS (
    SELECT id, parent, base, origin FROM palaver.conversations WHERE id = %s
    UNION
    SELECT c.* FROM up CROSS JOIN LATERAL (
        SELECT id, parent, base, origin FROM palaver.conversations WHERE id = up.parent LIMIT 1
    ) AS c
)
SELECT id, parent, base, origin FROM up;

-- name: keys
SELECT version, key FROM palaver.journal
WHERE conversation = %s AND key IS NOT NULL AND version > %s AND version <= %s ORDER BY version;

-- name: journal
SELECT conversation, version, kind, at, first, count, data, number
FROM palaver.journal WHERE conversation = %s AND version > %s ORDER BY version LIMIT %s;

-- name: journal_of_all
SELECT conversation, version, kind, at, first, count, data, number
FROM palaver.journal
WHERE number > %(after)s
  AND number < (SELECT 4194304 * (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + shift)
                FROM palaver.store)
ORDER BY number LIMIT %(limit)s;

-- name: in_sight
SELECT EXISTS (SELECT 1 FROM palaver.journal WHERE number > %s);

-- name: newest
SELECT coalesce(max(number), 0) FROM palaver.journal
WHERE number < (SELECT 4194304 * (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + shift)
                FROM palaver.store);

-- What is said of a conversation, in the order of its hash.
-- name: labels
SELECT id, parent, base, origin, created, erased, title, tags FROM palaver.conversations
WHERE id = ANY (%s) ORDER BY id FOR UPDATE;

-- name: label
UPDATE palaver.conversations SET erased = %s, title = %s, tags = %s, hash = %s WHERE id = %s;

-- Leases go by the server's clock, in milliseconds since 1970; it is read when the row is at hand.
-- name: lease
UPDATE palaver.conversations
SET lease_token = lease_token
        + (lease_holder IS DISTINCT FROM %(holder)s
           OR lease_expires <= extract(epoch FROM clock_timestamp()) * 1000)::integer,
    lease_holder = %(holder)s,
    lease_expires = floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + %(lasts)s
WHERE id = %(id)s
  AND (lease_holder IS NULL OR lease_holder = %(holder)s
       OR lease_expires <= extract(epoch FROM clock_timestamp()) * 1000)
RETURNING lease_token, lease_expires;

-- name: leased
SELECT lease_holder, lease_expires - floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
FROM palaver.conversations WHERE id = %s;

-- name: release
UPDATE palaver.conversations SET lease_expires = 0 WHERE id = %s AND lease_token = %s;

-- name: held
SELECT lease_token FROM palaver.conversations WHERE id = %s FOR SHARE;

-- name: put_record
INSERT INTO palaver.records (conversation, kind, name, value, hash)
SELECT id, %(kind)s, %(name)s, %(value)s, %(hash)s
FROM (SELECT id FROM palaver.conversations WHERE id = %(id)s FOR KEY SHARE) AS c
ON CONFLICT (conversation, kind, name) DO UPDATE SET value = excluded.value, hash = excluded.hash;

-- name: drop_record
DELETE FROM palaver.records WHERE conversation = %(id)s AND kind = %(kind)s AND name = %(name)s;

-- name: all_records
SELECT conversation, kind, name, value FROM palaver.records
WHERE conversation = ANY (%s) ORDER BY conversation, kind, name FOR UPDATE;

-- name: kinds
SELECT DISTINCT kind FROM palaver.records WHERE conversation = %s ORDER BY kind;

-- name: records
SELECT name, value FROM palaver.records WHERE conversation = %s AND kind = %s AND name >= %s
ORDER BY name;

-- name: records_until
SELECT name, value FROM palaver.records
WHERE conversation = %s AND kind = %s AND name >= %s AND name < %s ORDER BY name;

-- name: last_records
SELECT name, value FROM palaver.records WHERE conversation = %s AND kind = %s AND name >= %s
ORDER BY name DESC LIMIT %s;

-- name: last_records_until
SELECT name, value FROM palaver.records
WHERE conversation = %s AND kind = %s AND name >= %s AND name < %s ORDER BY name DESC LIMIT %s;

-- name: lock
SELECT version FROM palaver.conversations WHERE id = %s FOR UPDATE;

-- name: a_fork_of
SELECT id FROM palaver.conversations WHERE parent = %s LIMIT 1;

-- name: delete
WITH said AS (DELETE FROM palaver.messages WHERE conversation = %(id)s),
     told AS (DELETE FROM palaver.journal WHERE conversation = %(id)s),
     kept AS (DELETE FROM palaver.records WHERE conversation = %(id)s),
     found AS (DELETE FROM palaver.words WHERE conversation = %(id)s)
DELETE FROM palaver.conversations WHERE id = %(id)s;

-- name: family
WITH RECURSIVE up (id, parent) AS (
    SELECT id, parent FROM palaver.conversations WHERE id = %s
    UNION
    SELECT c.* FROM up CROSS JOIN LATERAL (
        SELECT id, parent FROM palaver.conversations WHERE id = up.parent LIMIT 1
    ) AS c
), down (id) AS (
    SELECT id FROM up WHERE parent IS NULL
    UNION
    SELECT c.id FROM down CROSS JOIN LATERAL (
        SELECT id FROM palaver.conversations WHERE parent = down.id OFFSET 0
    ) AS c
)
SELECT id FROM down;

-- name: rows_of
SELECT body, conversation, seq, replaces
FROM palaver.messages WHERE conversation = ANY (%s) AND id = ANY (%s);

-- name: rows_at
SELECT body, conversation, seq, replaces
FROM palaver.messages WHERE conversation = %s AND seq = ANY (%s);

-- name: bury
UPDATE palaver.messages SET body = %s, hash = %s WHERE conversation = %s AND seq = %s;

-- name: lock_index
SELECT indexed FROM palaver.indexing FOR UPDATE;

-- name: unindexed
SELECT conversation, first, count, number,
       number < (SELECT 4194304 * (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + shift)
                FROM palaver.store)
FROM palaver.journal WHERE number > %s ORDER BY number LIMIT %s;

-- The next messages for the search index, without their bodies: those may be large.
-- name: to_index
SELECT j.change, m.conversation, m.seq, octet_length(m.body)
FROM unnest(%s::text[], %s::bigint[], %s::bigint[])
     WITH ORDINALITY AS j (conversation, first, stop, change)
JOIN palaver.messages AS m
  ON m.conversation = j.conversation AND m.seq >= j.first AND m.seq < j.stop
WHERE NOT EXISTS (SELECT 1 FROM palaver.words AS w
                  WHERE w.conversation = m.conversation AND w.seq = m.seq)
ORDER BY j.change, m.seq
LIMIT %s;

-- In the order in which they are asked for.
-- name: bodies_at
SELECT m.conversation, m.seq, m.body
FROM unnest(%s::text[], %s::bigint[]) WITH ORDINALITY AS p (conversation, seq, place)
JOIN palaver.messages AS m ON m.conversation = p.conversation AND m.seq = p.seq
ORDER BY p.place;

-- name: index_words
INSERT INTO palaver.words (words, reason, conversation, seq, time)
SELECT array_to_tsvector(%s::text[]), %s, conversation, seq, time
FROM palaver.messages WHERE conversation = %s AND seq = %s
ON CONFLICT (conversation, seq) DO NOTHING;

-- name: note_indexed
UPDATE palaver.indexing SET indexed = %s;

-- name: reindex_words
UPDATE palaver.words SET words = array_to_tsvector(%s::text[]), reason = %s
WHERE conversation = %s AND seq = %s;

-- name: unindexed_messages
SELECT seq, reason FROM palaver.words
WHERE conversation = %s AND reason IS NOT NULL ORDER BY seq;

-- Where the hits are, and how large: bodies are read one by one behind it.
-- name: search
SELECT w.conversation, w.seq, octet_length(m.body)
FROM (SELECT conversation, seq, time FROM palaver.words WHERE words @@ %(query)s::tsquery
      ORDER BY time DESC, conversation DESC, seq DESC
      LIMIT %(limit)s OFFSET %(offset)s) AS w
LEFT JOIN palaver.messages AS m ON m.conversation = w.conversation AND m.seq = w.seq
ORDER BY w.time DESC, w.conversation DESC, w.seq DESC;

-- name: search_in
SELECT w.conversation, w.seq, octet_length(m.body)
FROM (SELECT w.conversation, w.seq
      FROM unnest(%(names)s::text[], %(starts)s::bigint[], %(stops)s::bigint[])
           AS s (conversation, start, stop)
      JOIN palaver.words AS w
        ON w.conversation = s.conversation AND w.seq >= s.start AND w.seq < s.stop
      WHERE w.words @@ %(query)s::tsquery
      ORDER BY w.seq DESC
      LIMIT %(limit)s OFFSET %(offset)s) AS w
LEFT JOIN palaver.messages AS m ON m.conversation = w.conversation AND m.seq = w.seq
ORDER BY w.seq DESC;

-- name: hashes
SELECT hash, body, role, ordinal, n_system, n_user, n_assistant, time, id, conversation, seq,
       replaces
FROM palaver.messages WHERE conversation = %s AND seq >= %s AND seq < %s ORDER BY seq;

-- name: label_hash
SELECT 'the head', hash, NULL, id, parent, base, origin, created, erased, title, tags
FROM palaver.conversations WHERE id = %s;

-- name: journal_hashes
SELECT 'version ' || version || ' of the journal', hash, frame, conversation, version, kind, at,
       first, count, stop, data, key
FROM palaver.journal WHERE conversation = %s AND version > %s ORDER BY version LIMIT %s;

-- name: record_hashes
SELECT 'the record ' || kind || ' ' || name, hash, value, conversation, kind, name
FROM palaver.records WHERE conversation = %s ORDER BY kind, name;

-- name: orphans
SELECT 'a message', conversation, seq FROM palaver.messages AS m
WHERE NOT EXISTS (SELECT 1 FROM palaver.conversations AS c
                  WHERE c.id = m.conversation AND m.seq >= c.base AND m.seq < c.length)
UNION ALL
SELECT 'a journal record', conversation, version FROM palaver.journal AS j
WHERE NOT EXISTS (SELECT 1 FROM palaver.conversations AS c
                  WHERE c.id = j.conversation AND j.version <= c.version)
UNION ALL
SELECT 'an entry of the search index', conversation, seq FROM palaver.words AS w
WHERE NOT EXISTS (SELECT 1 FROM palaver.messages AS m
                  WHERE m.conversation = w.conversation AND m.seq = w.seq)
UNION ALL
SELECT 'a record', conversation, 0 FROM palaver.records AS r
WHERE NOT EXISTS (SELECT 1 FROM palaver.conversations AS c WHERE c.id = r.conversation)
UNION ALL
SELECT 'a fork without its parent', id, base FROM palaver.conversations AS c
WHERE parent IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM palaver.conversations AS p WHERE p.id = c.parent)
LIMIT 100;

-- name: footprint
SELECT sum(pg_total_relation_size(table_name::regclass))::bigint FROM unnest(%s::text[]) AS table_name;

-- name: readers_of_the_past
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
  AND age(backend_xmin) >= age(%s::text::xid);

-- name: transaction
SELECT pg_current_xact_id()::xid::text;

-- name: present
SELECT EXISTS (SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
               WHERE n.nspname = 'palaver' AND c.relname = 'store');

-- name: standing
SELECT version, shift FROM palaver.store;

-- name: ahead
SELECT coalesce(max(number) / 4194304, 0) + 1
       - pg_snapshot_xmax(pg_current_snapshot())::text::bigint - (SELECT shift FROM palaver.store)
FROM palaver.journal;

-- name: migration_lock
SELECT pg_advisory_xact_lock(7308324466019595126);

-- name: found
CREATE SCHEMA IF NOT EXISTS palaver;

-- name: found_store
CREATE TABLE palaver.store (version integer NOT NULL, shift bigint NOT NULL);

-- name: begin_store
INSERT INTO palaver.store VALUES (0, 0);

-- name: note_version
UPDATE palaver.store SET version = %s;

-- name: shift
UPDATE palaver.store SET shift = shift + %s;
