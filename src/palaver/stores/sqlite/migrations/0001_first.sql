-- The first schema. Message rows lie in a plain rowid table: the body is in the leaf itself, and the
-- unique index beside it is small.

-- A conversation as its last journal record left it. Plain appends do not touch this row: they are
-- the messages after it.
CREATE TABLE conversations (
    cid         INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice: processes remember it
    id          TEXT    NOT NULL UNIQUE,
    version     INTEGER NOT NULL,
    stop        INTEGER NOT NULL,
    length      INTEGER NOT NULL,
    n_system    INTEGER NOT NULL,
    n_user      INTEGER NOT NULL,
    n_assistant INTEGER NOT NULL,
    framed      INTEGER NOT NULL,
    size        INTEGER NOT NULL,
    parent      INTEGER REFERENCES conversations (cid),
    base        INTEGER NOT NULL,
    origin      INTEGER NOT NULL,
    title       TEXT,
    tags        TEXT    NOT NULL,
    created     INTEGER NOT NULL,
    updated     INTEGER NOT NULL,
    erased      INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX conversations_parent ON conversations (parent) WHERE parent IS NOT NULL;

-- A message, and where it is the last of a plain append, that append's journal record too: `batch`
-- says how many messages came with it, and is 0 for all other rows.
-- n_… : how many messages of a role the log has before this one; ordinal: how many of its own role.
-- `number` counts the rows of this table and of `journal` together, in the order they came.
CREATE TABLE messages (
    number      INTEGER PRIMARY KEY,
    cid         INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    batch       INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    role        INTEGER NOT NULL,
    ordinal     INTEGER NOT NULL,
    n_system    INTEGER NOT NULL,
    n_user      INTEGER NOT NULL,
    n_assistant INTEGER NOT NULL,
    time        INTEGER NOT NULL,
    replaces    INTEGER,
    hash        INTEGER NOT NULL,
    key         TEXT,
    id          TEXT    NOT NULL,
    body        TEXT    NOT NULL
) STRICT;
CREATE UNIQUE INDEX messages_seq ON messages (cid, seq);
CREATE UNIQUE INDEX messages_role ON messages (cid, role, ordinal);
CREATE INDEX messages_id ON messages (id);
CREATE INDEX messages_time ON messages (cid, time);
CREATE UNIQUE INDEX messages_key ON messages (cid, key) WHERE key IS NOT NULL;

-- Every change that is no plain append.
CREATE TABLE journal (
    number  INTEGER PRIMARY KEY,
    cid     INTEGER NOT NULL,
    version INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    first   INTEGER NOT NULL,
    count   INTEGER NOT NULL,
    stop    INTEGER NOT NULL,
    data    TEXT,
    key     TEXT,
    frame   BLOB
) STRICT;
CREATE UNIQUE INDEX journal_version ON journal (cid, version);
CREATE UNIQUE INDEX journal_key ON journal (cid, key) WHERE key IS NOT NULL;

CREATE TABLE leases (
    cid     INTEGER PRIMARY KEY,
    holder  TEXT    NOT NULL,
    token   INTEGER NOT NULL,
    expires INTEGER NOT NULL
) STRICT;

CREATE TABLE records (
    cid   INTEGER NOT NULL,
    kind  TEXT    NOT NULL,
    name  TEXT    NOT NULL,
    value BLOB    NOT NULL,
    PRIMARY KEY (cid, kind, name)
) STRICT, WITHOUT ROWID;

-- The full-text index is fed behind the writes: `indexed` is the last message number it has.
CREATE VIRTUAL TABLE words USING fts5 (text, content = '', tokenize = 'unicode61 remove_diacritics 2');
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
CREATE TABLE indexing (indexed INTEGER NOT NULL) STRICT;
INSERT INTO indexing VALUES (0);
