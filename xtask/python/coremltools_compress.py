"""Compresses a package with coremltools.optimize: KIND PACKAGE OUTPUT. Prints the CPU seconds of the call alone."""

import json
import resource
import sys

import coremltools as ct
import coremltools.optimize.coreml as cto


def linear(dtype, granularity, block_size=32):
    config = cto.OpLinearQuantizerConfig(
        mode="linear_symmetric", dtype=dtype, granularity=granularity, block_size=block_size, weight_threshold=2048
    )
    return lambda model: cto.linear_quantize_weights(model, cto.OptimizationConfig(global_config=config))


def palette(nbits, group_size=None):
    form = {"granularity": "per_grouped_channel", "group_size": group_size} if group_size else {}
    config = cto.OpPalettizerConfig(mode="kmeans", nbits=nbits, weight_threshold=2048, **form)
    return lambda model: cto.palettize_weights(model, cto.OptimizationConfig(global_config=config))


KINDS = {
    "int8": lambda: linear("int8", "per_channel"),
    "int4": lambda: linear("int4", "per_block"),
    "lut4:tensor": lambda: palette(4),
    "lut6:tensor": lambda: palette(6),
    "lut4:group=16": lambda: palette(4, 16),
    "lut6:group=16": lambda: palette(6, 16),
}


def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    kind, package, output = sys.argv[1:]
    model = ct.models.MLModel(package, skip_model_load=True)
    before = cpu()
    compressed = KINDS[kind]()(model)
    seconds = cpu() - before
    compressed.save(output)
    print(json.dumps({"call_seconds": seconds}))


main()
