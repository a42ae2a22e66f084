-- Why the index does not have a message, or only in part.
ALTER TABLE palaver.words ADD COLUMN reason text;
CREATE INDEX words_reason ON palaver.words (conversation, seq) WHERE reason IS NOT NULL;
