-- Every statement the SQLite store makes, by name. Values are bound, never written in.

-- What a conversation's last journal record left, then the last message since, then what tells
-- whether the first columns are still the same: they change only with the version or the hash.
-- The parent's number comes last of all.
-- name: head
SELECT c.id, c.version, c.stop, c.length, c.n_system, c.n_user, c.n_assistant, c.framed, c.size,
       p.id, c.base, c.origin, c.title, c.tags, c.created, c.updated, c.erased, c.owner,
       m.version, m.seq, m.role, m.n_system, m.n_user, m.n_assistant, m.at,
       c.cid, c.version, c.hash, c.parent
FROM conversations AS c
LEFT JOIN conversations AS p ON p.cid = c.parent
LEFT JOIN messages AS m ON m.cid = c.cid
WHERE c.id = ? ORDER BY m.seq DESC LIMIT 1;

-- A number is never given twice, so that of a conversation that was deleted finds nothing.
-- name: head_since
SELECT m.version, m.seq, m.role, m.n_system, m.n_user, m.n_assistant, m.at,
       c.cid, c.version, c.hash
FROM conversations AS c LEFT JOIN messages AS m ON m.cid = c.cid
WHERE c.cid = ? ORDER BY m.seq DESC LIMIT 1;

-- name: cid
SELECT cid FROM conversations WHERE id = ?;

-- A page in the order of the index; what the index does not know yet comes from `fresh`.
-- name: list
SELECT c.updated,
       c.id, c.version, c.stop, c.length, c.n_system, c.n_user, c.n_assistant, c.framed, c.size,
       p.id, c.base, c.origin, c.title, c.tags, c.created, c.updated, c.erased, c.owner,
       m.version, m.seq, m.role, m.n_system, m.n_user, m.n_assistant, m.at
FROM conversations AS c
LEFT JOIN conversations AS p ON p.cid = c.parent
LEFT JOIN messages AS m
    ON m.cid = c.cid AND m.seq = (SELECT max(seq) FROM messages WHERE cid = c.cid)
WHERE (c.updated, c.id) < (?1, ?2)
  AND (?3 IS NULL OR EXISTS (SELECT 1 FROM json_each(c.tags) WHERE value = ?3))
  AND (?5 IS NULL OR NOT EXISTS (
      SELECT 1 FROM json_each(c.tags) AS t JOIN json_each(?5) AS w ON t.value = w.value))
ORDER BY c.updated DESC, c.id DESC
LIMIT ?4;

-- The same of an owner, in the order of another index.
-- name: list_of_owner
SELECT c.updated,
       c.id, c.version, c.stop, c.length, c.n_system, c.n_user, c.n_assistant, c.framed, c.size,
       p.id, c.base, c.origin, c.title, c.tags, c.created, c.updated, c.erased, c.owner,
       m.version, m.seq, m.role, m.n_system, m.n_user, m.n_assistant, m.at
FROM conversations AS c
LEFT JOIN conversations AS p ON p.cid = c.parent
LEFT JOIN messages AS m
    ON m.cid = c.cid AND m.seq = (SELECT max(seq) FROM messages WHERE cid = c.cid)
WHERE c.owner = ?5 AND (c.updated, c.id) < (?1, ?2)
  AND (?3 IS NULL OR EXISTS (SELECT 1 FROM json_each(c.tags) WHERE value = ?3))
  AND (?6 IS NULL OR NOT EXISTS (
      SELECT 1 FROM json_each(c.tags) AS t JOIN json_each(?6) AS w ON t.value = w.value))
ORDER BY c.updated DESC, c.id DESC
LIMIT ?4;

-- name: list_one
SELECT c.updated,
       c.id, c.version, c.stop, c.length, c.n_system, c.n_user, c.n_assistant, c.framed, c.size,
       p.id, c.base, c.origin, c.title, c.tags, c.created, c.updated, c.erased, c.owner,
       m.version, m.seq, m.role, m.n_system, m.n_user, m.n_assistant, m.at
FROM conversations AS c
LEFT JOIN conversations AS p ON p.cid = c.parent
LEFT JOIN messages AS m
    ON m.cid = c.cid AND m.seq = (SELECT max(seq) FROM messages WHERE cid = c.cid)
WHERE c.cid = ?1 AND (?2 IS NULL OR EXISTS (SELECT 1 FROM json_each(c.tags) WHERE value = ?2))
  AND (?3 IS NULL OR c.owner = ?3)
  AND (?4 IS NULL OR NOT EXISTS (
      SELECT 1 FROM json_each(c.tags) AS t JOIN json_each(?4) AS w ON t.value = w.value));

-- name: behind
SELECT listed, max(coalesce((SELECT max(number) FROM messages), 0), listed),
       coalesce((SELECT max(cid) FROM conversations), 0)
FROM listing;

-- The conversations with messages after a number: by these messages, or where they are more than
-- the conversations, by each conversation's last message.
-- name: fresh
SELECT c.cid, c.id, max(c.updated, m.at)
FROM (SELECT DISTINCT +cid AS cid FROM messages WHERE number > ?1) AS f
CROSS JOIN conversations AS c ON c.cid = f.cid
CROSS JOIN messages AS m
    ON m.cid = c.cid AND m.seq = (SELECT max(seq) FROM messages WHERE cid = c.cid);

-- name: fresh_of_all
SELECT c.cid, c.id, max(c.updated, m.at)
FROM conversations AS c
CROSS JOIN messages AS m
    ON m.cid = c.cid AND m.seq = (SELECT max(seq) FROM messages WHERE cid = c.cid)
WHERE m.number > ?1;

-- name: bring_up_to_date
UPDATE conversations SET updated = max(updated, ?1) WHERE cid = ?2;

-- name: listed
UPDATE listing SET listed = max(listed, ?);

-- name: forks
SELECT c.id, c.version, c.stop, c.length, c.n_system, c.n_user, c.n_assistant, c.framed, c.size,
       p.id, c.base, c.origin, c.title, c.tags, c.created, c.updated, c.erased, c.owner,
       m.version, m.seq, m.role, m.n_system, m.n_user, m.n_assistant, m.at
FROM conversations AS p
JOIN conversations AS c ON c.parent = p.cid
LEFT JOIN messages AS m
    ON m.cid = c.cid AND m.seq = (SELECT max(seq) FROM messages WHERE cid = c.cid)
WHERE p.cid = ? ORDER BY c.cid;

-- name: named
SELECT id FROM conversations WHERE id >= ? AND id < ? ORDER BY id LIMIT ?;

-- name: insert_conversation
INSERT INTO conversations (id, version, stop, length, n_system, n_user, n_assistant, framed, size,
                           parent, base, origin, title, tags, created, updated, owner, hash)
VALUES (?, 0, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: standing
SELECT max(version, coalesce((SELECT version FROM messages WHERE cid = ?1
                              ORDER BY seq DESC LIMIT 1), 0))
FROM conversations WHERE cid = ?1;

-- name: advance
UPDATE conversations
SET version = ?, stop = ?, length = ?, n_system = ?, n_user = ?, n_assistant = ?,
    framed = coalesce(?, framed), size = ?, updated = max(updated, ?)
WHERE cid = ?;

-- name: next_number
SELECT max(coalesce((SELECT max(number) FROM messages), 0),
           coalesce((SELECT max(number) FROM journal), 0)) + 1;

-- name: insert_message
INSERT INTO messages (number, cid, version, at, seq, batch, role, rank, n_system, n_user,
                      n_assistant, time, replaces, hash, key, id, body, to_latest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- A plain append, refused by the table itself where it comes too late: another append has taken its
-- place, or a journal record its version (NULL is not allowed there), or it is under a lease that
-- another has by now. `one_more` goes behind it for every further message, which gets the next number
-- by itself.
-- name: append_message
INSERT INTO messages (number, cid, version, at, seq, batch, role, rank, n_system, n_user,
                      n_assistant, time, replaces, hash, key, id, body, to_latest)
VALUES (max(coalesce((SELECT max(number) FROM messages), 0),
            coalesce((SELECT max(number) FROM journal), 0)) + 1,
        ?1, CASE WHEN (SELECT version FROM conversations WHERE cid = ?1) < ?2
                  AND (?4 IS NULL OR (SELECT token FROM leases WHERE cid = ?1) = ?4) THEN ?2 END,
        ?3, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18);

-- name: one_more
, (NULL, ?1, ?2, ?3, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- Without a number it gets the next one.
-- name: insert_journal
INSERT INTO journal (number, cid, version, kind, at, first, count, stop, data, key, frame, hash)
VALUES (coalesce(?, max(coalesce((SELECT max(number) FROM messages), 0),
                        coalesce((SELECT max(number) FROM journal), 0)) + 1),
        ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: version_of_key
SELECT version FROM journal WHERE cid = ?1 AND key = ?2
UNION ALL
SELECT version FROM messages WHERE cid = ?1 AND key = ?2;

-- name: version_at
SELECT version FROM messages WHERE cid = ? AND seq = ?;

-- name: bodies
SELECT body FROM messages WHERE cid = ? AND seq >= ? AND seq < ? ORDER BY seq;

-- The same as one text, for the reader of many messages at once; none where it would be too much.
-- name: joined_bodies
SELECT count(*), CAST(group_concat(body) AS BLOB)
FROM (SELECT body FROM messages WHERE cid = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq)
WHERE (SELECT sum(octet_length(body)) FROM messages WHERE cid = ?1 AND seq >= ?2 AND seq < ?3) < ?4;

-- The same of several conversations: a list of [cid, start, stop], in the order of the positions.
-- name: bodies_of
SELECT m.body FROM json_each(?) AS r
CROSS JOIN messages AS m
    ON m.cid = r.value ->> 0 AND m.seq >= r.value ->> 1 AND m.seq < r.value ->> 2
ORDER BY m.seq;

-- name: joined_bodies_of
SELECT count(*), CAST(group_concat(body, ',' ORDER BY seq) AS BLOB)
FROM (
    SELECT m.seq, m.body, sum(octet_length(m.body)) OVER () AS bytes FROM json_each(?1) AS r
    CROSS JOIN messages AS m
        ON m.cid = r.value ->> 0 AND m.seq >= r.value ->> 1 AND m.seq < r.value ->> 2
)
WHERE bytes < ?2;

-- name: before
SELECT n_system, n_user, n_assistant FROM messages WHERE cid = ? AND seq = ?;

-- name: befores
SELECT seq, n_system, n_user, n_assistant FROM messages
WHERE cid = ? AND seq >= ? AND seq < ? ORDER BY seq;

-- name: befores_of
SELECT m.seq, m.n_system, m.n_user, m.n_assistant FROM json_each(?) AS r
CROSS JOIN messages AS m
    ON m.cid = r.value ->> 0 AND m.seq >= r.value ->> 1 AND m.seq < r.value ->> 2
ORDER BY m.seq;

-- name: end
SELECT max(seq) + 1 FROM messages WHERE cid = ?;

-- How many messages of a role there are up to a position.
-- name: up_to
SELECT CASE ?3 WHEN 0 THEN n_system WHEN 1 THEN n_user WHEN 2 THEN n_assistant
               ELSE seq - n_system - n_user - n_assistant END + (role = ?3)
FROM messages WHERE cid = ?1 AND seq = ?2;

-- name: order_at
SELECT to_latest, time, id FROM messages WHERE cid = ? AND seq = ?;

-- The messages of a role in some ranges: a list of [cid, start, stop].
-- name: of_role
SELECT m.seq FROM json_each(?1) AS r
CROSS JOIN messages AS m
    ON m.cid = r.value ->> 0 AND m.seq >= r.value ->> 1 AND m.seq < r.value ->> 2
WHERE m.role = ?2 ORDER BY m.seq;

-- The messages with an id: the one in order of ids at a place, and those of every conversation that
-- are not.
-- name: of_id
SELECT cid, seq, 1 FROM messages WHERE cid = ?2 AND seq = ?3 AND id = ?1 AND to_latest IS 0
UNION ALL
SELECT cid, seq, 0 FROM messages INDEXED BY messages_id WHERE id = ?1 AND to_latest IS NOT 0;

-- name: in_order
SELECT m.seq FROM json_each(?1) AS r
CROSS JOIN messages AS m
    ON m.cid = r.value ->> 0 AND m.seq >= r.value ->> 1 AND m.seq < r.value ->> 2
WHERE m.to_latest <= 0;

-- name: out_of_order
SELECT m.seq FROM json_each(?1) AS r
CROSS JOIN messages AS m INDEXED BY messages_time
    ON m.cid = r.value ->> 0 AND m.time >= ?2 AND m.time < ?3 AND m.seq < r.value ->> 2
WHERE coalesce(m.to_latest, 1) > 0;

-- name: replaced
SELECT replaces FROM messages WHERE cid = ? AND seq = ?;

-- name: stop
SELECT stop FROM journal WHERE cid = ? AND version = ?;

-- name: frames
SELECT version, frame FROM journal
WHERE cid = ? AND frame IS NOT NULL AND version > ? AND version <= ? ORDER BY version;

-- The frames of several conversations: a list of [cid, after, up to].
-- name: frames_of
SELECT j.cid, j.version, j.frame FROM json_each(?) AS r
CROSS JOIN journal AS j
    ON j.cid = r.value ->> 0 AND j.version > r.value ->> 1 AND j.version <= r.value ->> 2
WHERE j.frame IS NOT NULL;

-- A conversation and its ancestors. A parent is older than its forks: it ends, whatever the file has.
-- name: line
WITH RECURSIVE up (cid, parent, base, origin) AS (
    SELECT cid, parent, base, origin FROM conversations WHERE cid = ?
    UNION ALL
    SELECT c.cid, c.parent, c.base, c.origin
    FROM up JOIN conversations AS c ON c.cid = up.parent WHERE up.parent < up.cid
)
SELECT * FROM up;

-- name: journal
SELECT * FROM (
    SELECT version, kind, at, first, count, data, number FROM journal
    WHERE cid = ?1 AND version > ?2 ORDER BY version LIMIT ?4
)
UNION ALL
SELECT * FROM (
    SELECT version, 'append', at, seq - batch + 1, batch, NULL, number FROM messages
    WHERE cid = ?1 AND seq >= ?3 AND batch > 0 ORDER BY seq LIMIT ?4
)
ORDER BY version LIMIT ?4;

-- name: journal_of_all
SELECT c.id, j.* FROM (
    SELECT * FROM (
        SELECT version, kind, at, first, count, data, number, cid FROM journal
        WHERE number > ?1 AND +cid IN (SELECT cid FROM conversations) ORDER BY number LIMIT ?2
    )
    UNION ALL
    SELECT * FROM (
        SELECT version, 'append', at, seq - batch + 1, batch, NULL, number, cid FROM messages
        WHERE number > ?1 AND batch > 0 ORDER BY number LIMIT ?2
    )
    ORDER BY number LIMIT ?2
) AS j
JOIN conversations AS c ON c.cid = j.cid
ORDER BY j.number;

-- What is said of a conversation, in the order of its hash.
-- name: labels
SELECT id, parent, base, origin, created, erased, title, tags, owner
FROM conversations WHERE cid = ?;

-- name: label
UPDATE conversations SET erased = ?, title = ?, tags = ?, owner = ?, hash = ? WHERE cid = ?;

-- name: token
SELECT token FROM leases WHERE cid = ?;

-- Take a lease, or renew one's own; nothing comes back where another holder has it. One of before a
-- restart of the machine is over: its clock began anew.
-- name: take_lease
INSERT INTO leases AS l (cid, holder, token, expires, lasts, boot, process)
SELECT cid, ?2, 1, ?3 + ?4, ?4, ?5, ?6 FROM conversations WHERE id = ?1
ON CONFLICT (cid) DO UPDATE
SET holder = ?2, expires = ?3 + ?4, lasts = ?4, boot = ?5, process = ?6,
    token = token + (l.holder <> ?2 OR l.boot IS NOT ?5
                     OR coalesce(?3 NOT BETWEEN l.expires - l.lasts AND l.expires - 1, TRUE))
WHERE l.holder = ?2 OR l.boot IS NOT ?5
   OR coalesce(?3 NOT BETWEEN l.expires - l.lasts AND l.expires - 1, TRUE)
RETURNING token;

-- name: lease_of
SELECT cid, holder, token, expires, process FROM leases
WHERE cid = (SELECT cid FROM conversations WHERE id = ?);

-- name: end_lease
UPDATE leases SET expires = 0 WHERE cid = ? AND token = ?;

-- name: put_record
INSERT INTO records (cid, kind, name, value, hash) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (cid, kind, name) DO UPDATE SET value = ?4, hash = ?5;

-- name: drop_record
DELETE FROM records WHERE cid = ? AND kind = ? AND name = ?;

-- name: records
SELECT name, value FROM records WHERE cid = ? AND kind = ? AND name >= ? AND name < ? ORDER BY name;

-- name: last_records
SELECT name, value FROM records WHERE cid = ? AND kind = ? AND name >= ? AND name < ?
ORDER BY name DESC LIMIT ?;

-- name: all_records
SELECT kind, name, value FROM records WHERE cid = ? ORDER BY kind, name;

-- name: kinds
SELECT DISTINCT kind FROM records WHERE cid = ? ORDER BY kind;

-- name: keys
SELECT version, key FROM journal
WHERE cid = ?1 AND key IS NOT NULL AND version > ?2 AND version <= ?3
UNION ALL
SELECT version, key FROM messages
WHERE cid = ?1 AND seq >= ?4 AND seq < ?5 AND key IS NOT NULL;

-- name: a_fork_of
SELECT id FROM conversations WHERE parent = ? LIMIT 1;

-- name: family
WITH RECURSIVE
    up (cid, parent) AS (
        SELECT cid, parent FROM conversations WHERE cid = ?
        UNION
        SELECT c.cid, c.parent FROM conversations AS c JOIN up ON c.cid = up.parent
    ),
    down (cid, id) AS (
        SELECT c.cid, c.id FROM conversations AS c JOIN up ON up.cid = c.cid WHERE up.parent IS NULL
        UNION
        SELECT c.cid, c.id FROM conversations AS c JOIN down ON c.parent = down.cid
    )
SELECT id, cid FROM down;

-- name: all_rows
SELECT number, body FROM messages WHERE cid = ?;

-- name: row_at
SELECT number, body, cid, seq, replaces, version, batch, at, key
FROM messages WHERE cid = ? AND seq = ?;

-- name: bury
UPDATE messages SET body = ?, hash = ? WHERE number = ?;

-- name: newest
SELECT max(coalesce((SELECT max(number) FROM messages), 0),
           coalesce((SELECT max(number) FROM journal), 0));

-- After a deletion: no number is given twice, or who follows the store would miss the second.
-- name: keep_counting
INSERT OR IGNORE INTO journal (number, cid, version, kind, at, first, count, stop)
SELECT ?1, 0, ?1, 'delete', 0, 0, 0, 0
WHERE NOT EXISTS (SELECT 1 FROM messages WHERE number >= ?1);

-- name: indexed
SELECT indexed FROM indexing;

-- The next messages for the search index, without their bodies: those may be large.
-- name: to_index
SELECT number, cid, hash, coalesce(octet_length(body), 0) FROM messages
WHERE number > ?1 AND number <= ?2 ORDER BY number LIMIT ?3;

-- name: body_of
SELECT body FROM messages WHERE number = ?;

-- name: index_words
INSERT INTO words (rowid, conversation, text) VALUES (?, ?, ?);

-- name: unindex_words
INSERT INTO words (words, rowid, conversation, text) VALUES ('delete', ?, ?, ?);

-- name: destroys
SELECT v FROM words_config WHERE k = 'secure-delete';

-- name: destroy
INSERT INTO words (words, rank) VALUES ('secure-delete', ?);

-- name: note_indexed
UPDATE indexing SET indexed = ?;

-- name: note_unindexed
INSERT INTO unindexed (number, indexed, reason) VALUES (?, ?, ?);

-- name: unindexed_of
SELECT indexed FROM unindexed WHERE number = ?;

-- name: forget_unindexed
DELETE FROM unindexed WHERE number = ?;

-- name: unindexed
SELECT m.seq, u.reason FROM unindexed AS u CROSS JOIN messages AS m ON m.number = u.number
WHERE m.cid = ? ORDER BY m.seq;

-- CROSS JOIN: the index is asked once, and not once for each message of a conversation. Bodies are
-- read one by one behind it, so that sorting all hits takes little room.
-- name: search
SELECT m.number, m.cid, m.seq, c.id
FROM words CROSS JOIN messages AS m ON m.number = words.rowid
CROSS JOIN conversations AS c ON c.cid = m.cid
WHERE words MATCH ?1 AND (?2 IS NULL OR c.owner = ?2) ORDER BY words.rank, m.number DESC;

-- After a deletion: what the index has ends with the last message there is.
-- name: index_again
UPDATE indexing SET indexed = min(indexed, coalesce((SELECT max(number) FROM messages), 0));

-- name: hashes
SELECT hash, body, role, rank, n_system, n_user, n_assistant, time, id, cid, seq, replaces,
       version, batch, at, key
FROM messages WHERE cid = ? AND seq >= ? AND seq < ? ORDER BY seq;

-- The same with the bodies as bytes: those of a damaged file may be no text.
-- name: hashes_of_bytes
SELECT hash, CAST(body AS BLOB), role, rank, n_system, n_user, n_assistant, time, id, cid, seq,
       replaces, version, batch, at, key
FROM messages WHERE cid = ? AND seq >= ? AND seq < ? ORDER BY seq;

-- name: orders
SELECT seq, to_latest, time, id FROM messages WHERE cid = ? AND seq >= ? AND seq < ? ORDER BY seq;

-- name: label_hash
SELECT hash, id, parent, base, origin, created, erased, title, tags, owner
FROM conversations WHERE cid = ?;

-- name: journal_hashes
SELECT 'version ' || version || ' of the journal', hash, frame, cid, version, kind, at, first,
       count, stop, data, key
FROM journal WHERE cid = ? AND version > ? ORDER BY version LIMIT ?;

-- name: record_hashes
SELECT 'the record ' || kind || ' ' || name, hash, value, cid, kind, name
FROM records WHERE cid = ? ORDER BY kind, name;

-- An encrypted store has no search index: how far it goes is below 0. See `encryption.py`.
-- name: index_is_off
SELECT indexed FROM indexing WHERE indexed < 0;

-- name: empty_index
INSERT INTO words (words) VALUES ('delete-all');

-- name: forget_all_unindexed
DELETE FROM unindexed;

-- The same content in another form, where the row is still what was read.
-- name: replace_hashes
UPDATE messages SET body = :body, hash = :hash WHERE cid = :cid AND seq = :seq AND hash = :old;

-- name: replace_journal_hashes
UPDATE journal SET data = :data, frame = :frame, hash = :hash
WHERE cid = :cid AND version = :version AND hash IS :old;

-- name: replace_record_hashes
UPDATE records SET value = :value, hash = :hash
WHERE cid = :cid AND kind = :kind AND name = :name AND hash IS :old;
