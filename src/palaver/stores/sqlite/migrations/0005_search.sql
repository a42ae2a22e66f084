-- The search index knows the conversation of a message, so that a search within one conversation does
-- not have to look at the hits of all others; its column has no weight in the ranking. Words are cut
-- at a length: the index is fed again, before the next search.
DROP TABLE words;
CREATE VIRTUAL TABLE words USING fts5 (
    conversation, text, content = '', tokenize = 'unicode61 remove_diacritics 2'
);
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
INSERT INTO words (words, rank) VALUES ('rank', 'bm25(0.0, 1.0)');
UPDATE indexing SET indexed = 0;

-- Messages that the index does not have (`indexed` is 0), or only in part, and why.
CREATE TABLE unindexed (
    number  INTEGER PRIMARY KEY,
    indexed INTEGER NOT NULL,
    reason  TEXT    NOT NULL
) STRICT;
