-- A fact has a history and may have a time limit; since is when it was said first.
ALTER TABLE turnstate.fact ADD COLUMN since TEXT NOT NULL DEFAULT '';
ALTER TABLE turnstate.fact ADD COLUMN until TEXT;
ALTER TABLE turnstate.fact ADD COLUMN successor TEXT;
UPDATE turnstate.fact SET since = said;

-- The newest facts of each kind, for the profile; the facts of a slot, for a claim of another value.
CREATE INDEX fact_that_holds ON turnstate.fact (owner, kind, said, id) WHERE ended IS NULL;
CREATE INDEX fact_of_slot ON turnstate.fact (owner, slot);
