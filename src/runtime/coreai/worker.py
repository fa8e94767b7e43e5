"""Executes Core AI assets for anemeter, by Apple's Python module `coreai`.

Requests come on standard input, one reply to each goes to standard output. A message is two little-endian numbers
(4 bytes: length of the header, 8 bytes: length of the body), a header in JSON, and a body of raw tensors, one after
another as `tensors` in the header lists them: row by row, little-endian, nothing between them.

Whatever Apple's code prints goes to standard error: the two ends of the conversation are moved away before it is loaded.
"""
import os
import sys

source = os.fdopen(os.dup(0), "rb", buffering=1 << 16)
sink = os.fdopen(os.dup(1), "wb", buffering=0)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)

import asyncio
import contextlib
import json
import pathlib
import platform
import struct
import threading
import time

LONGEST_HEADER = 4 << 20
# An open dimension of a state has this many places, unless the state is given.
OPEN_PLACES = 256


def end_with_parent():
    """A call of Apple's code may take minutes; whoever asked for it may be gone by then."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)


def read_exactly(length):
    buffer = bytearray(length)
    view, filled = memoryview(buffer), 0
    while filled < length:
        count = source.readinto(view[filled:])
        if not count:
            raise EOFError
        filled += count
    return buffer


def read_message():
    header_length, body_length = struct.unpack("<IQ", read_exactly(12))
    if header_length > LONGEST_HEADER:
        raise ValueError(f"a header of {header_length} bytes")
    header = json.loads(read_exactly(header_length))
    return header, memoryview(read_exactly(body_length))


def write_all(data):
    view = memoryview(data).cast("B")
    while view:
        view = view[sink.write(view):]


def write_message(header, arrays=()):
    text = json.dumps(header).encode()
    body = sum(array.nbytes for array in arrays)
    write_all(struct.pack("<IQ", len(text), body) + text)
    for array in arrays:
        if array.nbytes:
            write_all(array.reshape(-1).view("uint8"))


def numpy_type(name):
    """numpy has no bfloat16 of its own."""
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, name))
    return numpy.dtype(name)


def numpy_name(apple_name):
    """What numpy and its extension call an element type."""
    return {"float8e4m3fn": "float8_e4m3fn", "float8e5m2": "float8_e5m2"}.get(apple_name, apple_name)


def unpack(specs, body):
    """The arrays of a message, by name."""
    arrays, offset = {}, 0
    for spec in specs:
        dtype = numpy_type(spec["dtype"])
        count = 1
        for size in spec["shape"]:
            count *= size
        end = offset + count * dtype.itemsize
        arrays[spec["name"]] = numpy.frombuffer(body[offset:end], dtype=dtype).reshape(spec["shape"])
        offset = end
    if offset != len(body):
        raise ValueError(f"tensors of {offset} bytes in a body of {len(body)}")
    return arrays


def listed(arrays):
    return [{"name": n, "dtype": str(a.dtype), "shape": list(a.shape)} for n, a in arrays.items()]


def ports(names, descriptor):
    """Inputs, outputs or states as Apple describes them; an open dimension is -1."""
    found = []
    for name in names:
        of = descriptor(name)
        shape = getattr(of, "shape", None)
        if shape is None:
            found.append({"name": name, "dtype": "other", "shape": []})
            continue
        shape = [-1 if size is None or size < 0 else int(size) for size in shape]
        found.append({"name": name, "dtype": numpy_name(str(of.dtype)), "shape": shape})
    return found


class Worker:
    def __init__(self):
        self.stack = contextlib.AsyncExitStack()
        self.model = None
        self.functions = {}
        self.sessions = {}

    async def hello(self, header, body):
        return versions(), {}

    async def load(self, header, body):
        """Lowers the asset (Linux) or has the system specialise it (macOS), and lists its functions."""
        from coreai.authoring import AIModelAsset

        began = time.perf_counter()
        options = specialization(header.get("units")) if runtime._use_os_coreai else None
        asset = AIModelAsset.load(pathlib.Path(header["path"]))
        self.model = await self.stack.enter_async_context(asset.executable(options))
        elapsed = time.perf_counter() - began
        return {"functions": list(self.model.function_names), "elapsed_s": elapsed}, {}

    def function(self, name):
        if name not in self.functions:
            self.functions[name] = self.model.load_function(name)
        return self.functions[name]

    async def describe(self, header, body):
        """Loads a function, unless it is loaded, and says what it takes and gives."""
        began = time.perf_counter()
        desc = self.function(header["function"]).desc
        elapsed = time.perf_counter() - began
        result = {
            "inputs": ports(desc.input_names, desc.input_descriptor),
            "outputs": ports(desc.output_names, desc.output_descriptor),
            "states": ports(desc.state_names, desc.state_descriptor),
            "elapsed_s": elapsed,
        }
        return result, {}

    def states(self, session, function):
        """The states that a function takes, of a session; those that it does not have yet are zero."""
        held = self.sessions.setdefault(session, {})
        desc = self.function(function).desc
        for port in ports(desc.state_names, desc.state_descriptor):
            if port["name"] not in held:
                shape = [size if size >= 0 else OPEN_PLACES for size in port["shape"]]
                held[port["name"]] = NDArray(numpy.zeros(shape, numpy_type(port["dtype"])))
        return {name: held[name] for name in desc.state_names}

    async def predict(self, header, body):
        name = header["function"]
        function = self.function(name)
        inputs = {n: NDArray(a) for n, a in unpack(header["tensors"], body).items()}
        states = self.states(header["session"], name)
        began = time.perf_counter()
        outputs = await (function(inputs, states) if states else function(inputs))
        elapsed = time.perf_counter() - began
        held = self.sessions.setdefault(header["session"], {})
        held.update(states)
        return {"elapsed_s": elapsed}, {n: numpy.ascontiguousarray(a.numpy()) for n, a in outputs.items()}

    async def echo(self, header, body):
        """A call that predicts nothing: takes the tensors of a prediction and gives some like its outputs."""
        inputs = {n: NDArray(a) for n, a in unpack(header["tensors"], body).items()}
        del inputs
        outputs = {s["name"]: NDArray(numpy.zeros(s["shape"], numpy_type(s["dtype"]))) for s in header["gives"]}
        return {}, {n: numpy.ascontiguousarray(a.numpy()) for n, a in outputs.items()}

    async def state(self, header, body):
        states = self.states(header["session"], header["function"])
        name = header["name"]
        return {}, {name: numpy.ascontiguousarray(states[name].numpy())}

    async def set_state(self, header, body):
        held = self.sessions.setdefault(header["session"], {})
        held.update({n: NDArray(a) for n, a in unpack(header["tensors"], body).items()})
        return {}, {}

    async def end_session(self, header, body):
        self.sessions.pop(header["session"], None)
        return {}, {}

    async def serve(self):
        async with self.stack:
            while True:
                try:
                    header, body = read_message()
                except EOFError:
                    return
                try:
                    result, arrays = await getattr(self, header["do"])(header, body)
                    reply = {"result": result, "tensors": listed(arrays)}
                except Exception as error:
                    reply, arrays = {"error": f"{type(error).__name__}: {error}"}, {}
                write_message(reply, arrays.values())


def specialization(units):
    """Where operations should run: Core AI takes a preference, and only `cpu` is a restriction."""
    options, kinds = runtime.SpecializationOptions, runtime.ComputeUnitKind
    if units == "cpu":
        return options.cpu_only()
    kind = {"cpu+gpu": kinds.gpu, "cpu+ane": kinds.neural_engine}.get(units)
    return options.from_preferred_compute_unit_kind(kind()) if kind else None


def versions():
    from importlib.metadata import version

    return {
        "wheel": version("coreai-core"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "system_framework": bool(runtime._use_os_coreai),
    }


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    import numpy
    from coreai import runtime
    from coreai.runtime import NDArray

    asyncio.run(Worker().serve())
