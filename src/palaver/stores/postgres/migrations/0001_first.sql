-- The first schema. The conversation's id leads every key, nothing refers from one conversation to
-- another but by name, and no number is drawn from a sequence: the tables can be partitioned and
-- sharded by it. Names sort by their bytes ("C"), as they do in every other store.

-- The lease stands in the row that every change updates: whoever takes it thereby waits for the
-- change under way, and a change that comes later sees the new token.
CREATE TABLE palaver.conversations (
    size          bigint   NOT NULL,
    created       bigint   NOT NULL,
    updated       bigint   NOT NULL,
    lease_token   bigint   NOT NULL DEFAULT 0,
    lease_expires bigint   NOT NULL DEFAULT 0,
    version       integer  NOT NULL,
    stop          integer  NOT NULL,
    length        integer  NOT NULL,
    n_system      integer  NOT NULL,
    n_user        integer  NOT NULL,
    n_assistant   integer  NOT NULL,
    framed        integer  NOT NULL,
    base          integer  NOT NULL,
    origin        integer  NOT NULL,
    erased        integer  NOT NULL DEFAULT 0,
    id            text     NOT NULL COLLATE "C" PRIMARY KEY,
    parent        text     COLLATE "C",
    title         text,
    lease_holder  text,
    tags          text[]   NOT NULL
);
CREATE INDEX conversations_updated ON palaver.conversations (updated DESC, id DESC);
CREATE INDEX conversations_parent ON palaver.conversations (parent) WHERE parent IS NOT NULL;

-- n_… : how many messages of a role the log has before this one; ordinal: how many of its own role.
CREATE TABLE palaver.messages (
    time         bigint   NOT NULL,
    hash         bigint   NOT NULL,
    seq          integer  NOT NULL,
    ordinal      integer  NOT NULL,
    n_system     integer  NOT NULL,
    n_user       integer  NOT NULL,
    n_assistant  integer  NOT NULL,
    replaces     integer,
    role         smallint NOT NULL,
    conversation text     NOT NULL COLLATE "C",
    id           text     NOT NULL COLLATE "C",
    body         text     NOT NULL,
    PRIMARY KEY (conversation, seq)
);
CREATE UNIQUE INDEX messages_role ON palaver.messages (conversation, role, ordinal);
CREATE INDEX messages_id ON palaver.messages (conversation, id);
CREATE INDEX messages_time ON palaver.messages (conversation, time);

-- number: the transaction's own, see `following.py`; attempt: whose change it is, for whoever lost
-- the connection before the answer came.
CREATE TABLE palaver.journal (
    number       bigint   NOT NULL,
    at           bigint   NOT NULL,
    attempt      bigint   NOT NULL,
    version      integer  NOT NULL,
    first        integer  NOT NULL,
    count        integer  NOT NULL,
    stop         integer  NOT NULL,
    conversation text     NOT NULL COLLATE "C",
    kind         text     NOT NULL,
    key          text     COLLATE "C",
    data         text,
    frame        bytea,
    PRIMARY KEY (conversation, version)
);
CREATE UNIQUE INDEX journal_key ON palaver.journal (conversation, key) WHERE key IS NOT NULL;
CREATE INDEX journal_frames ON palaver.journal (conversation, version) WHERE frame IS NOT NULL;
CREATE INDEX journal_number ON palaver.journal (number);

CREATE TABLE palaver.records (
    conversation text  NOT NULL COLLATE "C",
    kind         text  NOT NULL COLLATE "C",
    name         text  NOT NULL COLLATE "C",
    value        bytea NOT NULL,
    PRIMARY KEY (conversation, kind, name)
);

-- The full-text index is fed behind the writes: `indexed` is the last journal number it has. Its row
-- is also the lock of everyone who writes the index.
CREATE TABLE palaver.words (
    time         bigint   NOT NULL,
    seq          integer  NOT NULL,
    conversation text     NOT NULL COLLATE "C",
    words        tsvector NOT NULL,
    PRIMARY KEY (conversation, seq)
);
CREATE INDEX words_words ON palaver.words USING gin (words) WITH (fastupdate = off);
CREATE TABLE palaver.indexing (indexed bigint NOT NULL);
INSERT INTO palaver.indexing VALUES (0);
