"""What Apple's module says of Core AI assets.

    coreai_assets.py read ASSET...          parses and verifies each, and tells the systems that its summary names
    coreai_assets.py same ASSET ASSET ...   runs each pair on the same inputs and compares every bit

Prints one JSON object for each asset or function. Apple's code ends its process where it meets what it does not take, so
every asset, and every function, has a process of its own.
"""

import asyncio
import importlib.metadata
import json
import os
import signal
import sys
import zlib
from pathlib import Path

import numpy as np
from coreai.authoring import AIModelAsset
from coreai.runtime import NDArray

OPEN_PLACES = 8


def apart(path, work):
    """What `work` gives in a process of its own, or why it gave nothing."""
    log = Path(path + ".log")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        to = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(to, 1)
        os.dup2(to, 2)
        signal.alarm(300)
        try:
            found = work()
        except BaseException as error:  # whatever it is, it is what came of it
            found = {"error": f"{type(error).__name__}: {error}"[:400]}
        with os.fdopen(writer, "w") as out:
            out.write(json.dumps(found))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as source:
        text = source.read()
    _, status = os.waitpid(child, 0)
    printed = log.read_text(errors="replace").strip().splitlines()[-2:]
    log.unlink(missing_ok=True)
    if os.WIFSIGNALED(status):
        return {"error": f"ended by {signal.Signals(os.WTERMSIG(status)).name}: {' | '.join(printed)}"[:400]}
    return json.loads(text)


def summary(path):
    asset = AIModelAsset.load(Path(path))
    found = asset.summary()
    names = list(getattr(found, "function_names", None) or [])
    # What parses and verifies the program, as opposed to its summary.
    # Wheels differ in what they call the program's module.
    program = asset.program
    module = next(getattr(program, name) for name in ("_module", "_mlir_module") if hasattr(program, name))
    (module.verify if hasattr(module, "verify") else module.operation.verify)()
    version = getattr(found, "_compatibility_version", None)
    return {"functions": sorted(names), "system": None if version is None else str(version)}


def values(name, shape, dtype):
    """Numbers that depend on the name and the shape only."""
    shape = [OPEN_PLACES if size is None or size < 0 else int(size) for size in shape]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if dtype.startswith(("int", "uint")):
        first = "position" in name or "step" in name
        return np.zeros(shape, dtype) if first else rng.integers(0, 7, shape).astype(dtype)
    if "mask" in name:
        # Only the first place is seen: memory that Apple's module lays out itself is not cleared.
        mask = np.full(shape, -4e4, dtype)
        mask[:, :1] = 0
        return mask
    if dtype == "bfloat16":
        import ml_dtypes

        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    return rng.standard_normal(shape).astype(dtype)


def is_plain(array):
    """Whether elements lie one after the other. Others are no arrays that numpy could show."""
    expected, size = [], 1
    for places in reversed(array.shape):
        expected.insert(0, size)
        size *= places
    return all(given == wanted or places == 1 for given, wanted, places in zip(array.strides, expected, array.shape))


def array(name, descriptor):
    """An array for an input or a state, laid out as the function wants it; one that is not plain is not cleared."""
    if all(size is not None and size >= 0 for size in descriptor.shape):
        laid_out = NDArray.from_descriptor(descriptor)
        if not is_plain(laid_out):
            return laid_out
    return NDArray(values(name, descriptor.shape, str(descriptor.dtype)))


async def outputs(path, name):
    """The bytes of what a function gives, and of the states after it."""
    async with AIModelAsset.load(Path(path)).executable() as model:
        # What one function lays out in memory in its own way is what others take.
        shared = {}
        if "load_embeddings" in model.function_names and name != "load_embeddings":
            shared = await model.load_function("load_embeddings")({})
        function = model.load_function(name)
        desc = function.desc
        inputs = {n: shared[n] if n in shared else array(n, desc.input_descriptor(n)) for n in desc.input_names}
        states = {n: array(n, desc.state_descriptor(n)) for n in desc.state_names}
        given = await (function(inputs, states) if states else function(inputs))
        found = {n: a for n, a in {**given, **states}.items() if is_plain(a)}
        return {n: bytes(np.ascontiguousarray(a.numpy()).tobytes()) for n, a in found.items()}


async def functions(path):
    async with AIModelAsset.load(Path(path)).executable() as model:
        return list(model.function_names)


def same(first, second, name):
    a, b = (asyncio.run(outputs(path, name)) for path in (first, second))
    differing = sorted(n for n in a.keys() | b.keys() if a.get(n) != b.get(n))
    return {"tensors": len(a), "differ": differing}


def main():
    what, paths = sys.argv[1], sys.argv[2:]
    print(json.dumps({"version": importlib.metadata.version("coreai-core")}))
    if what == "read":
        for path in paths:
            print(json.dumps({"asset": Path(path).name, **apart(path, lambda path=path: summary(path))}))
        return
    for first, second in zip(paths[::2], paths[1::2]):
        names = apart(second, lambda first=first: {"names": asyncio.run(functions(first))})
        if "error" in names:
            print(json.dumps({"asset": Path(first).name, "function": "", **names}))
            continue
        for name in names["names"]:
            found = apart(second, lambda a=first, b=second, n=name: same(a, b, n))
            if "error" in found:
                # Apple's own file may be what its runtime does not take.
                own = apart(second, lambda a=first, n=name: {"ran": len(asyncio.run(outputs(a, n)))})
                found["first_fails_too"] = "error" in own
            print(json.dumps({"asset": Path(first).name, "function": name, **found}))


main()
