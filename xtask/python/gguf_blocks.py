"""Golden blocks of every GGUF type that is read, decoded by the `gguf` package: pip install gguf.

usage: gguf_blocks.py src/convert/checkpoint/testdata/gguf-blocks.safetensors
"""

import json
import struct
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

BLOCKS = 3
# Where a block has fp16 scales: random bytes there could be NaN.
SCALES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "F16": [0],
    "BF16": [],
}


def blocks(random, name):
    kind = GGMLQuantizationType[name]
    _, size = GGML_QUANT_SIZES[kind]
    if name in ("F16", "BF16"):
        numbers = random.uniform(-4, 4, 32).astype(np.float32)
        words = numbers.astype(np.float16).view(np.uint16)
        return (words if name == "F16" else (numbers.view(np.uint32) >> 16).astype(np.uint16)).view(np.uint8)
    data = random.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    for at in SCALES[name]:
        scales = random.uniform(-2, 2, BLOCKS).astype(np.float16)
        data[:, at : at + 2] = scales.view(np.uint8).reshape(BLOCKS, 2)
    return data.reshape(-1)


def main(path):
    random = np.random.default_rng(20)
    header, data = {}, b""
    for name in SCALES:
        stored = blocks(random, name)
        values = dequantize(stored.reshape(1, -1), GGMLQuantizationType[name]).astype("<f4").reshape(-1)
        for key, kind, array in ((f"{name}.values", "F32", values), (f"{name}.bytes", "U8", stored)):
            part = array.tobytes()
            header[key] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(part)]}
            data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


main(sys.argv[1])
