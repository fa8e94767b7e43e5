"""Converts a Llama checkpoint with torch and coremltools, and prints what that took.

    convert_llama.py CHECKPOINT OUTPUT.mlpackage SHAPE [SHAPE ...]

The module is a plain Llama prefill: ids and a mask in, logits of the last position and all keys and values out, in
fp16 with enumerated shapes. What is printed begins with reading the checkpoint and ends with the saved package; of it,
`convert` and `save` once more by themselves. Starting Python and importing are not part of it.
"""
import json
import logging
import os
import resource
import sys
import time
import warnings

os.environ["TQDM_DISABLE"] = "1"
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import coremltools as ct  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from llama_module import Llama  # noqa: E402
from safetensors.torch import load_file  # noqa: E402


def main():
    checkpoint, output, *shapes = sys.argv[1:]
    shapes = [int(shape) for shape in shapes]
    usage = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])  # noqa: E731
    started, used = time.monotonic(), usage()
    with open(os.path.join(checkpoint, "config.json")) as file:
        config = json.load(file)
    model = Llama(config, load_file(os.path.join(checkpoint, "model.safetensors")), max(shapes)).eval()
    length = shapes[0]
    example = (torch.zeros(1, length, dtype=torch.int32), torch.zeros(1, 1, length, length))
    with torch.no_grad():
        traced = torch.jit.trace(model, example)
    traced_at, traced_used = time.monotonic(), usage()
    flexible = lambda make: ct.EnumeratedShapes([make(s) for s in shapes], default=make(length))  # noqa: E731
    converted = ct.convert(
        traced,
        inputs=[
            ct.TensorType("ids", flexible(lambda s: [1, s]), dtype=np.int32),
            ct.TensorType("mask", flexible(lambda s: [1, 1, s, s]), dtype=np.float16),
        ],
        minimum_deployment_target=ct.target.macOS15,
        compute_precision=ct.precision.FLOAT16,
        convert_to="mlprogram",
        skip_model_load=True,
    )
    converted.save(output)
    print(json.dumps({
        "seconds": time.monotonic() - started,
        "cpu_seconds": usage() - used,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "convert_seconds": time.monotonic() - traced_at,
        "convert_cpu_seconds": usage() - traced_used,
    }))


main()
