"""Golden matrices of every width that MLX packs, quantised and decoded by MLX: pip install "mlx[cpu]".

usage: mlx_affine.py src/convert/checkpoint/testdata/mlx-affine.safetensors
"""

import sys

import mlx.core as mx

ROWS, COLUMNS, GROUP = 3, 64, 32


def main(path):
    mx.random.seed(20)
    tensors = {}
    for bits in (2, 3, 4, 6, 8):
        numbers = mx.random.normal((ROWS, COLUMNS))
        weight, scales, biases = mx.quantize(numbers, group_size=GROUP, bits=bits)
        values = mx.dequantize(weight, scales, biases, group_size=GROUP, bits=bits)
        parts = {"weight": weight, "scales": scales, "biases": biases, "values": values}
        tensors.update({f"{bits}.{name}": part for name, part in parts.items()})
    mx.save_safetensors(path, tensors)


main(sys.argv[1])
