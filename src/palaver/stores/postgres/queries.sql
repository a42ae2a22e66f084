-- Every statement the PostgreSQL store makes, by name. Values are bound, never written in.

-- name: head
SELECT id, version, stop, length, n_system, n_user, n_assistant, framed, size, parent, base, origin,
       title, tags, created, updated, erased, owner
FROM palaver.conversations WHERE root = %s AND id = %s;

-- name: open
SELECT * FROM palaver.open_conversation(%s::text, %s);

-- name: listing
SELECT id, version, stop, length, n_system, n_user, n_assistant, framed, size, parent, base, origin,
       title, tags, created, updated, erased, owner
FROM palaver.conversations
WHERE span <= %(updated)s::bigint >> 12 AND (updated, id) < (%(updated)s, %(id)s)
  AND (%(tag)s::text IS NULL OR %(tag)s = ANY (tags)) AND NOT (tags && %(without)s::text[])
ORDER BY span DESC, updated DESC, id DESC
LIMIT %(limit)s;

-- In the order of the index by owner. With `owner = …` the server would rather read the spans of all
-- owners, down to the last conversation of one who is not there any more.
-- name: listing_of_owner
SELECT id, version, stop, length, n_system, n_user, n_assistant, framed, size, parent, base, origin,
       title, tags, created, updated, erased, owner
FROM palaver.conversations
WHERE (owner, span) <= (%(owner)s, %(updated)s::bigint >> 12) AND owner >= %(owner)s
  AND (updated, id) < (%(updated)s, %(id)s)
  AND (%(tag)s::text IS NULL OR %(tag)s = ANY (tags)) AND NOT (tags && %(without)s::text[])
ORDER BY owner DESC, span DESC, updated DESC, id DESC
LIMIT %(limit)s;

-- name: forks
SELECT id, version, stop, length, n_system, n_user, n_assistant, framed, size, parent, base, origin,
       title, tags, created, updated, erased, owner
FROM palaver.conversations WHERE root = %s AND parent = %s ORDER BY created, id;

-- The forks of several conversations. Of one that is a fork itself, the root is not known here.
-- name: forks_of
SELECT id, version, stop, length, n_system, n_user, n_assistant, framed, size, parent, base, origin,
       title, tags, created, updated, erased, owner
FROM palaver.conversations WHERE parent = ANY (%s::text[]) ORDER BY created, id;

-- name: root
SELECT root FROM palaver.names WHERE id = %s;

-- name: roots
SELECT id, root FROM palaver.names WHERE id = ANY (%s::text[]);

-- name: named
SELECT id FROM palaver.names WHERE id >= %s AND id < %s ORDER BY id LIMIT %s;

-- name: create
SELECT palaver.create_conversation(
    %(root)s::text, %(id)s::text, %(parent)s::text, %(base)s, %(origin)s, %(title)s::text,
    %(tags)s::text[], %(created)s, %(updated)s, %(label_hash)s, %(first)s, %(stop)s, %(size)s,
    %(counts)b::bigint[], %(kind)s::text, %(at)s, %(key)s::text, %(attempt)s, %(index)s, %(mark)s,
    %(data)s::text, %(frame)s::bytea, %(roles)b::bigint[], %(times)b::bigint[], %(marks)b::bigint[],
    %(ids)b::text[], %(bodies)b::text[], %(replaces)b::bigint[], %(kinds)b::text[],
    %(names)b::text[], %(values)b::bytea[], %(hashes)b::bigint[], %(as_parent)s, %(owner)s::text);

-- name: claim_name
INSERT INTO palaver.names (id, root) VALUES (%s, %s);

-- name: commit
SELECT palaver.commit_change(
    %(root)s::text, %(id)s::text, %(after)s, %(anywhere)s, %(first)s, %(stop)s, %(size)s,
    %(kind)s::text, %(at)s, %(key)s::text, %(token)s::bigint, %(attempt)s, %(index)s, %(mark)s,
    %(roles)b::bigint[], %(times)b::bigint[], %(marks)b::bigint[], %(ids)b::text[],
    %(bodies)b::text[], %(replaces)b::bigint[], %(data)s::text, %(frame)s::bytea,
    %(kinds)b::text[], %(names)b::text[], %(values)b::bytea[], %(hashes)b::bigint[]);

-- name: append
SELECT palaver.append_message(
    %s::text, %s::text, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::text,
    %s::text);

-- name: append_with_key
SELECT palaver.append_with_key(
    %s::text, %s::text, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::text, %s::text,
    %s::text, %s);

-- The attempt that made a version; `first` is where its first message would stand.
-- name: outcome
SELECT attempt FROM palaver.journal
WHERE root = %(root)s AND conversation = %(id)s AND version = %(version)s
UNION ALL
SELECT attempt FROM palaver.messages
WHERE root = %(root)s AND conversation = %(id)s AND version = %(version)s AND seq = %(first)s;

-- name: bodies
SELECT body FROM palaver.messages WHERE root = %s AND conversation = %s AND seq >= %s AND seq < %s
ORDER BY seq;

-- The same of several conversations.
-- name: bodies_of
SELECT m.body
FROM unnest(%(names)s::text[], %(starts)s::bigint[], %(stops)s::bigint[])
     AS r (conversation, start, stop)
JOIN palaver.messages AS m
  ON m.root = %(root)s AND m.conversation = r.conversation AND m.seq >= r.start AND m.seq < r.stop
ORDER BY m.seq;

-- name: before
SELECT n_system, n_user, n_assistant FROM palaver.messages
WHERE root = %s AND conversation = %s AND seq = %s;

-- name: befores_of
SELECT m.seq, m.n_system, m.n_user, m.n_assistant
FROM unnest(%(names)s::text[], %(starts)s::bigint[], %(stops)s::bigint[])
     AS r (conversation, start, stop)
JOIN palaver.messages AS m
  ON m.root = %(root)s AND m.conversation = r.conversation AND m.seq >= r.start AND m.seq < r.stop
ORDER BY m.seq;

-- name: select
SELECT seq FROM palaver.messages
WHERE root = %s AND conversation = %s AND role = %s AND ordinal >= %s AND ordinal < %s AND seq < %s
ORDER BY ordinal;

-- name: select_of
SELECT m.seq
FROM unnest(%(names)s::text[], %(starts)s::bigint[], %(stops)s::bigint[])
     AS r (conversation, start, stop)
JOIN palaver.messages AS m
  ON m.root = %(root)s AND m.conversation = r.conversation AND m.role = %(role)s
  AND m.ordinal >= %(first)s
 AND m.ordinal < %(last)s AND m.seq < r.stop
ORDER BY m.seq;

-- name: positions_of
SELECT m.seq
FROM unnest(%(names)s::text[], %(starts)s::bigint[], %(stops)s::bigint[])
     AS r (conversation, start, stop)
JOIN palaver.messages AS m
  ON m.root = %(root)s AND m.conversation = r.conversation AND m.id = %(id)s AND m.seq < r.stop
ORDER BY m.seq;

-- name: between_times
SELECT seq FROM palaver.messages
WHERE root = %s AND conversation = %s AND seq < %s AND time >= %s AND time < %s ORDER BY seq;

-- name: between_times_of
SELECT m.seq
FROM unnest(%(names)s::text[], %(starts)s::bigint[], %(stops)s::bigint[])
     AS r (conversation, start, stop)
JOIN palaver.messages AS m
  ON m.root = %(root)s AND m.conversation = r.conversation AND m.time >= %(since)s
  AND m.time < %(until)s
 AND m.seq < r.stop
ORDER BY m.seq;

-- name: replaced
SELECT replaces FROM palaver.messages WHERE root = %s AND conversation = %s AND seq = %s;

-- Between two records of the journal, every version is a message of its own, one after the other. It
-- is looked up by its position: a join would read the whole conversation.
-- name: stop
SELECT stop
FROM (SELECT CASE j.version
                 WHEN %(version)s THEN j.stop
                 ELSE (SELECT m.seq + 1 FROM palaver.messages AS m
                       WHERE m.root = %(root)s AND m.conversation = %(id)s
                         AND m.version = %(version)s
                         AND m.seq = j.first + j.count + %(version)s - j.version - 1)
             END AS stop
      FROM (SELECT version, first, count, stop FROM palaver.journal
            WHERE root = %(root)s AND conversation = %(id)s AND version <= %(version)s
            ORDER BY version DESC LIMIT 1) AS j) AS found
WHERE stop IS NOT NULL;

-- name: frames
SELECT version, frame FROM palaver.journal
WHERE root = %s AND conversation = %s AND frame IS NOT NULL AND version > %s AND version <= %s
ORDER BY version;

-- name: frames_of
SELECT j.conversation, j.version, j.frame
FROM unnest(%(names)s::text[], %(starts)s::bigint[], %(stops)s::bigint[])
     AS r (conversation, after, upto)
JOIN palaver.journal AS j
  ON j.root = %(root)s AND j.conversation = r.conversation AND j.version > r.after AND j.version <= r.upto
WHERE j.frame IS NOT NULL;

-- A conversation and its ancestors, one index lookup for each, whatever the planner knows of the
-- table. UNION ends even where damaged rows lead in a circle.
-- name: line
WITH RECURSIVE up (id, parent, base, origin) AS (
    SELECT id, parent, base, origin FROM palaver.conversations
    WHERE root = %(root)s AND id = %(id)s
    UNION
    SELECT c.* FROM up CROSS JOIN LATERAL (
        SELECT id, parent, base, origin FROM palaver.conversations
        WHERE root = %(root)s AND id = up.parent LIMIT 1
    ) AS c
)
SELECT id, parent, base, origin FROM up;

-- name: keys
SELECT version, key FROM palaver.journal
WHERE root = %s AND conversation = %s AND key IS NOT NULL AND version > %s AND version <= %s
ORDER BY version;

-- A page of changes: the journal's records, and the messages that are their own, which stand between
-- two records one after the other. The last record before the page tells where the first ones are.
-- The limit within the join changes nothing but the plan: each gap is read by itself, and not the
-- whole conversation for all of them.
-- name: journal
WITH record AS (
    (SELECT version, kind, at, first, count, data, number FROM palaver.journal
     WHERE root = %(root)s AND conversation = %(id)s AND version <= %(after)s
     ORDER BY version DESC LIMIT 1)
    UNION ALL
    SELECT version, kind, at, first, count, data, number FROM palaver.journal
    WHERE root = %(root)s AND conversation = %(id)s AND version > %(after)s
      AND version <= %(after)s + %(limit)s
), gap AS (
    SELECT first + count + greatest(%(after)s - version, 0) AS start,
           first + count + lead(version, 1, %(after)s + %(limit)s + 1) OVER (ORDER BY version)
           - version - 1 AS stop
    FROM record
)
SELECT %(id)s::text, version, kind, at, first, count, data, number
FROM record WHERE version > %(after)s
UNION ALL
SELECT %(id)s::text, m.version, 'append', coalesce(m.at, 0), m.seq, 1, NULL, coalesce(m.number, 0)
FROM gap CROSS JOIN LATERAL (
    SELECT version, at, seq, number FROM palaver.messages
    WHERE root = %(root)s AND conversation = %(id)s AND seq >= gap.start AND seq < gap.stop
    ORDER BY seq LIMIT %(limit)s
) AS m
WHERE m.version > %(after)s
ORDER BY 2;

-- name: journal_of_all
WITH settled AS (
    SELECT 4194304 * (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + shift) AS number
    FROM palaver.store
)
(SELECT conversation, version, kind, at, first, count, data, number
 FROM palaver.journal
 WHERE node = 0 AND number > %(after)s AND number < (SELECT number FROM settled)
 ORDER BY number LIMIT %(limit)s)
UNION ALL
(SELECT conversation, version, 'append', at, seq, 1, NULL, number
 FROM palaver.messages
 WHERE node = 0 AND number > %(after)s AND number < (SELECT number FROM settled)
 ORDER BY number LIMIT %(limit)s)
ORDER BY number LIMIT %(limit)s;

-- name: newest
WITH settled AS (
    SELECT 4194304 * (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + shift) AS number
    FROM palaver.store
)
SELECT coalesce(greatest(
    (SELECT max(number) FROM palaver.journal
     WHERE node = 0 AND number < (SELECT number FROM settled)),
    (SELECT max(number) FROM palaver.messages
     WHERE node = 0 AND number < (SELECT number FROM settled))), 0);

-- What is said of a conversation, in the order of its hash.
-- name: labels
SELECT id, parent, base, origin, created, erased, title, tags, owner FROM palaver.conversations
WHERE root = %s AND id = ANY (%s) ORDER BY id FOR UPDATE;

-- name: label
UPDATE palaver.conversations SET erased = %s, title = %s, tags = %s, owner = %s, hash = %s
WHERE root = %s AND id = %s;

-- name: lease
SELECT * FROM palaver.take_lease(%(root)s::text, %(id)s::text, %(holder)s::text, %(lasts)s);

-- name: release
UPDATE palaver.conversations SET lease_expires = 0
WHERE root = %s AND id = %s AND lease_token = %s;

-- name: release_made
UPDATE palaver.conversations AS c SET lease_expires = 0
WHERE c.root = %(root)s AND c.id = %(id)s AND c.lease_token = %(token)s
  AND (EXISTS (SELECT 1 FROM palaver.journal AS j
               WHERE j.root = %(root)s AND j.conversation = %(id)s AND j.version > %(after)s
                 AND j.attempt = %(attempt)s)
       OR EXISTS (SELECT 1 FROM palaver.messages AS m
                  WHERE m.root = %(root)s AND m.conversation = %(id)s AND m.seq >= %(first)s
                    AND m.version > %(after)s AND m.attempt = %(attempt)s));

-- name: keep
SELECT palaver.keep_records(%s::text, %s::text, %s::bigint, %b::text[], %b::text[], %b::bytea[],
                            %b::bigint[]);

-- name: all_records
SELECT conversation, kind, name, value FROM palaver.records
WHERE root = %s AND conversation = ANY (%s) ORDER BY conversation, kind, name FOR UPDATE;

-- name: drop_record
DELETE FROM palaver.records WHERE root = %s AND conversation = %s AND kind = %s AND name = %s;

-- name: kinds
SELECT DISTINCT kind FROM palaver.records WHERE root = %s AND conversation = %s ORDER BY kind;

-- name: records
SELECT name, value FROM palaver.records WHERE root = %s AND conversation = %s AND kind = %s
  AND name >= %s
ORDER BY name;

-- name: records_of
SELECT kind, name, value FROM palaver.records
WHERE root = %s AND conversation = %s AND kind = ANY (%s::text[]) ORDER BY kind, name;

-- name: records_until
SELECT name, value FROM palaver.records
WHERE root = %s AND conversation = %s AND kind = %s AND name >= %s AND name < %s ORDER BY name;

-- name: last_records
SELECT name, value FROM palaver.records WHERE root = %s AND conversation = %s AND kind = %s
  AND name >= %s
ORDER BY name DESC LIMIT %s;

-- name: last_records_until
SELECT name, value FROM palaver.records
WHERE root = %s AND conversation = %s AND kind = %s AND name >= %s AND name < %s
ORDER BY name DESC LIMIT %s;

-- name: lock
SELECT version, id FROM palaver.conversations WHERE root = %s AND id = %s FOR UPDATE;

-- name: a_fork_of
SELECT id FROM palaver.conversations WHERE root = %s AND parent = %s LIMIT 1;

-- Several conversations, in one order, so that nobody waits in a circle.
-- name: lock_all
SELECT c.version, c.id
FROM unnest(%(roots)s::text[], %(ids)s::text[]) AS w (root, id)
JOIN palaver.conversations AS c ON c.root = w.root AND c.id = w.id
ORDER BY c.id FOR UPDATE OF c;

-- name: forked_from
SELECT c.parent, c.id
FROM unnest(%(roots)s::text[], %(ids)s::text[]) AS w (root, id)
JOIN palaver.conversations AS c ON c.root = w.root AND c.parent = w.id;

-- name: delete_all_messages
DELETE FROM palaver.messages AS t USING unnest(%(roots)s::text[], %(ids)s::text[]) AS w (root, id)
WHERE t.root = w.root AND t.conversation = w.id;

-- name: delete_all_journal
DELETE FROM palaver.journal AS t USING unnest(%(roots)s::text[], %(ids)s::text[]) AS w (root, id)
WHERE t.root = w.root AND t.conversation = w.id;

-- name: delete_all_records
DELETE FROM palaver.records AS t USING unnest(%(roots)s::text[], %(ids)s::text[]) AS w (root, id)
WHERE t.root = w.root AND t.conversation = w.id;

-- name: delete_all_words
DELETE FROM palaver.words AS t USING unnest(%(roots)s::text[], %(ids)s::text[]) AS w (root, id)
WHERE t.root = w.root AND t.conversation = w.id;

-- name: delete_all_name
DELETE FROM palaver.names AS t USING unnest(%(roots)s::text[], %(ids)s::text[]) AS w (root, id)
WHERE t.root = w.root AND t.id = w.id;

-- name: delete_all_head
DELETE FROM palaver.conversations AS t
USING unnest(%(roots)s::text[], %(ids)s::text[]) AS w (root, id)
WHERE t.root = w.root AND t.id = w.id;

-- name: delete_messages
DELETE FROM palaver.messages WHERE root = %s AND conversation = %s;

-- name: delete_journal
DELETE FROM palaver.journal WHERE root = %s AND conversation = %s;

-- name: delete_records
DELETE FROM palaver.records WHERE root = %s AND conversation = %s;

-- name: delete_words
DELETE FROM palaver.words WHERE root = %s AND conversation = %s;

-- name: delete_head
DELETE FROM palaver.conversations WHERE root = %s AND id = %s;

-- name: delete_name
DELETE FROM palaver.names WHERE root = %s AND id = %s;

-- name: family
SELECT id FROM palaver.conversations WHERE root = %s;

-- `standing` is part of a message's hash beside its place: which position it replaces, or, of one that
-- is the record of its own change, when that was made.
-- name: rows_of
SELECT body, conversation, seq,
       CASE WHEN at IS NULL THEN replaces::text ELSE 'at ' || at END AS standing
FROM palaver.messages WHERE root = %s AND conversation = ANY (%s) AND id = ANY (%s);

-- name: rows_at
SELECT body, conversation, seq,
       CASE WHEN at IS NULL THEN replaces::text ELSE 'at ' || at END AS standing
FROM palaver.messages WHERE root = %s AND conversation = %s AND seq = ANY (%s);

-- name: bury
UPDATE palaver.messages SET body = %s, hash = %s
WHERE root = %s AND conversation = %s AND seq = %s;

-- name: lock_index
SELECT node, owner, indexed FROM palaver.indexing ORDER BY node, owner FOR UPDATE;

-- Where row security is on, an owner can lock no other row than its own.
-- name: lock_secured_index
SELECT pg_advisory_xact_lock(7308324466019595127);

-- name: indexed
SELECT node, owner, indexed FROM palaver.indexing;

-- name: add_index_node
INSERT INTO palaver.indexing (node, owner, indexed) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING;

-- name: unindexed
WITH settled AS (
    SELECT coalesce(
        %(horizon)s::bigint,
        4194304 * (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + shift)) AS number
    FROM palaver.store
), change AS (
    (SELECT root, conversation, first, count, number FROM palaver.journal
     WHERE node = %(node)s AND number > %(after)s ORDER BY number LIMIT %(limit)s)
    UNION ALL
    (SELECT root, conversation, seq, 1, number FROM palaver.messages
     WHERE node = %(node)s AND number > %(after)s ORDER BY number LIMIT %(limit)s)
)
SELECT root, conversation, first, count, number, number < (SELECT number FROM settled)
FROM change ORDER BY number LIMIT %(limit)s;

-- The next messages for the search index, without their bodies: those may be large.
-- name: to_index
SELECT j.change, m.root, m.conversation, m.seq, octet_length(m.body)
FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[])
     WITH ORDINALITY AS j (root, conversation, first, stop, change)
JOIN palaver.messages AS m
  ON m.root = j.root AND m.conversation = j.conversation AND m.seq >= j.first AND m.seq < j.stop
WHERE NOT EXISTS (SELECT 1 FROM palaver.words AS w
                  WHERE w.root = m.root AND w.conversation = m.conversation AND w.seq = m.seq)
ORDER BY j.change, m.seq
LIMIT %s;

-- In the order in which they are asked for.
-- name: bodies_at
SELECT m.root, m.conversation, m.seq, m.body
FROM unnest(%s::text[], %s::text[], %s::bigint[])
     WITH ORDINALITY AS p (root, conversation, seq, place)
JOIN palaver.messages AS m
  ON m.root = p.root AND m.conversation = p.conversation AND m.seq = p.seq
ORDER BY p.place;

-- name: index_words
INSERT INTO palaver.words (root, words, reason, conversation, seq, time)
SELECT root, array_to_tsvector(%s::text[]), %s, conversation, seq, time
FROM palaver.messages WHERE root = %s AND conversation = %s AND seq = %s
ON CONFLICT (root, conversation, seq) DO NOTHING;

-- name: note_indexed
UPDATE palaver.indexing SET indexed = %s WHERE node = %s AND owner = %s;

-- An encrypted store has no search index: how far it goes is below 0. See `encryption.py`.
-- name: index_is_off
SELECT indexed FROM palaver.indexing WHERE indexed < 0;

-- name: empty_index
DELETE FROM palaver.words;

-- name: reset_index
UPDATE palaver.indexing SET indexed = %s;

-- The same content in another form, where the row is still what was read.
-- name: replace_hashes
UPDATE palaver.messages SET body = %(body)s, hash = %(hash)s
WHERE root = %(root)s AND conversation = %(id)s AND seq = %(seq)s AND hash = %(old)s;

-- name: replace_journal_hashes
UPDATE palaver.journal SET data = %(data)s, frame = %(frame)s, hash = %(hash)s
WHERE root = %(root)s AND conversation = %(id)s AND version = %(version)s
  AND hash IS NOT DISTINCT FROM %(old)s::bigint;

-- name: replace_record_hashes
UPDATE palaver.records SET value = %(value)s, hash = %(hash)s
WHERE root = %(root)s AND conversation = %(id)s AND kind = %(kind)s AND name = %(name)s
  AND hash IS NOT DISTINCT FROM %(old)s::bigint;

-- name: reindex_words
UPDATE palaver.words SET words = array_to_tsvector(%s::text[]), reason = %s
WHERE root = %s AND conversation = %s AND seq = %s;

-- name: unindexed_messages
SELECT seq, reason FROM palaver.words
WHERE root = %s AND conversation = %s AND reason IS NOT NULL ORDER BY seq;

-- Where the hits are; their sizes and bodies are read behind it.
-- name: search
SELECT root, conversation, seq FROM palaver.words WHERE words @@ %(query)s::tsquery
ORDER BY time DESC, conversation DESC, seq DESC
LIMIT %(limit)s OFFSET %(offset)s;

-- name: search_of_owner
SELECT w.root, w.conversation, w.seq
FROM palaver.conversations AS c
JOIN palaver.words AS w ON w.root = c.root AND w.conversation = c.id
WHERE c.owner = %(owner)s AND w.words @@ %(query)s::tsquery
ORDER BY w.time DESC, w.conversation DESC, w.seq DESC
LIMIT %(limit)s OFFSET %(offset)s;

-- name: search_in
SELECT w.root, w.conversation, w.seq
FROM unnest(%(names)s::text[], %(starts)s::bigint[], %(stops)s::bigint[])
     AS s (conversation, start, stop)
JOIN palaver.words AS w
  ON w.root = %(root)s AND w.conversation = s.conversation AND w.seq >= s.start AND w.seq < s.stop
WHERE w.words @@ %(query)s::tsquery
ORDER BY w.seq DESC
LIMIT %(limit)s OFFSET %(offset)s;

-- name: sizes_at
SELECT m.root, m.conversation, m.seq, octet_length(m.body)
FROM unnest(%s::text[], %s::text[], %s::bigint[])
     WITH ORDINALITY AS p (root, conversation, seq, place)
JOIN palaver.messages AS m
  ON m.root = p.root AND m.conversation = p.conversation AND m.seq = p.seq
ORDER BY p.place;

-- name: hashes
SELECT hash, body, role, ordinal, n_system, n_user, n_assistant, time, id, conversation, seq,
       CASE WHEN at IS NULL THEN replaces::text ELSE 'at ' || at END AS standing
FROM palaver.messages WHERE root = %s AND conversation = %s AND seq >= %s AND seq < %s ORDER BY seq;

-- Several conversations whole, of those that are not forks and not long.
-- name: whole_heads
SELECT c.id, version, stop, length, n_system, n_user, n_assistant, framed, size, parent, base, origin,
       title, tags, created, updated, erased, owner
FROM unnest(%(ids)s::text[]) AS w (id)
JOIN palaver.conversations AS c ON c.root = w.id AND c.id = w.id
WHERE length <= %(most)s AND version < %(most)s;

-- name: whole_journal
SELECT conversation, version, kind, at, first, count, data, number, stop, key, frame
FROM unnest(%(ids)s::text[]) AS w (id)
JOIN palaver.journal AS t ON t.root = w.id AND t.conversation = w.id
UNION ALL
SELECT conversation, version, 'append', at, seq, 1, NULL, number, seq + 1, NULL, NULL
FROM unnest(%(ids)s::text[]) AS w (id)
JOIN palaver.messages AS t ON t.root = w.id AND t.conversation = w.id
WHERE version IS NOT NULL
ORDER BY conversation, version;

-- name: whole_messages
SELECT conversation, body, replaces
FROM unnest(%(ids)s::text[]) AS w (id)
JOIN palaver.messages AS t ON t.root = w.id AND t.conversation = w.id
ORDER BY conversation, seq;

-- name: whole_records
SELECT conversation, kind, name, value
FROM unnest(%(ids)s::text[]) AS w (id)
JOIN palaver.records AS t ON t.root = w.id AND t.conversation = w.id
ORDER BY conversation, kind, name;

-- name: label_hash
SELECT hash, id, parent, base, origin, created, erased, title, tags, owner
FROM palaver.conversations WHERE root = %s AND id = %s;

-- name: journal_hashes
SELECT 'version ' || version || ' of the journal', hash, frame, conversation, version, kind, at,
       first, count, stop, data, key
FROM palaver.journal WHERE root = %s AND conversation = %s AND version > %s
ORDER BY version LIMIT %s;

-- name: record_hashes
SELECT 'the record ' || kind || ' ' || name, hash, value, conversation, kind, name
FROM palaver.records WHERE root = %s AND conversation = %s ORDER BY kind, name;

-- name: orphans
SELECT 'a message', conversation, seq FROM palaver.messages AS m
WHERE NOT EXISTS (SELECT 1 FROM palaver.conversations AS c
                  WHERE c.root = m.root AND c.id = m.conversation AND m.seq >= c.base
                    AND m.seq < c.length AND coalesce(m.version, 0) <= c.version)
UNION ALL
SELECT 'half a record of a change', conversation, seq FROM palaver.messages
WHERE num_nonnulls(version, node, number, at, attempt) NOT IN (0, 5)
UNION ALL
SELECT 'a journal record', conversation, version FROM palaver.journal AS j
WHERE NOT EXISTS (SELECT 1 FROM palaver.conversations AS c
                  WHERE c.root = j.root AND c.id = j.conversation AND j.version <= c.version)
UNION ALL
SELECT 'an entry of the search index', conversation, seq FROM palaver.words AS w
WHERE NOT EXISTS (SELECT 1 FROM palaver.messages AS m
                  WHERE m.root = w.root AND m.conversation = w.conversation AND m.seq = w.seq)
UNION ALL
SELECT 'a record', conversation, 0 FROM palaver.records AS r
WHERE NOT EXISTS (SELECT 1 FROM palaver.conversations AS c
                  WHERE c.root = r.root AND c.id = r.conversation)
UNION ALL
SELECT 'a fork without its parent', id, base FROM palaver.conversations AS c
WHERE parent IS NOT NULL
  AND NOT EXISTS (SELECT 1
FROM palaver.conversations AS p WHERE p.root = c.root AND p.id = c.parent)
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
SELECT coalesce(greatest((SELECT max(number) FROM palaver.journal WHERE node = 0),
                         (SELECT max(number) FROM palaver.messages WHERE node = 0)) / 4194304, 0) + 1
       - pg_snapshot_xmax(pg_current_snapshot())::text::bigint - (SELECT shift FROM palaver.store);

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

-- name: define_shift
SELECT palaver.define_shift();

-- For reads from a standby.

-- name: log_position
SELECT pg_current_wal_insert_lsn()::text;

-- The version of a conversation, if there is one and the server has come to a position in the log.
-- name: reached
SELECT c.version FROM palaver.names AS n
JOIN palaver.conversations AS c ON c.root = n.root AND c.id = n.id
WHERE n.id = %s
  AND (%s::pg_lsn IS NULL OR NOT pg_is_in_recovery() OR pg_last_wal_replay_lsn() >= %s::pg_lsn);

-- Whether row security is on, and whether it binds this role.
-- name: row_security
SELECT relrowsecurity, row_security_active(oid), current_user::text
FROM pg_class WHERE oid = 'palaver.conversations'::regclass;

-- Conversations that would be out of everyone's sight: without an owner, or forked from another's.
-- name: unowned
SELECT c.id FROM palaver.conversations AS c
LEFT JOIN palaver.conversations AS p ON p.root = c.root AND p.id = c.parent
WHERE c.owner IS NULL OR (c.parent IS NOT NULL AND p.owner IS DISTINCT FROM c.owner)
ORDER BY c.id LIMIT 6;

-- name: policies
SELECT format('DROP POLICY %I ON palaver.%I', policyname, tablename)
FROM pg_policies WHERE schemaname = 'palaver';

-- name: secured_tables
SELECT format('ALTER TABLE palaver.%I NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY',
              relname)
FROM pg_class WHERE relnamespace = 'palaver'::regnamespace AND relrowsecurity;

-- The rest is for a cluster: Citus.

-- name: has_extension
SELECT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'citus');

-- name: is_distributed
SELECT EXISTS (SELECT 1 FROM pg_dist_partition
               WHERE logicalrelid = to_regclass('palaver.messages'));

-- name: one_by_one
SET LOCAL citus.multi_shard_modify_mode = 'sequential';

-- name: identify_rows
ALTER TABLE palaver.store REPLICA IDENTITY FULL;

-- name: reference_store
SELECT create_reference_table('palaver.store');

-- name: distribute_table
SELECT create_distributed_table(%s::text::regclass, %s::text, colocate_with := %s::text);

-- name: truncate_local
SELECT truncate_local_data_after_distributing_table(%s::text::regclass);

-- name: node_of_cluster
CREATE OR REPLACE FUNCTION palaver.node() RETURNS integer LANGUAGE sql STABLE
AS 'SELECT groupid::integer FROM pg_catalog.pg_dist_local_group';

-- name: signatures
SELECT p.proname, p.oid::regprocedure::text
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace WHERE n.nspname = 'palaver';

-- name: spread_function
SELECT create_distributed_function(%s::text::regprocedure);

-- name: delegate_function
SELECT create_distributed_function(%s::text::regprocedure, %s::text, colocate_with := %s::text,
                                   force_delegation := %s);

-- For every node the number below which all its changes are finished.
-- name: horizons
SELECT true, '0:' || 4194304 * (pg_snapshot_xmin(pg_current_snapshot())::text::bigint
                                + (SELECT shift FROM palaver.store))
UNION ALL
SELECT success, result FROM run_command_on_workers(
    'SELECT (SELECT groupid FROM pg_catalog.pg_dist_local_group) || '':'' '
    '|| 4194304 * (pg_snapshot_xmin(pg_current_snapshot())::text::bigint '
    '+ (SELECT shift FROM palaver.store))');

-- name: next_transactions
SELECT true, '0:' || pg_snapshot_xmax(pg_current_snapshot())::text::bigint
                     + (SELECT shift FROM palaver.store)
UNION ALL
SELECT success, result FROM run_command_on_workers(
    'SELECT (SELECT groupid FROM pg_catalog.pg_dist_local_group) || '':'' '
    '|| pg_snapshot_xmax(pg_current_snapshot())::text::bigint '
    '+ (SELECT shift FROM palaver.store)');

-- name: last_node
SELECT last_value FROM pg_catalog.pg_dist_groupid_seq;

-- With the change before, in the same conversation: a record of the journal, or a message.
-- name: journal_of_node
WITH change AS (
    (SELECT root, conversation, version, kind, at, first, count, data, number FROM palaver.journal
     WHERE node = %(node)s AND number > %(after)s AND number < %(upto)s
     ORDER BY number LIMIT %(limit)s)
    UNION ALL
    (SELECT root, conversation, version, 'append', at, seq, 1, NULL, number FROM palaver.messages
     WHERE node = %(node)s AND number > %(after)s AND number < %(upto)s
     ORDER BY number LIMIT %(limit)s)
    ORDER BY number LIMIT %(limit)s
)
SELECT c.conversation, c.version, c.kind, c.at, c.first, c.count, c.data, c.number,
       coalesce(j.node, m.node), coalesce(j.number, m.number)
FROM change AS c
LEFT JOIN palaver.journal AS j
  ON j.root = c.root AND j.conversation = c.conversation AND j.version = c.version - 1
LEFT JOIN palaver.messages AS m
  ON m.root = c.root AND m.conversation = c.conversation AND m.seq = c.first - 1
  AND m.version = c.version - 1
ORDER BY c.number;

-- name: newest_of_node
SELECT coalesce(max(number), 0)
FROM (SELECT max(number) AS number FROM palaver.journal
      WHERE node = %(node)s AND number < %(upto)s
      UNION ALL
      SELECT max(number) FROM palaver.messages
      WHERE node = %(node)s AND number < %(upto)s) AS newest;

-- name: footprint_of_cluster
SELECT sum(citus_total_relation_size(table_name::regclass))::bigint
FROM unnest(%s::text[]) AS table_name;

-- name: server_version
SHOW server_version;

-- name: citus_version
SELECT citus_version();

-- name: nodes
SELECT nodeid, groupid, nodename, nodeport, noderole::text FROM pg_dist_node ORDER BY groupid, nodeid;

-- name: node_settings
SELECT nodeid, success, result FROM run_command_on_all_nodes(
    'SELECT current_setting(''max_prepared_transactions'') || '':'' '
    '|| current_setting(''wal_level'')');

-- name: shards
SELECT nodename, nodeport, count(*) FROM citus_shards
WHERE table_name = 'palaver.messages'::regclass GROUP BY nodename, nodeport;

-- Whoever listens holds this lock too, so that others know of it. A notification is a transaction of
-- its own with a number and a record, which is not worth making where nobody listens.
-- name: hold_listening
SELECT pg_advisory_lock_shared(7308324466019595128);

-- name: listen
LISTEN palaver;

-- Nobody loses anything if a notification is lost with the server: followers look by themselves.
-- name: notify
SELECT nobody, CASE WHEN NOT nobody THEN set_config('synchronous_commit', 'off', true) END,
       CASE WHEN NOT nobody THEN pg_notify('palaver', '') END
FROM (SELECT pg_try_advisory_xact_lock(7308324466019595128) AS nobody OFFSET 0) AS listening;
