-- Row security: a connection sees and changes only what belongs to the owner that the setting
-- `palaver.owner` names, in each transaction anew. Everything but a conversation's own row goes by the
-- conversation: only the first policy, and those of `indexing`, have to change where another rule
-- tells who somebody is. FORCE binds the owner of the tables, too; superusers and roles with
-- BYPASSRLS are not bound.
ALTER TABLE palaver.conversations ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY palaver_owner ON palaver.conversations
    USING (owner = current_setting('palaver.owner', true))
    WITH CHECK (owner = current_setting('palaver.owner', true));

ALTER TABLE palaver.messages ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY palaver_owner ON palaver.messages
    USING (EXISTS (SELECT 1 FROM palaver.conversations AS c
                   WHERE c.root = messages.root AND c.id = messages.conversation));

ALTER TABLE palaver.journal ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY palaver_owner ON palaver.journal
    USING (EXISTS (SELECT 1 FROM palaver.conversations AS c
                   WHERE c.root = journal.root AND c.id = journal.conversation));

ALTER TABLE palaver.records ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY palaver_owner ON palaver.records
    USING (EXISTS (SELECT 1 FROM palaver.conversations AS c
                   WHERE c.root = records.root AND c.id = records.conversation));

ALTER TABLE palaver.words ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY palaver_owner ON palaver.words
    USING (EXISTS (SELECT 1 FROM palaver.conversations AS c
                   WHERE c.root = words.root AND c.id = words.conversation));

-- A name is taken before its conversation is there: a new root's, or one in a family of the owner's.
ALTER TABLE palaver.names ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY palaver_owner ON palaver.names
    USING (EXISTS (SELECT 1 FROM palaver.conversations AS c
                   WHERE c.root = names.root AND c.id = names.id))
    WITH CHECK (root = id OR EXISTS (SELECT 1 FROM palaver.conversations AS c
                                     WHERE c.root = names.root));

-- How far the index of all owners goes is known to everyone.
ALTER TABLE palaver.indexing ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY palaver_owner ON palaver.indexing
    USING (owner = current_setting('palaver.owner', true))
    WITH CHECK (owner = current_setting('palaver.owner', true));
CREATE POLICY palaver_all ON palaver.indexing FOR SELECT USING (owner = '');

ALTER TABLE palaver.store ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY palaver_all ON palaver.store FOR SELECT USING (true);
