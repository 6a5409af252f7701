"""Files that are whole or not there: written beside, synced, renamed, the last version kept."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from keras_tpu_kit.errors import Finding, SearchError

PREVIOUS = ".previous"
TEMPORARY = ".partial"

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclasses.dataclass(frozen=True)
class Reading:
    """What could be read of a file.

    Args:
        value: The JSON value, `None` where nothing was readable.
        damage: What was wrong with the file, as the end of a sentence; `None` where it was whole
            or never written.
        is_previous: Whether `value` is the version before the last.
    """

    value: Any
    damage: str | None = None
    is_previous: bool = False


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes a JSON file that a reader finds whole at any moment, and keeps the one before.

    The new version is written beside the old one, brought to the disk and renamed over it, so
    a process that dies at any point leaves one of the two. The old one stays as
    `<name>.previous`.

    Args:
        path: Where; its directory exists.
        value: What `json.dumps` takes.

    Raises:
        SearchError: `project-disk-full`, with the file as it was before.
    """
    target = pathlib.Path(path)
    text = json.dumps(value)
    with replaced(target) as partial:
        partial.write_text(text, encoding="utf-8")


def make_directory(path: str | os.PathLike[str]) -> None:
    """Makes a directory and those above it, where they are missing.

    Raises:
        SearchError: `project-disk-full`.
    """
    try:
        pathlib.Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise_if_disk_full(error, path)
        raise


@contextlib.contextmanager
def replaced(path: str | os.PathLike[str], keep_previous: bool = True) -> Iterator[pathlib.Path]:
    """Yields a path to write to, which takes the place of `path` when the block ends well.

    Args:
        path: The file to replace or make; its suffix is kept, as writers choose formats by it.
        keep_previous: Whether the version before stays as `<name>.previous`.

    Raises:
        SearchError: `project-disk-full`, with the file as it was before.
    """
    target = pathlib.Path(path)
    partial = target.with_name(f"{TEMPORARY}-{os.getpid()}-{target.name}")
    try:
        yield partial
        _sync(partial)
        if keep_previous and target.exists():
            _keep(target)
        partial.replace(target)
        _sync(target.parent)
    except (OSError, RuntimeError) as error:
        # RuntimeError is what h5py makes of a disk that fills while it closes a file.
        raise_if_disk_full(error, target)
        raise
    finally:
        partial.unlink(missing_ok=True)


def append_line(path: str | os.PathLike[str], value: Any) -> None:
    """Appends one line of JSON and brings it to the disk.

    Raises:
        SearchError: `project-disk-full`.
    """
    target = pathlib.Path(path)
    try:
        with target.open("ab") as file:
            # A line that a dying process left unfinished must not swallow this one.
            lead = b"" if file.tell() == 0 or _ends_a_line(target) else b"\n"
            file.write(lead + json.dumps(value).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise_if_disk_full(error, target)
        raise


def read_lines(path: str | os.PathLike[str]) -> list[Any]:
    """Returns the JSON values of a file's lines; a torn line is left out."""
    try:
        lines = pathlib.Path(path).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    values = []
    for line in lines:
        with contextlib.suppress(ValueError):
            values.append(json.loads(line))
    return values


def read_json(path: str | os.PathLike[str]) -> Reading:
    """Returns what can be read of a JSON file, of its last version or of the one before."""
    target = pathlib.Path(path)
    value, damage = _load(target)
    if damage is None:
        return Reading(value)
    previous, no_previous = _load(target.with_name(target.name + PREVIOUS))
    if no_previous is None:
        return Reading(previous, damage, is_previous=True)
    never_written = not target.exists() and no_previous == "is missing"
    return Reading(None, None if never_written else damage)


def disk_full_finding(error: BaseException, path: str | os.PathLike[str]) -> Finding | None:
    """Returns `project-disk-full` where an error says that no room is left, else `None`.

    Args:
        error: An `OSError`, or what a library made of one.
        path: What was being written.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number not in _FULL:
        if "No space left on device" not in str(error):
            return None
        number = errno.ENOSPC
    return Finding(
        "project-disk-full",
        "error",
        # Not in the error's own words: h5py's begin with the time of day.
        f"{os.fspath(path)!r} could not be written: {os.strerror(number)}.",
        "Nothing was overwritten, so the project stands as it was after the last trial that was "
        "saved.",
        "Free some room, or move the project to a larger disk, and start the same search again.",
    )


def raise_if_disk_full(error: BaseException, path: str | os.PathLike[str]) -> None:
    """Raises `SearchError` where an error says that no room is left."""
    finding = disk_full_finding(error, path)
    if finding is not None:
        raise SearchError(finding) from error


def remove_partial_files(directory: str | os.PathLike[str]) -> None:
    """Removes what writers that died left half written in a directory."""
    for partial in pathlib.Path(directory).glob(f"{TEMPORARY}-*"):
        partial.unlink(missing_ok=True)


def _keep(target: pathlib.Path) -> None:
    """Gives a file a second name, so that the renaming over it does not lose it."""
    previous = target.with_name(target.name + PREVIOUS)
    second_name = target.with_name(f"{TEMPORARY}-{os.getpid()}-{previous.name}")
    second_name.unlink(missing_ok=True)
    try:
        os.link(target, second_name)
    except OSError as error:
        # Some file systems (FAT, some network mounts) know no second name.
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        second_name.write_bytes(target.read_bytes())
    second_name.replace(previous)


def _sync(path: pathlib.Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Directories cannot be synced everywhere; their rename is then as lasting as can be.
        if not (path.is_dir() and error.errno in (errno.EINVAL, errno.EBADF)):
            raise
    finally:
        os.close(descriptor)


def _load(path: pathlib.Path) -> tuple[Any, str | None]:
    """Returns a file's JSON object and what is wrong with it, one of the two."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None, "is missing"
    except ValueError:
        size = path.stat().st_size
        return None, "is empty" if size == 0 else f"is cut off or garbled ({size} bytes)"
    if not isinstance(value, dict):
        return None, "is not a JSON object"
    return value, None


def _ends_a_line(path: pathlib.Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
