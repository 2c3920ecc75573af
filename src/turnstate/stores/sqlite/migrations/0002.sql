-- What a session promises beside its head, so that a damaged index is noticed: the sum of the numbers of
-- its entries that are no messages, and the last entry of every branch that is not the head.

ALTER TABLE session ADD COLUMN marks INTEGER NOT NULL DEFAULT 0;
ALTER TABLE branch ADD COLUMN tip INTEGER NOT NULL DEFAULT 0;

UPDATE session
SET marks = coalesce((SELECT sum(seq) FROM entry WHERE entry.session = session.key AND kind <> 'message'), 0);
UPDATE branch
SET tip = coalesce((SELECT max(seq) FROM entry WHERE entry.session = branch.session AND entry.branch = branch.id),
                   fork_seq);
