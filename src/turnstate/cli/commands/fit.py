"""``turnstate fit``: shorten conversations to a token budget and keep them valid."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click

from ... import catalog, tokens
from ...context import Budget, Policy, StateManager
from ...context.fit import FILL, Fitted, fitted_document
from ...context.summary_text import LANGUAGES, Language
from ...errors import ContextOverflow, InvalidConversation
from ...formats.port import Format
from ...plain_text import counted
from ...terminal import screen
from ...tokens import Counter
from .. import destination, documents, options
from ..documents import Conversation, walk
from .count import DEFAULT_COUNTER
from .validate import described

MAX_PER_KIND = 20
"""Lines of one kind per conversation: a malformed document may have thousands of violations."""


@click.command("fit", epilog=options.EPILOG)
@options.files
@options.input_format
@click.option("--budget", type=click.IntRange(1), metavar="N", help="Tokens for the whole request.")
@options.model_option("Count as this model; without --budget, fit its window.")
@click.option(
    "--output-reserve",
    type=click.IntRange(0),
    metavar="N",
    help="Tokens of the budget to leave for the answer.  [default: 0, or the maximum output of --model]",
)
@click.option(
    "--counter", metavar="NAME", help=f"The counter to use.  [default: the --model's, or {DEFAULT_COUNTER}]"
)
@click.option(
    "--keep-turns", type=click.IntRange(1), metavar="N", help="Newest turns to keep complete.  [default: 5]"
)
@click.option("--strict", is_flag=True, help="Fail if these turns do not fit, instead of cutting them.")
@click.option(
    "--summary-template", metavar="TEXT", help="Text for the omitted turns; contains {summary} once."
)
@click.option("--language", type=click.Choice(LANGUAGES), default="en", help="Language of the digest.")
@click.option("--report", metavar="FILE", help="Write what was done, and why, to this file as JSON.")
@click.option("-o", "--output", metavar="FILE", help="Write to this file, atomically.")
@click.option("--force", is_flag=True, help="Replace the --output and --report files if they exist.")
@click.option("--quiet", is_flag=True, help="Do not report what was done.")
@click.option("--keep-going", is_flag=True, help="Report every bad line of a JSONL file and continue.")
def command(
    files: tuple[str, ...],
    source: Format,
    budget: int | None,
    model: str | None,
    output_reserve: int | None,
    counter: str | None,
    keep_turns: int | None,
    strict: bool,
    summary_template: str | None,
    language: Language,
    report: str | None,
    output: str | None,
    force: bool,
    quiet: bool,
    keep_going: bool,
) -> int:
    """Make a conversation fit a token budget, in the same format and valid for the provider.

    FILE is a JSON document (a list of messages, or an object that contains one) or JSONL with one
    conversation, or one message, per line; without it, or with -, standard input is read. The system prompt,
    the tool definitions and all other fields stay. Long tool output is shortened, old output
    hidden, the oldest turns are left out, and one message summarizes them. Calls keep their
    results. An invalid conversation is repaired; a valid one that fits is written unchanged. One
    that cannot fit is reported with the numbers and not written, and the exit code is 1.

    \b
    Example:
      turnstate fit --budget 8000 messages.json
      turnstate fit --model gpt-4o --report report.json < messages.json
      turnstate fit --format anthropic --budget 8000 -o out.jsonl in.jsonl

    \b
    With --report, one object per conversation:
      id, line            the document's own id, and its line in the JSONL
      format, counter     its provider format, and the counter used
      budget              the token limit of the request
      changed             false if it was written unchanged
      tokens_before, tokens_after, messages_before, messages_after
      quality             exact or estimated
      usage               how the tokens are spent, and how many are free
      events              what the collector did, step by step
      evicted_messages    number of messages left out
      summary             the text that replaces them
      hidden, reduced     calls whose output is hidden or shortened
      violations          what the provider would have rejected
      repairs             how that was repaired
      error               why nothing was written, instead of the rest
    """
    limits = _budget(budget, model, output_reserve)
    _refuse_one_place(output, report)
    policy = _policy(keep_turns, strict, summary_template, language)
    manager = StateManager(_counter(counter, model), policy)
    with ExitStack() as places:
        write = places.enter_context(_opened(output, force=force))
        record = places.enter_context(_opened(report, force=force)) if report else None
        fitting = _Fitting(source, manager, limits, quiet, write, record)
        result = walk(files, source, fitting.fit, keep_going=keep_going)
    if result.bad > fitting.unfit:
        return 2
    return 1 if fitting.unfit else 0


def _budget(budget: int | None, model: str | None, reserve: int | None) -> Budget:
    if budget is not None:
        return Budget(budget, output=reserve or 0)
    if model is None:
        raise click.UsageError("pass --budget, or --model to fit its context window")
    found = catalog.model(model)
    return Budget.of(found) if reserve is None else Budget(found.context_window, output=reserve)


def _counter(counter: str | None, model: str | None) -> Counter:
    if model and not counter:
        return tokens.counter_for(model)
    return tokens.counter(counter or DEFAULT_COUNTER)


def _policy(keep_turns: int | None, strict: bool, template: str | None, language: Language) -> Policy:
    turns = keep_turns or Policy().lock_turns
    return Policy(
        low_water=FILL,
        strict=strict,
        lock_turns=turns,
        lock_turns_at_most=max(turns, Policy().lock_turns_at_most),
        language=language,
        summary_template=Policy().summary_template if template is None else template,
    )


def _refuse_one_place(output: str | None, report: str | None) -> None:
    """Raise if results and report would go to the same file."""
    places = {"-" if path in (None, "-") else os.path.realpath(str(path)) for path in (output, report)}
    if report and len(places) == 1:
        raise click.UsageError("the result and the report cannot go to the same place")


class _Elsewhere(Exception):
    """Carries an error about another file through a context manager that would blame its own file."""


@contextmanager
def _opened(path: str | None, *, force: bool) -> Iterator[destination.Write]:
    """Open one of two destinations; do not report an error about the other one as an error about this one."""
    failure: OSError | None = None
    with suppress(_Elsewhere), destination.opened(path, force=force) as write:
        try:
            yield write
        except OSError as error:
            failure = error
            raise _Elsewhere from None
    if failure:
        raise failure


@dataclass
class _Fitting:
    """Fits and writes conversations, and counts those that cannot fit."""

    source: Format
    manager: StateManager
    budget: Budget
    quiet: bool
    write: destination.Write
    record: destination.Write | None
    unfit: int = 0

    def fit(self, conversation: Conversation) -> None:
        """Fit and write one conversation, and report what was done."""
        try:
            result = fitted_document(conversation.payload, self.source, self.manager, self.budget)
        except (ContextOverflow, InvalidConversation) as error:
            self.unfit += 1
            self._report(conversation, {"error": str(error)})
            raise
        self.write(_written(result.payload, conversation))
        sizes = {
            "messages_before": documents.size(conversation.payload, self.source),
            "messages_after": documents.size(result.payload, self.source),
        }
        self._report(conversation, {**sizes, **result.to_json()})
        if not self.quiet and result.window:
            self._say(conversation.where, result)

    def _report(self, conversation: Conversation, outcome: dict[str, Any]) -> None:
        if self.record:
            fields = {
                **conversation.place,
                "format": self.source.name,
                "counter": self.manager.counter.name,
                "budget": self.budget.limit,
                **outcome,
            }
            self.record(_written(fields, conversation))

    def _say(self, where: str, result: Fitted) -> None:
        now = f"{result.before.tokens:,} tokens are now {result.after.tokens:,} of {self.budget.limit:,}"
        done = "; ".join(_steps(result))
        screen.say(f"{where}: {now}{f': {done}' if done else ''}")
        invalid = (f"was invalid: {described(violation)}" for violation in result.violations)
        repaired = (f"repaired: {repair.text} ({repair.id})" for repair in result.repairs)
        _say_some(where, invalid, len(result.violations))
        _say_some(where, repaired, len(result.repairs))


def _steps(result: Fitted) -> Iterator[str]:
    """Yield short descriptions of what was done."""
    if not result.window:
        return
    yield from result.window.report.events
    if evicted := result.window.report.evicted:
        yield f"{counted(evicted, 'message')} left out"
    if shortened := len(result.reduced):
        yield f"{counted(shortened, 'output')} shortened"


def _say_some(where: str, remarks: Iterable[str], count: int) -> None:
    for remark in islice(remarks, MAX_PER_KIND):
        screen.say(f"{where}: {remark}")
    if count > MAX_PER_KIND:
        screen.say(f"{where}: and {count - MAX_PER_KIND:,} more like this; --report lists all of them")


def _written(value: Any, conversation: Conversation) -> str:
    return documents.compact(value) if conversation.many else documents.indented(value)
