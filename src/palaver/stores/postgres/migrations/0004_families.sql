-- A family (a conversation and everything that was forked from it) is one shard: the id of its first
-- ancestor, `root`, leads every primary key, so that the tables can be distributed by it. `names`
-- finds the root of an id and makes ids unique; it is distributed by the id, so that the name of a
-- conversation that was not forked lies beside its rows.
--
-- It locks all tables until it is done, and writes every row anew. Their size is needed once more on
-- disk; autovacuum or VACUUM FULL gives it back.
SET LOCAL statement_timeout = 0;

CREATE TABLE palaver.names (
    id   text NOT NULL COLLATE "C" PRIMARY KEY,
    root text NOT NULL COLLATE "C"
);
LOCK TABLE palaver.conversations, palaver.messages, palaver.journal, palaver.records, palaver.words,
           palaver.store IN ACCESS EXCLUSIVE MODE;
WITH RECURSIVE down (id, root) AS (
    SELECT id, id FROM palaver.conversations AS c
    WHERE parent IS NULL
       OR NOT EXISTS (SELECT 1 FROM palaver.conversations AS p WHERE p.id = c.parent)
    UNION ALL
    SELECT c.id, down.root FROM down JOIN palaver.conversations AS c ON c.parent = down.id
)
INSERT INTO palaver.names SELECT id, root FROM down;
INSERT INTO palaver.names SELECT id, id FROM palaver.conversations  -- damaged rows that go in a circle
ON CONFLICT DO NOTHING;

ALTER TABLE palaver.conversations DROP CONSTRAINT conversations_pkey;
ALTER TABLE palaver.conversations ADD COLUMN root text COLLATE "C";
UPDATE palaver.conversations AS c SET root = n.root FROM palaver.names AS n WHERE n.id = c.id;
ALTER TABLE palaver.conversations ALTER COLUMN root SET NOT NULL, ADD PRIMARY KEY (root, id);

-- The other indexes need no root: an id is of one family.
DROP INDEX palaver.messages_role, palaver.messages_id, palaver.messages_time;
ALTER TABLE palaver.messages DROP CONSTRAINT messages_pkey;
ALTER TABLE palaver.messages ADD COLUMN root text COLLATE "C";
UPDATE palaver.messages AS m
SET root = coalesce((SELECT n.root FROM palaver.names AS n WHERE n.id = m.conversation),
                    m.conversation);
ALTER TABLE palaver.messages ALTER COLUMN root SET NOT NULL,
    ADD PRIMARY KEY (root, conversation, seq);
CREATE INDEX messages_role ON palaver.messages (conversation, role, ordinal);
CREATE INDEX messages_id ON palaver.messages (conversation, id);
CREATE INDEX messages_time ON palaver.messages (conversation, time);

-- node: where the number was drawn; a server that is not part of a cluster is 0.
DROP INDEX palaver.journal_key, palaver.journal_frames, palaver.journal_number;
ALTER TABLE palaver.journal DROP CONSTRAINT journal_pkey;
ALTER TABLE palaver.journal ADD COLUMN root text COLLATE "C",
    ADD COLUMN node integer NOT NULL DEFAULT 0;
UPDATE palaver.journal AS j
SET root = coalesce((SELECT n.root FROM palaver.names AS n WHERE n.id = j.conversation),
                    j.conversation);
ALTER TABLE palaver.journal ALTER COLUMN root SET NOT NULL,
    ADD PRIMARY KEY (root, conversation, version);
CREATE UNIQUE INDEX journal_key ON palaver.journal (root, conversation, key) WHERE key IS NOT NULL;
CREATE INDEX journal_frames ON palaver.journal (conversation, version) WHERE frame IS NOT NULL;
CREATE INDEX journal_number ON palaver.journal (node, number);

ALTER TABLE palaver.records DROP CONSTRAINT records_pkey;
ALTER TABLE palaver.records ADD COLUMN root text COLLATE "C";
UPDATE palaver.records AS r
SET root = coalesce((SELECT n.root FROM palaver.names AS n WHERE n.id = r.conversation),
                    r.conversation);
ALTER TABLE palaver.records ALTER COLUMN root SET NOT NULL,
    ADD PRIMARY KEY (root, conversation, kind, name);

ALTER TABLE palaver.words DROP CONSTRAINT words_pkey;
ALTER TABLE palaver.words ADD COLUMN root text COLLATE "C";
UPDATE palaver.words AS w
SET root = coalesce((SELECT n.root FROM palaver.names AS n WHERE n.id = w.conversation),
                    w.conversation);
ALTER TABLE palaver.words ALTER COLUMN root SET NOT NULL,
    ADD PRIMARY KEY (root, conversation, seq);

-- How far the full-text index has come, for each node of a cluster.
ALTER TABLE palaver.indexing ADD COLUMN node integer NOT NULL DEFAULT 0 PRIMARY KEY;
