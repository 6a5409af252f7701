"""One search at a time in a project directory."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import json
import os
import pathlib
import socket
import sys
import types
import weakref

from keras_tpu_kit.errors import Finding, SearchError

LOCK_NAME = ".search.lock"


@dataclasses.dataclass(frozen=True)
class Holder:
    """Who searches in a directory.

    Args:
        host: Name of its machine.
        pid: Number of its process there.
        since: When it began, ISO 8601.
        command: How it was started.
    """

    host: str
    pid: int
    since: str
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} ({self.command}, since {self.since})"


class ProjectLock:
    """Holds a project directory for one search; the kernel lets go of it when the process ends.

    The lock is the operating system's own (`flock`), so a killed search leaves nothing to clean
    up: a lock file that nobody holds is simply taken. On NFS it is the server's, which lets go of
    a machine that died after its lease, usually 90 seconds.

    Args:
        directory: The project's directory; it is made where it is missing.

    Example:

    ```python
    with ProjectLock("searches/mnist"):
        ...
    ```
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(directory) / LOCK_NAME
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object holds the directory."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Takes the directory.

        Raises:
            SearchError: `project-in-use`, naming host and process of the search that holds it,
                or `project-cannot-be-locked`.
        """
        if self.is_held:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise SearchError(_cannot_lock(self.path, error)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise SearchError(_in_use(self.path)) from None
            raise SearchError(_cannot_lock(self.path, error)) from error
        self._descriptor = descriptor
        _held.add(self)
        # On a full disk the name does not fit; the lock holds all the same, and what has to be
        # saved will say that the disk is full.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(dataclasses.asdict(_this_process())).encode(), 0)

    def release(self) -> None:
        """Lets go of the directory; the file stays, empty."""
        if self._descriptor is None:
            return
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        self._close()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            _held.discard(self)

    def __enter__(self) -> ProjectLock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self.release()


def refuse_if_in_use(directory: str | os.PathLike[str]) -> None:
    """Raises where another search holds a directory; for those that want to delete it.

    Raises:
        SearchError: `project-in-use`.
    """
    if (pathlib.Path(directory) / LOCK_NAME).exists():
        with ProjectLock(directory):
            pass


def holder(directory: str | os.PathLike[str]) -> Holder | None:
    """Returns who wrote itself into a directory's lock file, `None` where nobody did."""
    try:
        return Holder(**json.loads((pathlib.Path(directory) / LOCK_NAME).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _in_use(path: pathlib.Path) -> Finding:
    owner = holder(path.parent) or "another process that has not written its name yet"
    return Finding(
        "project-in-use",
        "error",
        f"The project {str(path.parent)!r} is being searched by {owner}.",
        "Two searches in one directory would overwrite each other's trials.",
        "Wait for it, stop it, or pass another project_name; to share the work of one search, "
        "start it with `keras-tpu-kit search MODULE:make_tuner --workers N`.",
    )


def _cannot_lock(path: pathlib.Path, error: OSError) -> Finding:
    return Finding(
        "project-cannot-be-locked",
        "error",
        f"{str(path)!r} cannot be locked: {error.strerror or error}.",
        "Without a lock nothing keeps a second search from mixing its files with these.",
        "Pass a directory that you may write to, on a local disk with room or on an NFS mount "
        "whose server keeps locks.",
    )


def _this_process() -> Holder:
    began = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Holder(socket.gethostname(), os.getpid(), began, " ".join(sys.argv)[:200] or "python")


_held: weakref.WeakSet[ProjectLock] = weakref.WeakSet()


def _let_go_in_child() -> None:
    """Closes a forked child's copies, which would hold the lock after the search has died."""
    for lock in list(_held):
        lock._close()


os.register_at_fork(after_in_child=_let_go_in_child)
