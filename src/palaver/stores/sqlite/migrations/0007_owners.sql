-- Whom a conversation belongs to. Those without an owner are not in the index.
ALTER TABLE conversations ADD COLUMN owner TEXT;
CREATE INDEX conversations_owner ON conversations (owner, updated, id) WHERE owner IS NOT NULL;
