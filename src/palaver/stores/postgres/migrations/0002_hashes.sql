-- Every row can be proved: a hash over what stands in it (see `sealing.py`). Rows that are there have
-- none, and messages one that is over their position and body; they stay as they are.
ALTER TABLE palaver.conversations ADD COLUMN hash bigint;  -- over what never moves: id, title, …
ALTER TABLE palaver.journal ADD COLUMN hash bigint;
ALTER TABLE palaver.records ADD COLUMN hash bigint;

-- Words are taken apart otherwise (see `words.py`): the index is fed again, before the next search.
TRUNCATE palaver.words;
UPDATE palaver.indexing SET indexed = 0;
