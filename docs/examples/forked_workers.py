"""Worker processes that are forked from one that has a store open: each opens a store of its own.

python forked_workers.py [URL]
"""

import multiprocessing
import sys
import tempfile

from turnstate import Message, blocking
from turnstate.errors import WrongProcess

WORKERS = 3


def work(url: str, number: int) -> None:
    """Append in a store of this process."""
    with blocking.SessionManager.open(url) as sessions:
        sessions.open_or_create(f"session {number}").append(Message.user(f"from worker {number}"))


def wrong(session: blocking.Session) -> None:
    """Append with a handle of the parent."""
    try:
        session.append(Message.user("lost"))
    except WrongProcess as error:
        print(f"the parent's handle in a child: {type(error).__name__}", flush=True)


def main(url: str) -> None:
    """Start the workers while the store is open here, and read what they wrote."""
    fork = multiprocessing.get_context("fork")
    with blocking.SessionManager.open(url) as sessions:
        own = sessions.create()
        workers = [fork.Process(target=work, args=(url, number)) for number in range(WORKERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for number in range(WORKERS):
            (message,) = sessions.open(f"session {number}").messages()
            print(f"session {number}: {message.text}", flush=True)
        child = fork.Process(target=wrong, args=(own,))
        child.start()
        child.join()
        own.append(Message.user("the parent goes on"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/agent.db")
