"""Compares weights that coremltools decompresses with the bytes we decode.

    decompress.py < folders

Each folder has model.mlpackage and weights/NAME.bin with the elements of the weight NAME. Writes one JSON object per
folder: {"folder", "compared", "different": [...]}.
"""
import json
import os
import sys

import coremltools as ct
import numpy as np
from coremltools.converters.mil.frontend.milproto.load import load


def values(package):
    spec = ct.models.MLModel(package, skip_model_load=True).get_spec()
    weights = os.path.join(package, "Data/com.apple.CoreML/weights")
    program = load(spec, spec.specificationVersion, weights)
    for function in program.functions.values():
        for op in function.operations:
            if op.op_type.startswith("constexpr_") and len(op.outputs) == 1:
                yield op.outputs[0].name, np.asarray(op.materialized_val_inference())


def compare(folder):
    found = dict(values(os.path.join(folder, "model.mlpackage")))
    different = []
    names = [name.removesuffix(".bin") for name in sorted(os.listdir(os.path.join(folder, "weights")))]
    for name in names:
        if name not in found:
            different.append(f"{name}: coremltools has no such weight")
            continue
        value = found[name]
        ours = np.fromfile(os.path.join(folder, "weights", f"{name}.bin"), dtype=value.dtype)
        theirs = value.reshape(-1)
        if ours.shape != theirs.shape:
            different.append(f"{name}: {ours.size} elements, coremltools has {theirs.size}")
        elif not np.array_equal(ours, theirs):
            at = int(np.flatnonzero(ours != theirs)[0])
            count = int((ours != theirs).sum())
            different.append(f"{name}: {count} of {ours.size} differ, first {at}: {ours[at]} and {theirs[at]}")
    return {"folder": folder, "compared": len(names), "different": different}


for line in sys.stdin:
    folder = line.strip()
    try:
        result = compare(folder)
    except Exception as error:  # must not look like a pass
        result = {"folder": folder, "compared": 0, "different": [f"{type(error).__name__}: {error}"]}
    print(json.dumps(result), flush=True)
