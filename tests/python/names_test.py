"""Every public name of tinygrad 0.14 is here, with its parameters and defaults, or stands below with the reason why not."""
import importlib
import inspect
import re

import pytest
import tinygrad

import outboard

INSIDE = "of tinygrad's own machinery: graphs have no representation in Python here"
IMAGES = "a layout of images for one kind of GPU"

MISSING = {
    "Tensor": {
        **dict.fromkeys(["alu", "as_param", "call", "callify", "const", "custom_kernel", "invalids",
                         "linear_with_vars", "max_numel", "max_shape", "random_bits", "schedule_linear", "ufix", "uop",
                         "uprod", "usum"], INSIDE),
        **dict.fromkeys(["image_conv2d", "image_dot"], IMAGES),
        "decode_hevc_frame": "video decoders are no part of a worker",
    },
}

# Where a parameter is another one, or its default.
DIFFERENT = {
    "Tensor": {"shard": "the devices are the session's", "shard_": "the devices are the session's",
               "one_hot": "the number of classes may be left out, as in PyTorch",
               "realize": "counting what a Run did is not the tensor's choice"},
    "nn.state": {
        "get_state_dict": "its type is this package's Tensor",
        **dict.fromkeys(["safe_load_metadata", "tar_extract", "torch_load", "zip_extract"], "what is read may also be a path"),
    },
}

PLACES = ["Tensor", "nn", "nn.optim", "nn.state", "nn.datasets"]


def at(package, place):
    """The class or module that `place` names."""
    if place == "Tensor":
        return package.Tensor
    return importlib.import_module(f"{package.__name__}.{place}")


def public(place):
    """What tinygrad itself has there; not what it imports for its own use."""
    thing = at(tinygrad, place)
    names = [name for name in dir(thing) if not name.startswith("_")]
    if inspect.isclass(thing):
        return names
    return [name for name in names if getattr(getattr(thing, name), "__module__", "").startswith(thing.__name__)]


def parameters(function):
    """[(name, default)] and whether there are *args, without self."""
    signatures = getattr(function, "__nb_signature__", None)
    if signatures is None:
        given = inspect.signature(function).parameters.values()
        kinds = [p.kind for p in given]
        plain = [(p.name, p.default) for p in given if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        return [p for p in plain if p[0] not in ("self", "cls")], inspect.Parameter.VAR_POSITIONAL in kinds
    text, _, defaults = max(signatures, key=lambda s: len(s[0]))
    parts, depth = [""], 0
    for c in re.match(r"(?s).*?def \w+\((.*)\) ->", text).group(1):
        depth += (c in "[(") - (c in "])")
        parts[-1] += c
        if c == "," and depth == 0:
            parts[-1] = parts[-1][:-1]
            parts.append("")
    result = []
    for part in filter(None, map(str.strip, parts)):
        name, _, default = part.partition(" = ")
        name = name.split(":")[0]
        if name in ("self", "/", "*") or name.startswith("*"):
            continue
        where = re.fullmatch(r"\\(\d+)", default)
        result.append((name, inspect.Parameter.empty if not default else defaults[int(where[1])] if where else eval(default)))
    return result, re.search(r"[(,] *\*\w", text) is not None


def alike(a, b):
    if type(a).__name__ == "DType" or type(b).__name__ == "DType":
        return getattr(tinygrad.dtypes, a.name) == b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)) and not isinstance(a, bool):
        return abs(a - b) < 1e-12
    return a == b or (a is inspect.Parameter.empty and b is inspect.Parameter.empty)


def cases():
    return [(place, name) for place in PLACES for name in public(place)]


@pytest.mark.parametrize("place, name", cases(), ids=lambda x: x)
def test_is_here(place, name):
    reason = MISSING.get(place, {}).get(name)
    ours = getattr(at(outboard, place), name, None)
    found = "missing, and no reason why" if ours is None else "here, and listed as missing"
    assert (ours is None) == (reason is not None), found
    theirs = getattr(at(tinygrad, place), name)
    if ours is None or not callable(theirs) or name in DIFFERENT.get(place, {}):
        return
    if inspect.isclass(theirs):
        theirs, ours = theirs.__init__, ours.__init__
    wanted, many_there = parameters(theirs)
    got, many_here = parameters(ours)
    if many_there and many_here and wanted and wanted[0][0] not in dict(got):
        wanted = wanted[1:]  # shape in f(shape, *args) is one of them
    extra = [p for p in got if p[0] not in [n for n, _ in wanted]]
    kept = [p for p in got if p not in extra]
    assert [n for n, _ in kept] == [n for n, _ in wanted], "other parameters"
    for (parameter, a), (_, b) in zip(kept, wanted):
        assert alike(a, b), f"{parameter} is {a!r} by default, there {b!r}"
    assert all(default is not inspect.Parameter.empty for _, default in extra), "more parameters that must be given"


def test_no_reason_for_what_nobody_asks():
    for table in (MISSING, DIFFERENT):
        for place, names in table.items():
            for name in names:
                assert hasattr(at(tinygrad, place), name), f"tinygrad has no {place}.{name}"


@pytest.mark.parametrize("name", ["Tensor", "TinyJit", "Variable", "dtypes", "Device", "Context", "GlobalCounters"])
def test_top_level(name):
    assert hasattr(tinygrad, name) and hasattr(outboard, name)
