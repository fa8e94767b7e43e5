"""Writes small arrays as numpy does, for the tests of what reads them.

    numpy_arrays.py src/harness/tensor_files/testdata

The values of an array are 0, 1, 2, ... in its type and shape.
"""
import pathlib
import sys

import numpy as np


def counted(dtype, shape=(2, 3), **more):
    return np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape, **more)


ARRAYS = {
    **{name: counted(name) for name in ["float16", "float32", "float64"]},
    **{name: counted(name) for name in ["int8", "int16", "int32", "int64"]},
    **{name: counted(name) for name in ["uint8", "uint16", "uint32", "uint64"]},
    "bool": np.array([[False, True, False], [True, True, False]]),
    "scalar": np.float32(0),
    "vector": counted("int64", (3,)),
    "empty": counted("float32", (0, 4)),
    # A column of one row is in both orders; numpy then says C.
    "column": np.asfortranarray(counted("float16", (4, 1))),
    "fortran": np.asfortranarray(counted("float32")),
    "big-endian": counted(">f4"),
    "objects": np.array([{"a": 1}, None], dtype=object),
    "strings": np.array(["a", "bc"]),
    "bytes": np.array([b"a", b"bc"]),
    "complex": counted("complex64"),
    "records": np.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")]),
    "longdouble": counted("longdouble"),
    "dates": np.array(["2026-01-01"], dtype="datetime64[D]"),
}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in ARRAYS.items():
        np.save(folder / f"{name}.npy", array)
    for version in [(2, 0), (3, 0)]:
        with open(folder / f"version-{version[0]}.npy", "wb") as file:
            np.lib.format.write_array(file, ARRAYS["float32"], version=version)
    both = {"x": ARRAYS["float32"], "größe": counted("int32", (4, 64)) % 4}
    np.savez(folder / "stored.npz", **both)
    np.savez_compressed(folder / "deflated.npz", **both)
    np.savez(folder / "none.npz")
    print(f"{len(list(folder.iterdir()))} files by numpy {np.__version__}")


if __name__ == "__main__":
    main()
