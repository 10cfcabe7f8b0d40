"""Reads pickles that hold data, and runs nothing of them.

Python's own unpickler calls whatever a file names. This one knows numbers, texts, bytes, tuples, lists, dicts and sets,
and those classes and functions that its caller lists; any other is an error that names it. What is listed is called with
what the file says, so it must check that. A file cannot make it use more memory than some times its own size (the
standard unpickler makes room for whatever place in its memo a file names), and PICKLE_BYTES_MAX by calls, of which each
may turn one long text into bytes again.

The opcodes are those of protocols 0 to 5; their arguments are read by the standard library's pickletools.
"""
from collections import OrderedDict
from typing import Any, Callable, Mapping

from outboard.nn.archives import Source

PICKLE_BYTES_MAX = 1 << 28  # of one pickle; and of what the functions that it calls make
LINE_BYTES_MAX = 1 << 20

_DICT_ITEM_BYTES = 64

_MARK = object()


class Named:
    """A class or function that a pickle may name: `call` stands for it."""

    def __init__(self, name: str, call: Callable | None = None):
        self.name, self.call = name, call


class Pickles:
    """One pickle after the other, from `at` on in `source`."""

    def __init__(self, source: Source, known: Mapping[str, Named], at: int = 0, end: int | None = None):
        self.source, self.known = source, known
        self.at, self.end = at, source.size if end is None else end
        self._start = at
        self._block, self._block_at = b"", at

    def load(self, persistent: Callable[[Any], Any] | None = None) -> Any:
        """The next one; `persistent` says what an object that is kept elsewhere is, by its id."""
        import pickletools

        self._start = self.at
        machine = _Machine(self.known, persistent)
        try:
            for opcode, argument, _ in pickletools.genops(self):  # type: ignore[arg-type]
                machine.step(opcode.name, argument)
        except (AttributeError, IndexError, KeyError, TypeError, OverflowError, ValueError) as error:
            raise ValueError(f"{self.source.name}: {_reason(error)}") from None
        return machine.result

    # What pickletools needs of a file.
    def read(self, size: int) -> bytes:
        if self.at + min(size, self.end - self.at) - self._start > PICKLE_BYTES_MAX:
            raise ValueError(f"a pickle of more than {PICKLE_BYTES_MAX} bytes")
        begin = self.at - self._block_at
        if begin + size > len(self._block):
            self._block = self.source.read(self.at, min(max(size, 1 << 16), self.end - self.at))
            self._block_at, begin = self.at, 0
        data = self._block[begin:begin + size]
        self.at += len(data)
        return data

    def readline(self) -> bytes:
        line = bytearray()
        while byte := self.read(1):
            line += byte
            if byte == b"\n":
                break
            if len(line) > LINE_BYTES_MAX:
                raise ValueError(f"a line of a pickle of more than {LINE_BYTES_MAX} bytes")
        return bytes(line)

    def tell(self) -> int:
        return self.at


def _reason(error: Exception) -> str:
    return str(error) if type(error) is ValueError else f"a damaged pickle ({type(error).__name__})"


class _Machine:
    """A pickle is a program for a stack machine; this is the machine, without the instructions that run code."""

    def __init__(self, known: Mapping[str, Named], persistent: Callable[[Any], Any] | None):
        self.known, self.persistent = known, persistent
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.made_bytes = 0  # by calls
        self.result: Any = None

    def step(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _TUPLES:
            count = _TUPLES[name]
            items = self.stack[len(self.stack) - count:]
            if len(items) != count or any(item is _MARK for item in items):
                raise IndexError
            del self.stack[len(self.stack) - count:]
            self.stack.append(tuple(items))
        elif (method := getattr(self, f"do_{name.lower()}", None)) is not None:
            method(argument)
        elif name not in _NOTHING:
            raise ValueError(f"a pickle with {name}, which no state dict needs")

    def pop(self) -> Any:
        if (value := self.stack.pop()) is _MARK:
            raise IndexError
        return value

    def pop_to_mark(self) -> list[Any]:
        items: list[Any] = []
        while (item := self.stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def top(self, kind: type | tuple[type, ...]) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise TypeError
        return self.stack[-1]

    # ---- the stack and the memo
    def do_mark(self, _):
        self.stack.append(_MARK)

    def do_stop(self, _):
        self.result = self.pop()

    def do_pop(self, _):
        self.stack.pop()

    def do_pop_mark(self, _):
        self.pop_to_mark()

    def do_dup(self, _):
        self.stack.append(self.stack[-1])

    def do_memoize(self, _):
        self.memo[len(self.memo)] = self.stack[-1]

    def do_put(self, place):
        self.memo[place] = self.stack[-1]

    def do_get(self, place):
        self.stack.append(self.memo[place])

    do_binput = do_long_binput = do_put
    do_binget = do_long_binget = do_get

    # ---- containers
    def do_tuple(self, _):
        self.stack.append(tuple(self.pop_to_mark()))

    def do_list(self, _):
        self.stack.append(self.pop_to_mark())

    def do_append(self, _):
        value = self.pop()
        self.top(list).append(value)

    def do_appends(self, _):
        values = self.pop_to_mark()
        self.top(list).extend(values)

    def do_dict(self, _):
        items = self.pop_to_mark()
        self.stack.append({})
        self.set_items(items)

    def do_setitem(self, _):
        value, key = self.pop(), self.pop()
        self.set_items([key, value])

    def do_setitems(self, _):
        self.set_items(self.pop_to_mark())

    def set_items(self, items: list[Any]) -> None:
        if len(items) % 2:
            raise IndexError
        target = self.top(dict)
        for key, value in zip(items[::2], items[1::2]):
            target[_checked_key(key)] = value

    def do_additems(self, _):
        items = self.pop_to_mark()
        self.top(set).update(map(_checked_key, items))

    def do_frozenset(self, _):
        self.stack.append(frozenset(map(_checked_key, self.pop_to_mark())))

    # ---- what a file names
    def find(self, name: str) -> Named:
        if name not in self.known:
            shown = "".join(c if c.isprintable() else "?" for c in name[:200])
            raise ValueError(f"refused: the pickle names {shown}, which no state dict needs (nothing of the file was run)")
        return self.known[name]

    def do_global(self, argument):
        self.stack.append(self.find(argument.replace(" ", ".", 1)))

    def do_stack_global(self, _):
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise TypeError
        self.stack.append(self.find(f"{module}.{name}"))

    def do_reduce(self, _):
        arguments, named = self.pop(), self.pop()
        if not isinstance(named, Named) or not isinstance(arguments, tuple):
            raise TypeError
        if named.call is None:
            raise ValueError(f"refused: the pickle calls {named.name}")
        made = named.call(*arguments)
        if isinstance(made, (bytes, dict)):
            self.made_bytes += len(made) * (_DICT_ITEM_BYTES if isinstance(made, dict) else 1)
        if self.made_bytes > PICKLE_BYTES_MAX:
            raise ValueError(f"a pickle that makes more than {PICKLE_BYTES_MAX} bytes by calls")
        self.stack.append(made)

    do_newobj = do_reduce

    def do_build(self, _):
        state = self.pop()
        target = self.stack[-1]
        if hasattr(target, "set_pickled_state"):
            target.set_pickled_state(state)
        elif not isinstance(target, OrderedDict):  # whose attributes (versions of layers) nobody here reads
            raise TypeError

    def do_persid(self, key):
        if self.persistent is None:
            raise ValueError("a pickle that refers to objects outside of it")
        self.stack.append(self.persistent(key))

    def do_binpersid(self, _):
        self.do_persid(self.pop())


def _checked_key(key: Any) -> Any:
    # No nested tuples: the hash of a deep one overflows the interpreter's stack.
    flat = key if isinstance(key, tuple) else (key,)
    if not all(item is None or isinstance(item, (str, int, float, bytes)) for item in flat):
        raise ValueError(f"a key of type {type(key).__name__}, which no state dict needs")
    return key


_VALUES = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"
}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": set,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_NOTHING = {"PROTO", "FRAME"}
