"""Functions that are run twice and then only sent: `TinyJit`."""
from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Generic, TypeVar, overload

from outboard._core import Jit, SymInt, Tensor
from outboard.errors import Error
from outboard.helpers import JIT

ReturnType = TypeVar("ReturnType")


class JitError(Exception):
    """What a captured function, or a call of one, must not do."""


def _inputs(args: tuple, kwargs: dict) -> tuple[list, list[Tensor], list[SymInt]]:
    """Of the tensors and sizes among the arguments, and one level deep in them: the names, the tensors, the sizes."""
    places: list[tuple[Any, Any]] = []
    for name, value in [*enumerate(args), *sorted(kwargs.items())]:
        if isinstance(value, (tuple, list)):
            places += [((name, i), item) for i, item in enumerate(value)]
        elif isinstance(value, dict):
            places += [((name, key), value[key]) for key in sorted(value, key=repr)]
        else:
            places.append((name, value))
    names = [name for name, value in places if isinstance(value, (Tensor, SymInt))]
    tensors = [value for _, value in places if isinstance(value, Tensor)]
    return names, tensors, [value for _, value in places if isinstance(value, SymInt)]


def _constants(args: tuple, kwargs: dict) -> dict[int | str, Any]:
    """The arguments that a recording holds as they are."""
    named = [*enumerate(args), *kwargs.items()]
    return {name: value for name, value in named if not isinstance(value, (Tensor, SymInt, tuple, list, dict))}


def _same(value: Any, other: Any) -> bool:
    if value is other:
        return True
    try:
        return type(value) is type(other) and bool(value == other)
    except Exception:  # what cannot tell is not the same
        return False


def _tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if value is None:
        return []
    if isinstance(value, (tuple, list, dict)):
        items = value.values() if isinstance(value, dict) else value
        return [tensor for item in items for tensor in _tensors_in(item)]
    raise JitError(f"JIT return contains non-Tensor value of type {type(value).__name__}")


def _rebuilder(value: Any) -> Callable:
    """A function that makes the like of `value` of the tensors that an iterator gives."""
    if isinstance(value, Tensor):
        return next
    if value is None:
        return lambda tensors: None
    if isinstance(value, dict):
        parts = {key: _rebuilder(item) for key, item in value.items()}
        return lambda tensors: {key: part(tensors) for key, part in parts.items()}
    items, make = [_rebuilder(item) for item in value], type(value)
    if hasattr(make, "_fields"):
        return lambda tensors: make(*[item(tensors) for item in items])
    return lambda tensors: make(item(tensors) for item in items)


def _realize(value: Any) -> None:
    tensors = []
    try:
        tensors = _tensors_in(value)
    except JitError:
        pass  # said when it is captured
    if tensors:
        tensors[0].realize(*tensors[1:])


class _TinyJit(Generic[ReturnType]):
    """A function as TinyJit makes it: its third call, and all after it, send what its second call recorded."""

    def __init__(self, fxn: Callable[..., ReturnType]):
        self.fxn = fxn
        self.reset()
        functools.update_wrapper(self, fxn, updated=())

    def __repr__(self) -> str:
        name = getattr(self.fxn, "__qualname__", repr(self.fxn))
        return f"<TinyJit {name}, {'captured' if self.captured else f'called {self.cnt} times'}>"

    def reset(self) -> None:
        """The next two calls run the function again."""
        self.cnt = 0
        self._step = Jit()
        self._names: list = []
        self._held: dict[int | str, Any] = {}
        self._rebuild: Callable = next

    def __reduce__(self):
        name = getattr(self.fxn, "__qualname__", None)
        if name and getattr(sys.modules.get(self.fxn.__module__), name, None) is self:
            return name  # a decorated function is itself, as any function is
        # A copy, or one from a pickle, has no recording, since that holds tensors of this process's session: its second
        # call makes one.
        return type(self), (self.fxn,)

    @property
    def captured(self) -> bool:
        """Whether a call was recorded, so that the next one is only sent."""
        return self._step.captured

    def __set_name__(self, owner, name):
        self._name = name

    def __get__(self, instance, owner):
        if instance is None:
            return self
        # Found there before this from now on: a recording holds the tensors of one object.
        bound = vars(instance)[self._name] = _TinyJit(functools.partial(self.fxn, instance))
        return bound

    def __call__(self, *args, **kwargs) -> ReturnType:
        if self._step.captured:
            names, tensors, sizes = _inputs(args, kwargs)
            if names != self._names:
                raise JitError(f"args mismatch in JIT: {self._names} != {names}")
            self._check_held(args, kwargs)
            self.cnt += 1
            try:
                return self._rebuild(iter(self._step.send(tensors, sizes)))
            except Error as error:
                raise self._told(error) from error
        if not JIT or self.cnt == 0:
            result = self.fxn(*args, **kwargs)
            _realize(result)
        else:
            result = self._capture(args, kwargs)
        self.cnt += 1
        return result

    def _capture(self, args: tuple, kwargs: dict) -> ReturnType:
        names, tensors, sizes = _inputs(args, kwargs)
        results = []

        def step() -> list[Tensor]:
            results.append(self.fxn(*args, **kwargs))
            return _tensors_in(results[0])

        try:
            made = self._step.capture(tensors, sizes, step)
        except Error as error:
            raise self._told(error) from error
        self._names, self._held, self._rebuild = names, _constants(args, kwargs), _rebuilder(results[0])
        return self._rebuild(iter(made))

    def _check_held(self, args: tuple, kwargs: dict) -> None:
        given = _constants(args, kwargs)
        for name in given.keys() | self._held.keys():
            if name not in given or name not in self._held or not _same(given[name], self._held[name]):
                raise JitError(f"argument {name!r} is {given.get(name)!r}, and was {self._held.get(name)!r} when the "
                               "function was captured; what changes is a Tensor or a bound Variable")

    @staticmethod
    def _told(error: Error) -> Exception:
        return JitError(str(error)) if "captured step: " in str(error) else error


@overload
def TinyJit(fxn: Callable[..., ReturnType], *, prune: bool = False) -> _TinyJit[ReturnType]: ...
@overload
def TinyJit(
    fxn: None = None, *, prune: bool = False
) -> Callable[[Callable[..., ReturnType]], _TinyJit[ReturnType]]: ...
def TinyJit(fxn=None, *, prune=False):
    """Runs `fxn` twice, and records what the second call sends; each later call sends that again, with the tensors and
    bound variables of its arguments, and the tensors from outside as they are then.

    What it returns (tensors, in tuples, lists and dicts) is realised, and new with each call: results of earlier calls
    keep their values. Tensors that it assigns, or realises and keeps elsewhere, get the value of each call. Everything
    else happens twice: what it prints, numbers that it makes tensors of. `prune` is accepted; nothing depends on it.

    A method has a recording for each object.

    JitError: a value is read inside, arguments of another shape, dtype or name than in the second call, another number
    or object than then, a tensor given twice, a tensor from outside that is gone, a result that is no tensor. `reset()`
    forgets what was recorded.
    """
    del prune
    return _TinyJit if fxn is None else _TinyJit(fxn)
