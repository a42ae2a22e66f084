-- The functions are installed with every migration; `append_message` has one more argument now.
DROP FUNCTION IF EXISTS palaver.append_message;
