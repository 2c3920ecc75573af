"""The planted faults that `mutants.py` runs: at least three in every package.

Each text occurs exactly once in the package. It is a piece of logic, as short as it can be, and holds no
name of a module or class, no docstring and no text of an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Tests(NamedTuple):
    """Which tests to run: globs below the project, and an expression that selects by name.

    Of globs that are joined by ``|`` at least one must match: tests may be named for a module as it was
    called before or after it was moved.
    """

    paths: tuple[str, ...]
    keyword: str = ""

    def arguments(self, root: Path) -> list[str]:
        """Return the arguments for pytest; raise ``FileNotFoundError`` if a path matches nothing."""
        found = list[str]()
        for path in self.paths:
            matches = [match for glob in path.split("|") for match in sorted(root.glob(glob))]
            if not matches:
                raise FileNotFoundError(path)
            found += [str(match.relative_to(root)) for match in matches]
        return [*dict.fromkeys(found), *(["-k", self.keyword] if self.keyword else [])]

    def __str__(self) -> str:
        return " ".join(self.paths) + (f" -k {self.keyword!r}" if self.keyword else "")


class Mutant(NamedTuple):
    """A fault: what it breaks, the text to find, what takes its place, and the tests that catch it."""

    name: str
    breaks: str
    find: str
    put: str
    tests: Tests


def _tests(*paths: str, k: str = "") -> Tests:
    return Tests(paths, k)


UNIT = "tests/unit"
IDS = _tests(f"{UNIT}/test_ids.py")
CODEC = _tests(f"{UNIT}/test_codec.py")
MESSAGE = _tests(f"{UNIT}/test_message.py")
FILES = _tests(f"{UNIT}/test_durable.py|{UNIT}/test_files.py")
CALIBRATION = _tests(f"{UNIT}/tokens/test_*calibrate.py")
IMAGES = _tests(f"{UNIT}/tokens/test_*image*.py")
COST = _tests(f"{UNIT}/tokens/test_*cost.py")
EXACT = _tests(f"{UNIT}/tokens/test_*exact.py")
PAIRING = _tests(f"{UNIT}/formats/test_pairing.py")
EDITS = _tests(f"{UNIT}/formats/test_edits.py")
PARSERS = _tests("tests/properties/test_parsers.py", k="prefix or before or equal")
RULES = _tests(f"{UNIT}/formats/test_broken_documents.py")
COLLECTOR = _tests(f"{UNIT}/context/test_collect*.py", f"{UNIT}/context/test_window.py")
ROUNDS = _tests(f"{UNIT}/context/test_turns.py", f"{UNIT}/context/test_calls.py")
REDUCTION = _tests(f"{UNIT}/context/test_reduc*.py")
MEMORY_STORE = _tests("tests/contract/test_memory_store.py")
SQLITE_STORE = _tests("tests/contract/test_sqlite_store.py")
SQLITE_KEYS = _tests(f"{UNIT}/stores/test_sqlite_keys.py")
SQLITE_WRITER = _tests(f"{UNIT}/stores/test_sqlite_writer.py")
POSTGRES = _tests("tests/contract/test_postgres_store.py")
POSTGRES_INDEX = _tests("tests/integration/test_postgres_index.py")
REDIS = _tests("tests/contract/test_redis_store.py")
REDIS_CHECKS = _tests("tests/integration/test_redis_checks.py")
DAMAGED_SERVER = _tests("tests/acceptance/test_damaged_server.py")
CHECKS = _tests(f"{UNIT}/stores/test_sqlite_verif*.py")
APPEND = _tests(f"{UNIT}/session/test_append*.py")
RECORDS = _tests(f"{UNIT}/*/test_*records.py")
WINDOWS = _tests(f"{UNIT}/session/test_*windows.py")
BUDGETS = _tests(f"{UNIT}/session/test_moving_budgets.py", f"{UNIT}/session/test_windows.py")
DECISIONS = _tests(f"{UNIT}/context/test_view.py", f"{UNIT}/context/test_collector.py")
PREFACE = _tests(f"{UNIT}/context/test_preface.py")
LOADED = _tests(f"{UNIT}/session/test_loaded.py")
SOUNDNESS = _tests(f"{UNIT}/stores/test_sqlite_soundness.py")
INCOMING = _tests(f"{UNIT}/context/test_summary.py")
FOLD = _tests(f"{UNIT}/log/test_fold.py")
COMPACTION = _tests(f"{UNIT}/session/test_compaction_races.py", f"{UNIT}/session/test_compact[!_]*.py")
UNDO = _tests(f"{UNIT}/session/test_undoing.py|{UNIT}/session/test_branching.py")
GROUPS = _tests(f"{UNIT}/session/test_branching.py")
PARCELS = _tests(f"{UNIT}/session/test_parcels.py|{UNIT}/log/test_parcels.py")
EPOCHS = _tests(f"{UNIT}/session/test_*epochs.py")
LEASES = _tests(f"{UNIT}/session/test_leas*.py")
SEAL = _tests(f"{UNIT}/snapshots/test_*seal.py")
PACE = _tests(f"{UNIT}/snapshots/test_*pace.py")
RESTORED = _tests(f"{UNIT}/snapshots/test_snapshots_kept.py|{UNIT}/snapshots/test_snapshots.py")
SESSION_MODELS = _tests(f"{UNIT}/session/test_models.py")
LONG_STATES = _tests(f"{UNIT}/session/test_long_conversations.py")
LABELS = _tests(f"{UNIT}/checkpoints/test_labels.py")
CLEARING = _tests(f"{UNIT}/conversation/test_*clear*.py")
TANGENTS = _tests(f"{UNIT}/conversation/test_tangents.py")
MACHINE = _tests("tests/properties/test_machine.py", k="all_readers")
UNDO_RULE = _tests(f"{UNIT}/log/test_undo.py")
UNDO_RESTORE = _tests(f"{UNIT}/log")
VIEWS = _tests(f"{UNIT}/session/test_conversation.py", f"{UNIT}/conversation/test_views.py")
# What a random run meets once in a hundred times is caught by tests that are not random.
WRITTEN_STATES = _tests(f"{UNIT}/session/test_breaks.py")
REOPENED = _tests(f"{UNIT}/session/test_tangents.py")
AMAZON_Q_TIMES = _tests(f"{UNIT}/conversation/*/test_*times.py")
AMAZON_Q = _tests(f"{UNIT}/conversation/*/test_*read*.py")
STICKY = _tests(f"{UNIT}/sticky")
CHECKPOINTS = (f"{UNIT}/checkpoints", f"{UNIT}/shadow|{UNIT}/checkpoints", "tests/integration")
SHADOW = _tests(*CHECKPOINTS, k="hard or sorted or settled or changes_while or left_is_swept")
TRANSACTION = _tests(*CHECKPOINTS, k="overtaken or touched_later or alone_are_undone or numbers_count")
BACKOFF = _tests(f"{UNIT}/memory/test_backoff.py")
WORKER = _tests(f"{UNIT}/memory/test_delivery.py|{UNIT}/memory/test_worker.py")
HANDOVER = _tests(f"{UNIT}/memory/test_handover.py")
ENGINES = _tests("tests/contract/test_memory_engines.py", k="sqlite")
RANKING = _tests(f"{UNIT}/memory/builtin/test_ranking.py")
QUESTION = _tests(f"{UNIT}/memory/builtin/test_question.py")
FACT_RULES = _tests(f"{UNIT}/memory/rules/test_rules.py")
FACTS = _tests(f"{UNIT}/memory/builtin/test_facts.py", k="not postgres")
VECTORS = _tests(f"{UNIT}/memory/builtin/test_vectors.py")
ARCHIVE_READING = _tests(f"{UNIT}/archive/test_*read*.py")
ARCHIVE_RESTORE = _tests(f"{UNIT}/archive/test_*restor*.py")
CLI = _tests(f"{UNIT}/cli")
NAMING = _tests("tests/acceptance/test_cli_naming.py")
REPORT = _tests(f"{UNIT}/report", f"{UNIT}/log/test_replay.py")
MODELS = _tests(f"{UNIT}/models")
SESSION_CALIBRATION = _tests(f"{UNIT}/session/test_calibration.py")
TELEMETRY = _tests(f"{UNIT}/test_telemetry.py")
AGENT = _tests(f"{UNIT}/agent")
CONFIG_SOURCE = _tests(f"{UNIT}/config/test_source.py")
CONFIG_SETTINGS = _tests(f"{UNIT}/config/test_settings.py")
BINDING = _tests("tests/acceptance/test_chat_endpoint.py", k="does_not_say or never_run_here")
CONFIG_HOOKS = _tests(f"{UNIT}/config/test_hooks.py")
CONFIG_PROFILE = _tests(f"{UNIT}/config/test_profile.py")
TOOLS = _tests(f"{UNIT}/tools")
SCREEN = _tests(f"{UNIT}/terminal")
DOUBLES = _tests(f"{UNIT}/testing")
DEMO = _tests("tests/acceptance/test_cli_demo.py", k="planted_falsehood")
BLOCKING = _tests(f"{UNIT}/test_blocking.py")
CHAT = _tests("tests/acceptance/test_chat_commands.py", k="wrong_usage")
STRICT_JSON = _tests(f"{UNIT}/test_strict_json.py")

MUTANTS = (
    # Values at the top level.
    Mutant(
        "ids-derived-border",
        "derived ids do not tell where one piece of content ends and the next begins",
        'digest.update(len(piece).to_bytes(8, "big"))',
        "pass",
        IDS,
    ),
    Mutant(
        "codec-upcast",
        "documents of the first version are read without being upcast",
        "for step in range(version, VERSION):",
        "for step in range(version + 1, VERSION):",
        CODEC,
    ),
    Mutant(
        "message-call-ids",
        "a message may hold two tool calls with the same id",
        "len({call.id for call in calls}) < len(calls)",
        "len({call.id for call in calls}) > len(calls)",
        MESSAGE,
    ),
    Mutant(
        "files-fsync",
        "a new file gets its name before its bytes are on the disk",
        "        os.fsync(file)\n    except BaseException",
        "        pass\n    except BaseException",
        FILES,
    ),
    # Tokens.
    Mutant(
        "tokens-calibration-bound",
        "one absurdly low report of usage moves the factor without a bound",
        "self.factor / _STRIDE, self.factor * _STRIDE",
        "0.0, self.factor * _STRIDE",
        CALIBRATION,
    ),
    Mutant(
        "tokens-image-tiles",
        "tiles of an image that are not full are not counted",
        "-(-size.width // side) * -(-size.height // side)",
        "(size.width // side) * -(-size.height // side)",
        IMAGES,
    ),
    Mutant(
        "tokens-reply-start",
        "a request is counted without the start of its reply",
        "Count(said + REPLY_START, meter.quality)",
        "Count(said, meter.quality)",
        COST,
    ),
    Mutant(
        "tokens-jpeg-size",
        "the width of a JPEG is read as its height",
        'height, width = struct.unpack_from(">HH", data, at + 5)',
        'width, height = struct.unpack_from(">HH", data, at + 5)',
        IMAGES,
    ),
    Mutant(
        "tokens-surrogates",
        "surrogates are counted as question marks",
        "count(strict_json.clean(text))",
        'count(text.encode(errors="replace").decode())',
        EXACT,
    ),
    Mutant(
        "tokens-loaded-once",
        "every thread that waits for a vocabulary loads it again",
        "if vocabulary not in loaded:",
        "if vocabulary:",
        EXACT,
    ),
    # Formats.
    Mutant(
        "formats-newest-batch",
        "a result answers the oldest open batch of calls with its id, not the newest",
        "waiting = batches[-1]",
        "waiting = batches[0]",
        PAIRING,
    ),
    Mutant(
        "formats-id-in-use",
        "an id on the wire is used again while results still refer to its former call",
        "max(at, spoken_of.get(call.id, at))",
        "at",
        PAIRING,
    ),
    Mutant(
        "formats-negative-zero",
        "a document with -0.0 comes back with 0.0",
        " and (one != 0 or str(one) == str(other))",
        "",
        EDITS,
    ),
    Mutant(
        "formats-parser-looks-back",
        "a held parser keeps how earlier messages are written though a later item changes their ids",
        "seen.ids.items() <= scope.ids.items() and ",
        "",
        PARSERS,
    ),
    Mutant(
        "formats-parser-runs",
        "a held parser of Responses does not join an item to the run that it continues",
        "kept -= seen.ends[kept - 1] == same",
        "kept -= 0",
        PARSERS,
    ),
    Mutant(
        "formats-parser-types",
        "a held parser takes 1, 1.0 and true for the same",
        "return marshal.dumps(value, 2)",
        "return repr(sorted(map(hash, value.values()) if isinstance(value, dict) else [])).encode()",
        PARSERS,
    ),
    Mutant(
        "formats-tool-name",
        "a long tool name stays longer than providers take",
        "[: LONGEST_NAME - len(mark)] + mark",
        "[:LONGEST_NAME] + mark",
        PAIRING,
    ),
    # Rules of providers.
    Mutant(
        "rules-anthropic-first",
        "a conversation that the assistant begins passes Anthropic's rules",
        'if turns and turns[0].role not in ("user", "system"):',
        'if turns and turns[0].role not in ("user", "assistant"):',
        RULES,
    ),
    Mutant(
        "rules-gemini-call-place",
        "a function call after the model's own turn passes Gemini's rules",
        'elif calls and before != "user":',
        "elif calls and before is None:",
        RULES,
    ),
    Mutant(
        "rules-openai-answered-twice",
        "a second answer to one call passes OpenAI's rules",
        "        elif self._open[id]:\n",
        "        elif id in self._open:\n",
        RULES,
    ),
    Mutant(
        "rules-bedrock-alternation",
        "two neighbors of one role pass Bedrock's rules",
        "elif role == before:",
        'elif role == before == "assistant":',
        RULES,
    ),
    # Context.
    Mutant(
        "context-cut-of-one-limit",
        "a recorded cut is used under no other limit than its own",
        "near = [cut for cut in tried if policy.are_near(cut.limit, limit)]",
        "near = [cut for cut in tried if cut.limit == limit]",
        DECISIONS,
    ),
    Mutant(
        "context-cuts-forgotten",
        "a new cut carries none of those that serve other budgets",
        "return (*carried, *given[place:])",
        "return tuple(given[place:])",
        DECISIONS,
    ),
    Mutant(
        "context-scale-moves",
        "what is shown of a long output moves with the budget",
        "named_scale(in_force(decisions), limit, policy) or limit)",
        "limit)",
        DECISIONS,
    ),
    Mutant(
        "context-known-outputs-share-nothing",
        "outputs whose counts are known do not share the limit of their group",
        'return items[index - 1].role != "tool" and (after is None or after.role != "tool")',
        "return True",
        LOADED,
    ),
    Mutant(
        "context-recall-in-front",
        "recalled memory stands before all messages and costs the prompt cache",
        "recall is not None and bool(tally.turns) and tally.turns[-1] >= view.kept",
        "False",
        PREFACE,
    ),
    Mutant(
        "context-summary-in-place",
        "a summary that comes in is sent where it stood, beside the next one",
        'if message.kind == "summary":\n            self.summaries.append(message)',
        "if message.kind is NotImplemented:\n            self.summaries.append(message)",
        INCOMING,
    ),
    Mutant(
        "context-room-for-summary",
        "the collector forgets that the summary takes room, too",
        "return int(self.limit * share) - self.preface - self.cap",
        "return int(self.limit * share) - self.preface",
        COLLECTOR,
    ),
    Mutant(
        "context-pinned-question",
        "a cut inside a turn loses the question that opened it",
        "return (question,) if question >= view.kept or question in view.pinned else ()",
        "return ()",
        COLLECTOR,
    ),
    Mutant(
        "context-second-answer",
        "a second, different result takes the place of the first",
        "if owner is not None and before is None:",
        "if owner is not None:",
        ROUNDS,
    ),
    Mutant(
        "context-share-of-batch",
        "the outputs of a batch get a token more than fits",
        "room, key=used) - 1)",
        "room, key=used))",
        REDUCTION,
    ),
    Mutant(
        "context-call-order",
        "answers are sent in the order of arrival",
        "view += [message, *in_call_order(message, answers)]",
        "view += [message, *answers]",
        ROUNDS,
    ),
    # Stores: admission, and the store in memory.
    Mutant(
        "admission-fence",
        "a worker whose lease was taken over may still write",
        "if change.fence is not None and change.fence != row.fence:",
        "if change.fence is not None and change.fence > row.fence:",
        MEMORY_STORE,
    ),
    Mutant(
        "admission-key-life",
        "an idempotency key is remembered for ever",
        "return change.now - self.created < change.key_life",
        "return True",
        MEMORY_STORE,
    ),
    Mutant(
        "sqlite-key-gaps",
        "a process that is started with a clock years ahead forgets idempotency keys",
        '"step": LONGEST_STEP',
        '"step": 1 << 62',
        SQLITE_KEYS,
    ),
    Mutant(
        "admission-epoch-fence",
        "the holder of a lease on an ended epoch can write to the next",
        "        fence=row.fence + change.next_epoch,",
        "        fence=row.fence,",
        MEMORY_STORE,
    ),
    Mutant(
        "memory-page-border",
        "a page leaves out sessions that began in the millisecond of the last one",
        "found = [row for row in found if row.mark(order) < after]",
        "found = [row for row in found if row.mark(order).moment < after.moment]",
        MEMORY_STORE,
    ),
    Mutant(
        "memory-newest-rows",
        "a limited read of the newest entries returns the oldest",
        "return rows[len(rows) - limit :] if newest else rows[:limit]",
        "return rows[:limit]",
        MEMORY_STORE,
    ),
    Mutant(
        "memory-search-user",
        "a search returns messages of other users",
        "if user is not None and sessions[entry.at].row.user != user:",
        "if user is not None and sessions[entry.at].row.user is None:",
        MEMORY_STORE,
    ),
    # Stores: SQLite.
    Mutant(
        "sqlite-savepoint",
        "a refused job of a batch leaves what it had written",
        'db.execute("ROLLBACK TO job")',
        "pass",
        SQLITE_WRITER,
    ),
    Mutant(
        "sqlite-answer-before-commit",
        "writers are answered before the commit",
        "                self._commit(batch)\n                _answer(batch)",
        "                _answer(batch)\n                self._commit(batch)",
        SQLITE_WRITER,
    ),
    Mutant(
        "sqlite-slow-disk-in-the-loop",
        "commits are made in the loop's thread even if the disk stalls",
        "QUICK_COMMITS) if is_quick else 0",
        "QUICK_COMMITS) if is_quick else QUICK_COMMITS",
        SQLITE_WRITER,
    ),
    Mutant(
        "sqlite-blind-beyond-the-head",
        "entries after the head that a session promises are not noticed",
        "if beyond and rows and rows[0 if newest else -1].seq > place.seq:",
        "if False:",
        SOUNDNESS,
    ),
    Mutant(
        "sqlite-blind-to-short-indexes",
        "sessions that an index has lost are missing from lists, and no error says so",
        "if not sessions == by_id == by_creation == by_user or expiring != by_expiry:",
        "if False:",
        SOUNDNESS,
    ),
    Mutant(
        "sqlite-claimed-tries",
        "tries of a parcel are not counted, so it is never parked",
        "UPDATE outbox SET due = :until, tries = tries + 1 WHERE id = :id;",
        "UPDATE outbox SET due = :until WHERE id = :id;",
        SQLITE_STORE,
    ),
    Mutant(
        "sqlite-leased-is-not-idle",
        "a session that a worker holds is ended as idle",
        "expires <= :now AND lease_until <= :now - idle",
        "expires <= :now",
        SQLITE_STORE,
    ),
    # Stores: PostgreSQL.
    Mutant(
        "postgres-key-digest",
        "another request under a used key gets the first answer",
        "IF known.digest = key_digest THEN",
        "IF true THEN",
        POSTGRES,
    ),
    Mutant(
        "postgres-epoch-fence",
        "the holder of a lease on an ended epoch can write to the next",
        "        fence = s.fence + next_epoch::int,",
        "        fence = s.fence,",
        POSTGRES,
    ),
    Mutant(
        "postgres-expected-head",
        "a write that expects another head is taken",
        " OR (asked_branch, asked_seq) <> (own.branch, own.seq)",
        "",
        POSTGRES,
    ),
    Mutant(
        "postgres-late-commit",
        "what commits after a higher key was indexed is never found",
        "        if not waiting:\n            self._waiting, self._unsettled = None, 0",
        "        if True:\n            self._waiting, self._unsettled = None, 0",
        POSTGRES_INDEX,
    ),
    # Stores: Redis.
    Mutant(
        "redis-entries-beyond-their-branches",
        "a session whose branches do not lead to all of its entries is read without them",
        "not sum(sizes) - MAX_LOST <= entries <= sum(sizes)",
        "False",
        REDIS_CHECKS,
    ),
    Mutant(
        "redis-export-by-lists",
        "a session that is missing from a list is silently missing from an export",
        "if isinstance(store, FindsSessions):",
        "if False:",
        DAMAGED_SERVER,
    ),
    Mutant(
        "redis-renewed-fence",
        "a lease that was taken over can be renewed",
        "if kept[1] ~= fence then",
        "if tonumber(kept[1]) < tonumber(fence) then",
        REDIS,
    ),
    Mutant(
        "redis-fork-place",
        "a fork from an entry that does not exist is taken",
        "if seq < 0 or seq > last then",
        "if seq < 0 then",
        REDIS,
    ),
    Mutant(
        "redis-entry-ids",
        "an entry with an id that the log holds is written again",
        "if fresh[id] or call('HEXISTS', IDS, id) == 1 then",
        "if fresh[id] then",
        REDIS,
    ),
    # Stores: verification.
    Mutant(
        "checks-missing-end",
        "a lost last entry is not reported",
        "if is_last and self._seq < last:",
        "if is_last and self._seq < last - 1:",
        CHECKS,
    ),
    Mutant(
        "checks-running-total",
        "a running total that is too low is not reported",
        "if before + tokens != seen.total:",
        "if before + tokens < seen.total:",
        CHECKS,
    ),
    Mutant(
        "checks-token-count",
        "an entry whose token count alone was changed is set aside as damaged",
        "counts = (seen.tokens, seen.total - before)",
        "counts = (seen.tokens,)",
        CHECKS,
    ),
    # Session: append and records.
    Mutant(
        "append-other-branch",
        "what was written on another branch is taken for the known path",
        "if (receipt.branch, receipt.first) != (head.branch, head.seq + 1):",
        "if receipt.first != head.seq + 1:",
        WINDOWS,
    ),
    Mutant(
        "records-digest-time",
        "a retry with a rebuilt message is refused as another request",
        'if key not in ("id", "timestamp")',
        'if key not in ("id",)',
        RECORDS,
    ),
    Mutant(
        "records-digest-calls",
        "a retry whose results name rebuilt calls is refused as another request",
        'own.get(result["tool_call_id"], result["tool_call_id"])',
        'result["tool_call_id"]',
        RECORDS,
    ),
    Mutant(
        "append-refusal-of-retry",
        "a repeated request whose results are known by now is refused",
        "    if key is None:\n        raise refusal\n",
        "    raise refusal\n",
        APPEND,
    ),
    # Session: windows.
    Mutant(
        "windows-foreign-cut",
        "a window is made from what another budget needed",
        "return bool(cuts) and all(map(loaded.holds, cuts))",
        "return bool(cuts)",
        BUDGETS,
    ),
    Mutant(
        "models-stale-handle",
        "a handle that missed a change of model counts in the former counter",
        "expected_version=expected_version, expected_head=after\n",
        "expected_version=expected_version\n",
        SESSION_MODELS,
    ),
    Mutant(
        "models-foreign-counts",
        "counts of another counter are used in a window",
        "others = max(0, loaded.counted_from - live.length)",
        "others = 0",
        SESSION_MODELS,
    ),
    Mutant(
        "models-branch-counter",
        "a branch is recounted in the counter of the session, not of its model",
        "counter=self._counter_at(line.parent, line.fork),",
        "counter=self.counter,",
        SQLITE_STORE,
    ),
    Mutant(
        "windows-lost-and-replaced",
        "a window shows what a store has lost, if as much was written since",
        "if row.seq > loaded.head.seq or row.active != loaded.active:",
        "if row.seq > loaded.head.seq:",
        WINDOWS,
    ),
    Mutant(
        "windows-head-went-back",
        "a session whose head went back is shown as before",
        "if row.branch != loaded.head.branch or row.seq < loaded.head.seq:",
        "if row.branch != loaded.head.branch:",
        WINDOWS,
    ),
    Mutant(
        "windows-compact-race",
        "a compaction is written over another cut that was made meanwhile",
        "if loaded.cut != base or not _is_there(plan.cut, loaded):",
        "if not _is_there(plan.cut, loaded):",
        COMPACTION,
    ),
    # Session: undo.
    Mutant(
        "undo-former-cut",
        "after an undo the cut before does not hold again",
        "former=former.seq if former else 0)",
        "former=0)",
        UNDO,
    ),
    Mutant(
        "operations-inside-round",
        "a path may end between calls and their answers",
        "return None if self._calls <= self._answered else self._first",
        "return None",
        GROUPS,
    ),
    Mutant(
        "operations-open-calls",
        "a clearing leaves calls open",
        "given = [Answer.give(call.id, CANCELLED) for call in open_calls(newest_round)]",
        "given = list[Answer]()",
        MACHINE,
    ),
    Mutant(
        "operations-former-cut",
        "after an undone compaction, no cut is in force",
        "return (yield from at(path, mark.entry.former)) if mark.entry.former else None",
        "return None",
        UNDO,
    ),
    Mutant(
        "tangents-question",
        "the tail of a tangent has an answer without its question",
        "found = [*_beyond(question, there), exchange.calls, *answers, last]",
        "found = [exchange.calls, *answers, last]",
        MACHINE,
    ),
    Mutant(
        "tangents-exit",
        "that a tangent was left is not written",
        "entries=(exit, *brought), select=former.id",
        "entries=tuple(brought), select=former.id",
        MACHINE,
    ),
    Mutant(
        "tangents-pending",
        "what waits in the main conversation is brought again",
        "return [message for message in messages if message.id not in there]",
        "return list(messages)",
        MACHINE,
    ),
    Mutant(
        "undo-mark",
        "that an exit was undone is not written",
        "entries=(Tangent(name=found.name, undone=found.number),),",
        "entries=(),",
        MACHINE,
    ),
    Mutant(
        "undo-order-of-marks",
        "an exit that was undone after a later one is undone again",
        "        for one in marks\n",
        "        for one in marks[-1:]\n",
        UNDO_RULE,
    ),
    Mutant(
        "undo-former",
        "a revert does not name the cut that holds again",
        "former=former.seq if former else 0",
        "former=0",
        UNDO,
    ),
    Mutant(
        "operate-stale",
        "an operation writes what it made of a version that others have changed",
        "select=effect.select, expected_head=row.head",
        "select=effect.select, expected_head=None",
        MACHINE,
    ),
    Mutant(
        "operate-elsewhere",
        "an operation is done on a branch that it was not meant for",
        "if conflict.head[0] != row.branch and not anywhere:",
        "if False:",
        MACHINE,
    ),
    Mutant(
        "operate-counter",
        "what a tangent brings back is counted under the model of the tangent",
        "effect.after or row.head",
        "row.head",
        MACHINE,
    ),
    Mutant(
        "view-in-force",
        "a view forgets what is in force from before it",
        "(one := marks.get(kind)) is not None and one.seq < first and",
        "(one := marks.get(kind)) is not None and one.seq > first and",
        MACHINE,
    ),
    Mutant(
        "view-half-exchange",
        "a view begins with an answer without its question",
        "_newest_part(path, start, most)",
        "_newest_part(between(path, start, END), start, most)",
        VIEWS,
    ),
    Mutant(
        "view-other-summary",
        "a view shows the summary of another cut",
        "isinstance(one.entry, Summary) and one.entry.cut == cut.id",
        "isinstance(one.entry, Summary)",
        VIEWS,
    ),
    Mutant(
        "documents-past-tangent",
        "a document of nested tangents loses the main conversation",
        "ends = [*accumulate([tangent.fork_seq for tangent in view.open], min)][::-1]",
        "ends = [tangent.fork_seq for tangent in view.open][::-1]",
        VIEWS,
    ),
    Mutant(
        "compaction-unknown-end",
        "a compaction is refused if only windows have the answer that it ends with",
        "ids = [cut.kept_from or cut.covers[1], *cut.pinned]",
        "ids = [cut.kept_from or cut.covers[1], *cut.pinned, cut.covers[1]]",
        COMPACTION,
    ),
    Mutant(
        "undo-not-a-restore",
        "any branch can be undone as a restore",
        'if branch.operation == "restore" and branch.former is not None:',
        "if branch.former is not None:",
        UNDO_RESTORE,
    ),
    # The random machine, for sessions and states.
    Mutant(
        "machine-undone-twice",
        "what was undone is undone again",
        "            case Revert(at=at):\n                last = min(last, at - 1)",
        "            case Revert():\n                pass",
        MACHINE,
    ),
    Mutant(
        "machine-exit-twice",
        "a tangent that was left and entered again is entered once more",
        "(one.entry.name, one.entry.undone) == (exit.name, number)",
        "one.entry.undone < 0",
        MACHINE,
    ),
    Mutant(
        "machine-reopened",
        "a tangent that is left by reopening another is not recorded as left",
        "if not opened or here.head.branch in {one.former for one in around(known, target)}:",
        "if True:",
        REOPENED,
    ),
    Mutant(
        "machine-left-branch",
        "a tangent is reopened as it began, and not as it was left",
        "Tangent(name=tangent.name, branch=here.head.branch,",
        "Tangent(name=tangent.name, branch=tangent.id,",
        MACHINE,
    ),
    Mutant(
        "machine-branch-settings",
        "a conversation keeps the settings of the branch that it left",
        "            self._folded = None\n            self._apply_settings()",
        "            self._folded = None",
        MACHINE,
    ),
    Mutant(
        "machine-reverted",
        "what the collector decided on top of a compaction holds after its undo",
        "holding[start:] = [one for one in holding[start:] if isinstance(one, Answer)]",
        "del holding[start]",
        _tests(f"{UNIT}/conversation/test_clear.py", f"{UNIT}/log/test_fold.py"),
    ),
    # Session: outbox and leases.
    Mutant(
        "outbox-parcel-tenant",
        "parcels of two tenants with the same session id are one",
        "names = (body.kind, at.tenant, at.session, str(epoch), event)",
        "names = (body.kind, at.session, str(epoch), event)",
        PARCELS,
    ),
    Mutant(
        "outbox-evicted-since",
        "a cut hands over again what cuts for a smaller budget did",
        "end = max(self._archived_before(cut), self.first_kept(cut))",
        "end = self.first_kept(cut)",
        FOLD,
    ),
    Mutant(
        "outbox-ended-twice",
        "the history of an ended epoch goes to the memory engine again",
        "if not newest or row.ended is not None:",
        "if not newest:",
        EPOCHS,
    ),
    Mutant(
        "leases-renewal",
        "a lease is renewed after it has run out",
        "await asyncio.sleep(seconds / 3)",
        "await asyncio.sleep(seconds * 3)",
        LEASES,
    ),
    Mutant(
        "leases-milliseconds",
        "a lease ends a thousand times too early",
        "return max(1, int(seconds * 1000))",
        "return max(1, int(seconds))",
        LEASES,
    ),
    Mutant(
        "leases-no-time",
        "a lease of no time at all is taken",
        "least=0, most=LONGEST, above=True)",
        "least=0, most=LONGEST)",
        LEASES,
    ),
    # Snapshots.
    Mutant(
        "snapshots-other-session",
        "a snapshot that was signed for another session is restored",
        "if written_for != session:",
        "if not written_for:",
        SEAL,
    ),
    Mutant(
        "snapshots-foreign",
        "a snapshot that another installation wrote is restored without trust",
        'if verdict.snapshot and (trust or verdict.state == "own"):',
        "if verdict.snapshot:",
        RESTORED,
    ),
    Mutant(
        "snapshots-clock",
        "no snapshot is written while the clock is behind",
        "return self._every - passed if passed >= 0 else 0.0",
        "return self._every - passed",
        PACE,
    ),
    # Conversation.
    Mutant(
        "conversation-uncovered",
        "words that waited before a clearing are lost when it is undone",
        "self.pending = hidden.pending + self.pending",
        "self.pending = tuple(self.pending)",
        CLEARING,
    ),
    Mutant(
        "states-cap",
        "a conversation over the cap goes on without a cut",
        "while self._is_over_cap():",
        "while False:",
        _tests(f"{UNIT}/conversation/test_history.py"),
    ),
    Mutant(
        "session-cap",
        "a session that no state wrote shows more exchanges than a state holds",
        "if window.tally.exchanges(window.view.kept) > MAX_CONVERSATION_STATE_HISTORY_LEN:",
        "if False:",
        LONG_STATES,
    ),
    Mutant(
        "cap-beside",
        "a cut at the cap ends the cuts that start after it",
        "return structs.replace(cut, beside=carried)",
        "return cut",
        LONG_STATES,
    ),
    Mutant(
        "states-stale-plan",
        "a compaction that was planned before a clearing is made",
        "self._check_plan(plan)",
        "pass",
        CLEARING,
    ),
    Mutant(
        "checkpoints-interrupted-turn",
        "the turn after an interrupted one continues its number",
        "return Numbers(turn + 1, 0) if interrupted and tools else Numbers(turn, tools)",
        "return Numbers(turn, tools)",
        LABELS,
    ),
    # Conversation: documents of Amazon Q.
    Mutant(
        "amazon-q-offset",
        "times west of Greenwich are read as east of it",
        'return local + offset if found["offset"].startswith("-") else local - offset',
        "return local - offset",
        AMAZON_Q_TIMES,
    ),
    Mutant(
        "amazon-q-error",
        "a failed tool is read as one that succeeded",
        'is_error=document["status"] == "Error",',
        'is_error=document["status"] == "error",',
        AMAZON_Q,
    ),
    Mutant(
        "amazon-q-day",
        "the start of a tangent is read a day too late",
        "timedelta(days=day - 1)",
        "timedelta(days=day)",
        AMAZON_Q_TIMES,
    ),
    # Sticky files.
    Mutant(
        "sticky-same-tick",
        "a file that changed in the tick in which it was read is not read again",
        "changed < self.at - TICK",
        "changed <= self.at",
        STICKY,
    ),
    Mutant(
        "sticky-once",
        "a file that two paths name is sent twice",
        "if file.real not in seen:",
        "if file.shown not in seen:",
        STICKY,
    ),
    Mutant(
        "sticky-limit",
        "files exceed the limit by one",
        "        if total > limit:\n            break\n        kept.add(index)",
        "        kept.add(index)\n        if total > limit:\n            break",
        STICKY,
    ),
    # Checkpoints: the shadow repository.
    Mutant(
        "shadow-tree-order",
        "git trees are sorted wrongly when a folder and a file begin alike",
        'leaf.name + b"/" if leaf.mode == FOLDER else leaf.name',
        "leaf.name",
        SHADOW,
    ),
    Mutant(
        "shadow-same-tick",
        "a file that changed again in the same tick is not read again",
        "return stamp.changed + tick < begun",
        "return stamp.changed < begun",
        SHADOW,
    ),
    Mutant(
        "shadow-not-swept",
        "an open repository trusts its folder, whatever another process left in it",
        "if not opening and known == RepositoryState.current(git, suspect=self._suspect):",
        "if not opening and known is not None:",
        SHADOW,
    ),
    Mutant(
        "shadow-hard-restore",
        "a hard restore removes files that no checkpoint holds",
        "unwanted = files & before.files.keys()",
        "unwanted = set(files)",
        SHADOW,
    ),
    Mutant(
        "shadow-changed-meanwhile",
        "a restore overwrites a file that changed after it began",
        'elif found.kind == "nothing" or found.matches(put.before) or found.matches(put.entry):',
        "elif found.kind:",
        SHADOW,
    ),
    # Checkpoints: the transaction over files and conversation.
    Mutant(
        "transaction-not-placed",
        "a restore that was cut off before its files were placed is called finished",
        "if await self._is_done(intent) and (intent.placed or not intent.files):",
        "if await self._is_done(intent):",
        TRANSACTION,
    ),
    Mutant(
        "transaction-went-on",
        "a restore that was cut off is finished although others went on",
        "is_unchanged = intent.head == head and is_possible",
        "is_unchanged = is_possible",
        TRANSACTION,
    ),
    Mutant(
        "transaction-undone",
        "a restore that was undone is undone again",
        "elif number not in undone:",
        "else:",
        TRANSACTION,
    ),
    Mutant(
        "transaction-labels",
        "tools of the turn under way count as a turn",
        "turn -= 1 if number[2] else 0",
        "turn -= 0",
        TRANSACTION,
    ),
    # Memory engines.
    Mutant(
        "memory-backoff",
        "the first wait is four times as long as it should be",
        "FACTOR ** max(0, tries - 1)",
        "FACTOR ** max(0, tries)",
        BACKOFF,
    ),
    Mutant(
        "memory-most-tries",
        "a parcel is tried once too often before it is parked",
        "if parcel.tries >= self._most_tries:",
        "if parcel.tries > self._most_tries:",
        WORKER,
    ),
    Mutant(
        "memory-written-once",
        "a delivery that comes again is written again",
        "for (message,) in rows:\n        del new[message]",
        "for (message,) in rows:\n        new.get(message)",
        ENGINES,
    ),
    Mutant(
        "memory-evicted-from",
        "an eviction hands over the whole path before it",
        "places.get(eviction.first, 1)",
        "1",
        HANDOVER,
    ),
    # Archives.
    Mutant(
        "archive-id-twice",
        "an archive that holds an id twice is accepted",
        "if line.id and line.id in known:",
        "if not line.id and line.id in known:",
        ARCHIVE_READING,
    ),
    Mutant(
        "archive-version",
        "an imported session whose last batch is not full ends with another version",
        "moves += -(-branch.entries // BATCH)",
        "moves += branch.entries // BATCH",
        ARCHIVE_RESTORE,
    ),
    Mutant(
        "archive-entry-id",
        "an archived entry whose message has another id is accepted",
        "if isinstance(decoded, Message) and decoded.id != line.id:",
        "if isinstance(decoded, Message) and not decoded.id:",
        ARCHIVE_READING,
    ),
    # Command line.
    Mutant(
        "report-escapes",
        "marks that reorder text reach the page",
        "return escape(harmless(text))",
        "return escape(text)",
        REPORT,
    ),
    Mutant(
        "report-branches",
        "what is beside the path is not on the page",
        "if one[0].seq > branch.upto]",
        "if one[0].seq < branch.upto]",
        REPORT,
    ),
    Mutant(
        "report-replay",
        "a replayed request is compared with nothing",
        "window = self._show()\n        self._live.sent(window)",
        "window = self._show()",
        REPORT,
    ),
    Mutant(
        "cli-short-names",
        "a script destroys a session that it named by a beginning",
        "    if asks:\n        return await session(",
        "    if not asks:\n        return await session(",
        NAMING,
    ),
    Mutant(
        "cli-force",
        "a file is replaced without --force",
        "if mode is not None and stat.S_ISREG(mode) and not force:",
        "if mode is None and not force:",
        CLI,
    ),
    Mutant(
        "cli-jsonl",
        "one document on several lines is read as JSONL",
        "_is_complete(second), named)) >= 2",
        "_is_complete(second), named)) >= 1",
        CLI,
    ),
    Mutant(
        "cli-moments",
        "a date without a zone is read in the zone of the machine",
        "aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)",
        "aware = moment",
        SCREEN,
    ),
    # Models.
    Mutant(
        "models-unfinished",
        "an answer that was broken off counts as complete",
        "        if self.reason is None:\n            return None",
        "        if self.reason is None and not self._words:\n            return None",
        MODELS,
    ),
    Mutant(
        "models-torn-characters",
        "a character that came in two pieces is lost",
        '"".join(pieces).encode("utf-16-le", "surrogatepass")',
        '"".join(pieces).encode("utf-16-le", "replace")',
        MODELS,
    ),
    Mutant(
        "models-thought-ends",
        "two signed thoughts are one",
        "isinstance(last, ReasoningPart) and last.signature is None:",
        "isinstance(last, ReasoningPart):",
        MODELS,
    ),
    Mutant(
        "models-half-kept",
        "what had arrived of an answer stays when its request is sent again",
        "            case Retried():\n                self._begin()",
        "            case Retried():\n                pass",
        MODELS,
    ),
    Mutant(
        "models-retry-date",
        "a date in Retry-After is not read",
        "return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())",
        "raise",
        MODELS,
    ),
    Mutant(
        "models-key-shown",
        "the key that a provider repeats is in the text of its error",
        'text = text.replace(secret, "…")',
        "text = text[:]",
        MODELS,
    ),
    Mutant(
        "models-cache-marks",
        "the turns before the current one are not marked for the cache",
        "ends = {last, turns[-1] - 1} if turns else {last}",
        "ends = {last}",
        MODELS,
    ),
    Mutant(
        "models-cache-look-back",
        "a round with many blocks hides the previous request from the cache",
        "            ends.add(place)\n    return {place for place in ends if place >= 0}",
        "            pass\n    return {place for place in ends if place >= 0}",
        _tests("tests/properties/test_prompt_caches.py"),
    ),
    Mutant(
        "turn-calibration-jumps",
        "the budget follows every report instead of moving in steps",
        "is_due = is_cut or abs(wanted / self.applied - 1) > BAND",
        "is_due = True",
        CALIBRATION,
    ),
    Mutant(
        "turn-calibration-lost",
        "what was learned of other models is forgotten with each reply",
        "recorded = dict(others[-MOST_MODELS + 1 :])",
        "recorded = dict(others[:0])",
        SESSION_CALIBRATION,
    ),
    Mutant(
        "telemetry-text",
        "spans have the text of conversations though nobody asked for it",
        'os.environ.get(_CAPTURE, "").lower() == "true"',
        'os.environ.get(_CAPTURE, "true").lower() == "true"',
        TELEMETRY,
    ),
    # The agent and its tools.
    Mutant(
        "agent-uncertain",
        "a tool that may have run already runs again",
        "if call.id in turn.uncertain and not (known and known.idempotent):",
        "if call.id in turn.uncertain and known is None:",
        AGENT,
    ),
    Mutant(
        "agent-too-long",
        "a request that is too long is compacted again and again, or never",
        "                if attempt == 2:\n                    raise",
        "                if attempt == 1:\n                    raise",
        AGENT,
    ),
    Mutant(
        "agent-repeats",
        "a model that repeats itself is not stopped",
        "len(last) == self._limits.repeats and len(set(last)) == 1",
        "len(last) == self._limits.repeats and len(set(last)) == 0",
        AGENT,
    ),
    Mutant(
        "agent-lines",
        "what the line tracker learned is forgotten with the process",
        "if new := self.tracking.unrecorded:",
        "if not (new := self.tracking.unrecorded):",
        _tests("tests/integration/test_checkpoint_lines.py", f"{UNIT}/agent/test_files.py"),
    ),
    Mutant(
        "agent-missed-checkpoint",
        "a checkpoint that a run was interrupted before is never taken",
        "if pending is None or not pending.answered:",
        "if pending is None or pending.answered:",
        _tests(f"{UNIT}/agent", "tests/integration/test_agent_files.py"),
    ),
    Mutant(
        "agent-cost",
        "what was cached costs as much as the rest",
        "cached * (rates.input if rates.cached is None else rates.cached)",
        "cached * rates.input",
        AGENT,
    ),
    Mutant(
        "subagent-again",
        "a sub-agent that is run again begins anew",
        "agent.resume() if begun else agent.run(task, key=context.call.id)",
        "agent.run(task)",
        AGENT,
    ),
    Mutant(
        "turn-cancelled",
        "a step that is cancelled is saved at some later time",
        "    except asyncio.CancelledError:\n        await asyncio.wait([task])\n",
        "    except asyncio.CancelledError:\n",
        _tests(f"{UNIT}/session/test_turn.py"),
    ),
    Mutant(
        "mcp-children",
        "processes that a server started stay",
        "os.killpg(group, how)",
        "os.kill(group, how)",
        _tests("tests/integration/test_mcp.py", k="cancelled or hangs"),
    ),
    Mutant(
        "tools-deny",
        "an answer of the user lifts a prohibition of the settings",
        'if "deny" in settings | answers:',
        'if "deny" in settings & answers:',
        TOOLS,
    ),
    Mutant(
        "summary-usage",
        "what a request for a summary used is shown as that of the last reply",
        "case Usage() if self.history and entry.is_of_reply:",
        "case Usage() if self.history:",
        _tests(f"{UNIT}/session/test_compaction.py"),
    ),
    Mutant(
        "tools-literal-paths",
        "a path that the user approved is taken as a pattern, and allows others",
        "Rule(escape(tool.name), decision, escape(path), digest)",
        "Rule(tool.name, decision, path, digest)",
        TOOLS,
    ),
    Mutant(
        "tools-all-paths",
        "an approval for one path lets a call touch another as well",
        "covered = all(",
        "covered = any(",
        TOOLS,
    ),
    Mutant(
        "tools-malformed",
        "a call whose arguments are not an object runs the tool with its defaults",
        "return None if call.unparsed is None else",
        "return None if call.args is not None else",
        TOOLS,
    ),
    Mutant(
        "tools-started",
        "a call is recorded as started before the user is asked",
        "        if refusal:\n            return _error(call, refusal)\n"
        "        if starting is not None and not found.idempotent:\n            await starting(call)\n",
        "        if starting is not None and not found.idempotent:\n            await starting(call)\n"
        "        if refusal:\n            return _error(call, refusal)\n",
        TOOLS,
    ),
    Mutant(
        "chat-unseen",
        "yes can be said to what was not shown",
        '{"m": f"show {count:,} of them", "e": "show all of them", **refusals}',
        '{"m": f"show {count:,} of them", "e": "show all of them", "y": "yes", **refusals}',
        _tests(f"{UNIT}/chat"),
    ),
    Mutant(
        "tools-secrets",
        "a command gets the secrets of the environment",
        "if any(fnmatchcase(name, pattern) for pattern in patterns)",
        "if patterns",
        TOOLS,
    ),
    Mutant(
        "tools-output-limit",
        "an output of any size goes into the log",
        "if size <= self._output_limit:",
        "if size >= self._output_limit or size:",
        TOOLS,
    ),
    # The terminal, the demo, the test kit, and the API without await.
    Mutant(
        "cli-kit-controls",
        "an escape sequence reaches the terminal",
        "cut = visible(_ends(text, limit), _escaped_character)",
        "cut = _ends(text, limit)",
        SCREEN,
    ),
    Mutant(
        "cli-kit-wide",
        "columns with wide characters do not line up",
        "widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]",
        "widths = [max(map(len, column)) for column in zip(*cells, strict=True)]",
        SCREEN,
    ),
    Mutant(
        "cli-kit-places",
        "an error names its places in the wrong order",
        '[*reversed(getattr(error, "__notes__", [])), str(error)]',
        '[*getattr(error, "__notes__", []), str(error)]',
        SCREEN,
    ),
    Mutant(
        "demo-claims",
        "a claim of the demo that does not hold passes",
        "        if not holds:\n            self.false.append(text)",
        "        if not holds and self.false:\n            self.false.append(text)",
        DEMO,
    ),
    Mutant(
        "demo-restored",
        "the demo compares a restored conversation with itself",
        "holds=after == before,",
        "holds=after == after,",
        DEMO,
    ),
    Mutant(
        "testing-order",
        "a valid conversation leaves a batch without some of its results",
        "        results = results[size:]",
        "        results = results[size + 1 :]",
        DOUBLES,
    ),
    Mutant(
        "testing-script",
        "a scripted model says one reply twice",
        "self._replies[number - 1], request",
        "self._replies[number - 2], request",
        DOUBLES,
    ),
    Mutant(
        "testing-hold",
        "a model that is held answers at once",
        "        if self._hold is not None:",
        "        if self._hold is None:",
        DOUBLES,
    ),
    Mutant(
        "blocking-cancel",
        "Ctrl-C leaves the work behind a blocking call running",
        "        if self._task is not None:\n            self._task.cancel()",
        "        if self._task is None:\n            return",
        BLOCKING,
    ),
    Mutant(
        "strict-json-depth",
        "a document may be nested one level deeper than the limit",
        "if depth >= max_depth and isinstance(node, dict | list | tuple):",
        "if depth > max_depth and isinstance(node, dict | list | tuple):",
        STRICT_JSON,
    ),
    Mutant(
        "config-link",
        "a configuration file of a workspace may be a link",
        'refuse_links = os.O_NOFOLLOW if place == "workspace" else 0',
        "refuse_links = 0",
        CONFIG_SOURCE,
    ),
    Mutant(
        "plain-text-category",
        "characters that nobody sees are shown as they are",
        "unicodedata.category(character) in _HIDDEN or",
        'unicodedata.category(character) == "Cc" or',
        _tests(f"{UNIT}/test_plain_text.py"),
    ),
    Mutant(
        "turn-answer",
        "a request that is repeated by its key gets the answer of the last turn",
        '(message := _message(entry)) and message.role == "user":',
        '(message := _message(entry)) and message.role == "system":',
        _tests(f"{UNIT}/session/test_turn.py", k="own_answer"),
    ),
    Mutant(
        "config-foreign",
        "a file of another user counts as one's own",
        "return file.foreign or key not in FREE",
        "return key not in FREE",
        CONFIG_SETTINGS,
    ),
    Mutant(
        "config-free",
        "a file that is not approved chooses the store",
        '= {"model": _is_plain_name}',
        '= {"model": _is_plain_name, "store": bool}',
        CONFIG_SETTINGS,
    ),
    Mutant(
        "binding-signature",
        "a foreign store says where its sessions are sent",
        "return binding if is_ours else None",
        "return binding",
        BINDING,
    ),
    Mutant(
        "binding-folder",
        "calls that another folder left open run here",
        "known is None or not known.is_in(self.workspace)",
        "known is None",
        BINDING,
    ),
    Mutant(
        "config-trust",
        "an approval holds for any content of the file",
        "+ name + content).hexdigest()",
        "+ name).hexdigest()",
        CONFIG_SETTINGS,
    ),
    Mutant(
        "config-agent",
        "an agent of a workspace needs no approval",
        'file.place == "workspace" and not Trust(home)',
        'file.place == "user" and not Trust(home)',
        CONFIG_PROFILE,
    ),
    Mutant(
        "config-hook",
        "a hook that fails lets a call run",
        'return ToolCallResult.of(call.id, f"{error}; {outcome}", is_error=True)',
        "continue",
        CONFIG_HOOKS,
    ),
    Mutant(
        "demo-files",
        "the demo does not look at the files that it restored",
        "holds=_contents(tree) == files,",
        "holds=bool(files),",
        DEMO,
    ),
    Mutant(
        "chat-usage",
        "a command of the chat that is used wrongly does not say what is wrong",
        'reason = f"{wrong}; " if str(wrong) else ""',
        'reason = ""',
        CHAT,
    ),
    Mutant(
        "chat-near",
        "a misspelt command of the chat is not recognized",
        "near = begun or difflib.get_close_matches(name, COMMANDS, n=3)",
        "near = begun",
        CHAT,
    ),
    Mutant(
        "chat-reopened",
        "a tangent that is not there is reopened",
        "not 1 <= place <= len(kept)",
        "not 1 <= place",
        CHAT,
    ),
    Mutant(
        "chat-line-mode",
        "a key that is typed while something is printed is lost",
        "keys.cooked_mode = nullcontext  # type: ignore[method-assign]",
        "pass",
        _tests(f"{UNIT}/chat/test_terminal.py"),
    ),
    Mutant(
        "append-result-twice",
        "two results of one call that come together are both stored",
        "len(set(results)) == len(results)",
        "True",
        _tests(f"{UNIT}/session/test_answers.py"),
    ),
    Mutant(
        "append-closed-call",
        "a result of a call that awaits none is stored",
        "self._open.issuperset(results)",
        "True",
        _tests(f"{UNIT}/session/test_parsed_ids.py"),
    ),
    # The built-in memory engine.
    Mutant(
        "engine-late-delivery",
        "a delivery that was on its way brings back what was forgotten",
        "marked is not None and marked >= batch.since",
        "False",
        ENGINES,
    ),
    Mutant(
        "facts-of-others",
        "what is said of somebody else becomes a fact about the user",
        "is_own = is_subject or (persists and not other)",
        "is_own = True",
        FACT_RULES,
    ),
    Mutant(
        "facts-questions",
        "what is asked in the last clause becomes a fact",
        "        parts.pop()\n",
        "        pass\n",
        FACT_RULES,
    ),
    Mutant(
        "facts-orders",
        "an order to the assistant becomes a fact",
        "if is_secret(part.sentence) or is_order(part.sentence):",
        "if is_secret(part.sentence):",
        FACT_RULES,
    ),
    Mutant(
        "facts-forgotten",
        "a forgotten fact is learned again from what was said before",
        "if at is None or claim.said >= timestamp(at):",
        "if True:",
        FACTS,
    ),
    Mutant(
        "facts-proposals",
        "with an extractor, what rules propose is stored as well",
        "if not await self._store(user, session, since, found, ()):",
        "if not await self._store(user, session, since, found, claims):",
        FACTS,
    ),
    Mutant(
        "engine-neighbors",
        "a turn is found through turns of another session",
        "if place is None or around.sessions[place] != turn.session:",
        "if place is None:",
        RANKING,
    ),
    Mutant(
        "engine-term-twice",
        "a turn with a term twice is a better candidate than one with it once",
        "for number in set(self._lists[term]):",
        "for number in self._lists[term]:",
        RANKING,
    ),
    Mutant(
        "engine-first-name",
        "of two names in a question neither selects the author",
        "named[:1] if is_about_one else named",
        "named",
        QUESTION,
    ),
    Mutant(
        "engine-passages",
        "a turn counts as a passage of itself",
        "near[starts[counts > 1]] = 0",
        "pass",
        VECTORS,
    ),
    Mutant(
        "cli-private",
        "a new file of results can be read by everybody",
        "opener=_private",
        "opener=None",
        CLI,
    ),
)
