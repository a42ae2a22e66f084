-- Conversations are listed by the time of their last change. A plain append does not touch the
-- conversation's row, so `updated` there may be behind: `listed` is the number of the last message
-- that it takes into account, and is moved on before a page is read (see `listing.py`).
CREATE INDEX conversations_updated ON conversations (updated, id);
CREATE TABLE listing (listed INTEGER NOT NULL) STRICT;
INSERT INTO listing VALUES (0);
