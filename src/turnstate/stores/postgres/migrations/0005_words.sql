-- Words leave the rows of entries: an append does not write them, and a row is never updated.
-- The functions have other arguments since this step, so processes that were started before have to be restarted.

DROP FUNCTION IF EXISTS turnstate.add_entries;
DROP FUNCTION IF EXISTS turnstate.create_session;
DROP FUNCTION IF EXISTS turnstate.append;

LOCK TABLE turnstate.entry;

-- A message is indexed if it has a row here, with NULL if it has no words.
CREATE TABLE turnstate.word (
    entry bigint PRIMARY KEY,
    words tsvector
);

INSERT INTO turnstate.word (entry, words) SELECT key, words FROM turnstate.entry WHERE kind = 'message';

CREATE INDEX word_by_words ON turnstate.word USING gin (words) WHERE words IS NOT NULL;

-- Every message up to this key is indexed, and no transaction can commit another one below it.
CREATE TABLE turnstate.indexed (
    through bigint NOT NULL
);

INSERT INTO turnstate.indexed (through) SELECT coalesce(max(key), 0) FROM turnstate.entry;

ALTER TABLE turnstate.entry DROP COLUMN words;
