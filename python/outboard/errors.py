"""What the library raises: Error, and a child of it for each code, which is also what a Python program expects there."""
from __future__ import annotations


class Error(RuntimeError):
    """Every error of the library. The message begins with the line of the program that it is about."""

    __module__ = "outboard"
    __str__ = BaseException.__str__  # OSError, a base of some children, would show its own fields instead of the message

    code: str      # "INVALID_ARGUMENT" ...
    filename: str  # of the program's line
    lineno: int


class InvalidArgument(Error, ValueError):
    """Shapes, types or arguments that do not fit."""
    __module__ = "outboard"


class InvalidIndex(InvalidArgument, IndexError):
    """An axis that is not there, or shapes that do not broadcast."""
    __module__ = "outboard"


class CheckFailed(InvalidArgument, AssertionError):
    """Arguments that do not fit each other, or the range that they must be in."""
    __module__ = "outboard"


class IsADirectory(InvalidArgument, IsADirectoryError):
    """A folder where a file is wanted."""
    __module__ = "outboard"
    code = "INVALID_ARGUMENT"


class OutOfRange(Error, IndexError):
    """An index that is not there."""
    __module__ = "outboard"


class NotFound(Error, LookupError):
    """A name that the store does not have, or a session that the account does not have."""
    __module__ = "outboard"


class AlreadyExists(Error, FileExistsError):
    """The name of a session that is there."""
    __module__ = "outboard"


class PermissionDenied(Error, PermissionError):
    """The key may not do this."""
    __module__ = "outboard"


class Unauthenticated(Error, PermissionError):
    """No key, or a wrong or revoked one."""
    __module__ = "outboard"


class ResourceExhausted(Error, MemoryError):
    """No device is free, or a limit was hit; the message names it."""
    __module__ = "outboard"


class Unavailable(Error, ConnectionError):
    """Nobody answers, or the worker was lost."""
    __module__ = "outboard"


class DeadlineExceeded(Error, TimeoutError):
    """A step took longer than its worker allows."""
    __module__ = "outboard"


class Unimplemented(Error, NotImplementedError):
    """The other side does not know how to do this."""
    __module__ = "outboard"


# By the name of the code; all others are plain Errors.
BY_CODE = {
    "ALREADY_EXISTS": AlreadyExists,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "INVALID_ARGUMENT": InvalidArgument,
    "NOT_FOUND": NotFound,
    "OUT_OF_RANGE": OutOfRange,
    "PERMISSION_DENIED": PermissionDenied,
    "RESOURCE_EXHAUSTED": ResourceExhausted,
    "UNAUTHENTICATED": Unauthenticated,
    "UNAVAILABLE": Unavailable,
    "UNIMPLEMENTED": Unimplemented,
}
