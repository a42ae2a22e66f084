-- Every row can be proved: a hash over what stands in it (see `sealing.py`). Rows that are there have
-- none, and messages one that is over their position and body; they stay as they are.
ALTER TABLE conversations ADD COLUMN hash INTEGER;  -- over what never moves: id, parent, title, …
ALTER TABLE journal ADD COLUMN hash INTEGER;
ALTER TABLE records ADD COLUMN hash INTEGER;

-- Words are taken apart otherwise (see `words.py`): the index is fed again, before the next search.
INSERT INTO words (words) VALUES ('delete-all');
UPDATE indexing SET indexed = 0;
