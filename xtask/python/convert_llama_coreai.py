"""Converts a Llama checkpoint with torch and coreai-torch, and prints what that took.

    convert_llama_coreai.py CHECKPOINT OUTPUT.aimodel SHAPE [SHAPE ...]

The module is the one that convert_llama.py gives to coremltools, in fp16, with a function for each shape. What is printed begins
with reading the checkpoint and ends with the saved asset; of it, what comes after torch.export once more by itself. Starting
Python and importing are not part of it.
"""
import json
import logging
import os
import resource
import sys
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import coreai_torch  # noqa: E402
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
    model = Llama(config, load_file(os.path.join(checkpoint, "model.safetensors")), max(shapes)).eval().half()
    converter = coreai_torch.TorchConverter(mode=coreai_torch.TorchConverter.Mode.RELEASE)
    names = ["logits"]
    for index in range(config["num_hidden_layers"]):
        names += [f"key_{index}", f"value_{index}"]
    exported_s, exported_cpu = 0.0, 0.0
    for length in shapes:
        begun, begun_used = time.monotonic(), usage()
        example = (torch.zeros(1, length, dtype=torch.int32), torch.zeros(1, 1, length, length, dtype=torch.float16))
        with torch.no_grad():
            program = torch.export.export(model, example).run_decompositions(coreai_torch.get_decomp_table())
        exported_s, exported_cpu = exported_s + time.monotonic() - begun, exported_cpu + usage() - begun_used
        converter.add_exported_program(
            program, input_names=["ids", "mask"], output_names=names, entrypoint_name=f"prefill_{length}"
        )
    converter.to_coreai().save_asset(Path(output))
    seconds, cpu = time.monotonic() - started, usage() - used
    print(json.dumps({
        "seconds": seconds,
        "cpu_seconds": cpu,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "convert_seconds": seconds - exported_s,
        "convert_cpu_seconds": cpu - exported_cpu,
    }))


main()
