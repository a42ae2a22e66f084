-- Whom a conversation belongs to. Those without an owner are not in the index.
ALTER TABLE palaver.conversations ADD COLUMN owner text COLLATE "C";
CREATE INDEX conversations_owner ON palaver.conversations (owner, updated DESC, id DESC)
WHERE owner IS NOT NULL;

-- Where row security is on, each owner's part of the full-text index is fed by its own connections.
ALTER TABLE palaver.indexing ADD COLUMN owner text NOT NULL DEFAULT '' COLLATE "C";
ALTER TABLE palaver.indexing DROP CONSTRAINT indexing_pkey, ADD PRIMARY KEY (node, owner);

-- These have other arguments or answers now.
DROP FUNCTION IF EXISTS palaver.create_conversation;
DROP FUNCTION IF EXISTS palaver.open_conversation;
