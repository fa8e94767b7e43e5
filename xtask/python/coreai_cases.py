"""Runs the cases of `cargo xtask check coreai` with Apple's runtime: coreai_cases.py FOLDER.

Every folder in FOLDER has case.aimodel and given.json with the tensors it takes; what `main` gives, and the states after
it, go to found.json. A case runs in a process of its own, because Apple's code aborts where it meets what it does not take.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
from coreai.authoring import AIModelAsset
from coreai.runtime import NDArray


def tensor(folder, index, entry):
    """Reads one of the tensors that a case takes."""
    data = np.fromfile(folder / f"given_{index}.bin", dtype=entry["dtype"])
    return NDArray(data.reshape(entry["shape"]))


async def run(folder):
    """Runs the function of a case, and writes what it gives."""
    given = json.loads((folder / "given.json").read_text())
    tensors = [(entry, tensor(folder, index, entry)) for index, entry in enumerate(given)]
    inputs = {entry["name"]: value for entry, value in tensors if entry["kind"] == "in"}
    states = {entry["name"]: value for entry, value in tensors if entry["kind"] == "st"}
    async with AIModelAsset.load(folder / "case.aimodel").executable() as model:
        outputs = await model.load_function("main")(inputs, states)
    found = []
    results = [("out", name, value) for name, value in outputs.items()]
    results += [("st", name, value) for name, value in states.items()]
    for index, (kind, name, value) in enumerate(results):
        array = np.ascontiguousarray(value.numpy())
        array.tofile(folder / f"found_{index}.bin")
        found.append({"kind": kind, "name": name, "dtype": array.dtype.name, "shape": list(value.numpy().shape)})
    (folder / "found.json").write_text(json.dumps({"tensors": found}))


def main():
    """Runs every case."""
    for folder in sorted(Path(sys.argv[1]).iterdir()):
        if not (folder / "given.json").exists():  # a case that cannot be written
            continue
        child = os.fork()
        if child == 0:
            log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            signal.alarm(120)
            try:
                asyncio.run(run(folder))
                os._exit(0)
            except BaseException as error:  # whatever it is, it is what came of the case
                (folder / "found.json").write_text(json.dumps({"error": f"{type(error).__name__}: {error}"[:500]}))
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            printed = (folder / "log.txt").read_text(errors="replace").strip().splitlines()[-3:]
            error = f"ended by {signal.Signals(os.WTERMSIG(status)).name}: {' | '.join(printed)}"
            (folder / "found.json").write_text(json.dumps({"error": error[:500]}))


main()
