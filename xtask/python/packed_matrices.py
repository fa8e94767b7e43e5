"""Golden matrices of the packings of quantised checkpoints, packed and decoded by the programs that write them.

usage: packed_matrices.py PROGRAM src/convert/checkpoint/testdata/FILE

PROGRAM             FILE                                 pip install --no-deps
auto-gptq           gptq.safetensors                     auto-gptq==0.7.1
gptqmodel           gptq-v2.safetensors                  gptqmodel==7.7.0, of which the unpacked sdist is enough
autoawq             awq.safetensors                      autoawq==0.2.9, of which the unpacked sdist is enough
compressed-tensors  compressed-tensors.safetensors       compressed-tensors==0.20.0
compressed-tensors  compressed-tensors-0.17.safetensors  compressed-tensors==0.17.1: has `g_idx` and whole fields to a word

All run on the CPU with torch 2.15.0, transformers 5.23.0, safetensors, numpy, accelerate, psutil, pydantic and loguru;
gptqmodel also imports pypcre, logbar, device-smi, tokenicer, threadpoolctl, defuser, dill and pillow. A file has
`CASE/a.PART` as the program packs it, `CASE/values` in f32 as the program decodes it, and in its metadata the
`quantization_config` of each case. Scales are given to the decoders in f32, so that no product is rounded.
"""

import importlib.util
import json
import sys
import types

import torch
from safetensors.torch import save_file

ROWS, COLUMNS = 32, 64


def submodules_of(name):
    """The package without what its `__init__` imports: kernels and models, of no use here."""
    package = types.ModuleType(name)
    package.__path__ = importlib.util.find_spec(name).submodule_search_locations
    sys.modules[name] = package


def numbers():
    # In fp16, as the linear layers of a checkpoint are; the programs keep the scales in this type.
    return torch.randn(ROWS, COLUMNS).half().float() * 0.1


def linear(weight):
    layer = torch.nn.Linear(COLUMNS, ROWS, bias=False)
    layer.weight.data = weight
    return layer


def grouped(index, parameters):
    """Scales and zeros by output and group, from the inputs of each group."""
    found = [parameters(torch.nonzero(index == group).flatten()) for group in range(int(index.max()) + 1)]
    return [torch.stack(each, dim=1) for each in zip(*found)]


def gptq_parameters(weight, bits, sym, index):
    """The integers' range over each group, as GPTQ's quantiser finds it; the weights, rounded to integers."""
    top = 2**bits - 1

    def parameters(inputs):
        low, high = weight[:, inputs].amin(1).clamp(max=0), weight[:, inputs].amax(1).clamp(min=0)
        if sym:
            high = torch.maximum(-low, high)
            low = -high
        scale = ((high - low) / top).half().float()
        zero = torch.full_like(scale, (top + 1) / 2) if sym else torch.round(-low / scale).clamp(1, top)
        return scale, zero

    scales, zeros = grouped(index, parameters)
    by_input = index.long()
    codes = (torch.round(weight / scales[:, by_input]) + zeros[:, by_input]).clamp(0, top)
    return scales, zeros, scales[:, by_input] * (codes - zeros[:, by_input])


# Bits, inputs of a group, whether zeros are in the middle, and whether inputs are in groups in any order.
GPTQ = {
    "4-32": (4, 32, False, False),
    "4-32-zero8": (4, 32, True, False),
    "8-row-zero128": (8, -1, True, False),
    "3-32": (3, 32, False, False),
    "2-64": (2, 64, False, False),
    "4-16-by-act": (4, 16, False, True),
}
GPTQ_V2 = {"4-32": GPTQ["4-32"], "8-row": (8, -1, False, False)}


def gptq_index(size, by_act):
    index = torch.arange(COLUMNS, dtype=torch.int32) // (COLUMNS if size == -1 else size)
    return index[torch.randperm(COLUMNS)] if by_act else index


def gptq_config(bits, size, sym, by_act, form):
    return {"bits": bits, "group_size": size, "desc_act": by_act, "sym": sym, "quant_method": "gptq", **form}


def gptq_parts(layer):
    return {part: getattr(layer, part).clone() for part in ("qweight", "qzeros", "scales", "g_idx")}


def auto_gptq():
    submodules_of("auto_gptq")
    from auto_gptq.nn_modules.qlinear.qlinear_cuda import QuantLinear

    def case(form, weight, index, scales, zeros):
        bits, size, sym, by_act = form
        layer = QuantLinear(bits, size, COLUMNS, ROWS, bias=False)
        layer.pack(linear(weight), scales, zeros.clone(), index)
        layer.scales = layer.scales.half()
        parts = gptq_parts(layer)
        layer.scales = layer.scales.float()
        values = layer(torch.eye(COLUMNS)).t()
        return gptq_config(*form, {"checkpoint_format": "gptq"}), parts, values

    for name, form in GPTQ.items():
        bits, size, sym, by_act = form
        index = gptq_index(size, by_act)
        scales, zeros, weight = gptq_parameters(numbers(), bits, sym, index)
        yield name, *case(form, weight, index, scales, zeros)
    # A zero that does not fit four bits: it is stored as one less, which does.
    index = gptq_index(32, False)
    scales = (torch.rand(ROWS, 2) * 0.02 + 0.004).half().float()
    codes = torch.randint(0, 16, (ROWS, COLUMNS))
    weight = scales[:, index.long()] * (codes - 16)
    yield "4-32-zero16", *case((4, 32, False, False), weight, index, scales, torch.full((ROWS, 2), 16.0))


def gptqmodel():
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear

    for name, form in GPTQ_V2.items():
        bits, size, sym, by_act = form
        index = gptq_index(size, by_act)
        scales, zeros, weight = gptq_parameters(numbers(), bits, sym, index)
        layer = TorchLinear(
            bits=bits, group_size=size, sym=sym, desc_act=by_act, in_features=COLUMNS, out_features=ROWS, bias=False
        )
        layer.pack_original(linear(weight.half()), scales, zeros, index)
        parts = gptq_parts(layer)
        layer.scales = layer.scales.float()
        yield name, gptq_config(*form, {"checkpoint_format": "gptq_v2"}), parts, layer.dequantize_weight().t()


def autoawq():
    submodules_of("awq")
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.utils.packing_utils import dequantize_gemm

    size = 32
    scales, zeros, weight = gptq_parameters(numbers(), 4, False, gptq_index(size, False))
    layer = WQLinear_GEMM.from_linear(linear(weight), 4, size, scales=scales.t(), zeros=zeros.t())
    parts = {part: getattr(layer, part) for part in ("qweight", "qzeros", "scales")}
    values = dequantize_gemm(layer.qweight, layer.qzeros, layer.scales.float(), 4, size).t()
    config = {"quant_method": "awq", "bits": 4, "group_size": size, "version": "gemm", "zero_point": True}
    yield "4-32", config, parts, values


def compressed_tensors():
    import compressed_tensors
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams

    is_old = compressed_tensors.__version__.startswith("0.17.")
    group = {"strategy": "group", "group_size": 32}
    channel = {"strategy": "channel"}
    byte_inputs = {"num_bits": 8, "strategy": "tensor"}
    cases = [
        ("4-32", "pack-quantized", {"num_bits": 4, "symmetric": False, **group}, None),
        ("4-32-symmetric", "pack-quantized", {"num_bits": 4, "symmetric": True, **group}, None),
        ("8-row-symmetric", "pack-quantized", {"num_bits": 8, "symmetric": True, **channel}, None),
        ("8-32", "pack-quantized", {"num_bits": 8, "symmetric": False, **group}, None),
        ("3-32", "pack-quantized", {"num_bits": 3, "symmetric": False, **group}, None),
        ("bytes", "int-quantized", {"num_bits": 8, "symmetric": True, **channel}, byte_inputs),
        ("bytes-asymmetric", "int-quantized", {"num_bits": 8, "symmetric": False, **channel}, byte_inputs),
        ("fp8", "float-quantized", {"num_bits": 8, "type": "float", **channel}, {**byte_inputs, "type": "float"}),
    ]
    if is_old:
        act_order = {"num_bits": 4, "symmetric": False, "actorder": "group", "strategy": "group", "group_size": 16}
        cases = [("4-16-by-act", "pack-quantized", act_order, None), cases[4]]
    for name, form, weights, inputs in cases:
        args = QuantizationArgs(**weights)
        scheme = QuantizationScheme(targets=["Linear"], weights=args, input_activations=inputs)
        weight = numbers()
        index = gptq_index(args.group_size or -1, "actorder" in weights)
        low, high = grouped(index, lambda inputs: (weight[:, inputs].amin(1), weight[:, inputs].amax(1)))
        scales, zeros = calculate_qparams(low.half(), high.half(), args)
        state = {"weight": weight, "weight_scale": scales.half(), "weight_zero_point": zeros}
        if "actorder" in weights:
            state["weight_g_idx"] = index
        if inputs:
            state["input_scale"] = torch.tensor([0.5])
        config = QuantizationConfig(
            config_groups={"group_0": scheme}, format=form, quantization_status="compressed", ignore=["lm_head"]
        ).model_dump(mode="json")
        config["version"] = compressed_tensors.__version__
        compressor = BaseCompressor.get_value_from_registry(form)
        parts = compressor.compress(state, scheme)
        # Floats of eight bits are refused by their configuration.
        if "float" in form:
            yield name, config, {}, None
            continue
        wide = {**parts, "weight_scale": parts["weight_scale"].float()}
        yield name, config, parts, compressor.decompress(wide, scheme)["weight"]


PROGRAMS = {
    "auto-gptq": auto_gptq,
    "gptqmodel": gptqmodel,
    "autoawq": autoawq,
    "compressed-tensors": compressed_tensors,
}


def main(program, path):
    torch.manual_seed(20)
    tensors, metadata = {}, {}
    for name, config, parts, values in PROGRAMS[program]():
        metadata[name] = json.dumps(config)
        if values is not None:
            assert values.shape == (ROWS, COLUMNS) and values.dtype == torch.float32, (name, values.dtype)
            tensors[f"{name}/values"] = values.contiguous()
        tensors.update({f"{name}/a.{part}": each.contiguous() for part, each in parts.items()})
    save_file(tensors, path, metadata)


main(*sys.argv[1:])
