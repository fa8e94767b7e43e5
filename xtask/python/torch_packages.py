"""Converts small torch modules with coremltools and writes them as conformance cases.

    torch_packages.py FOLDER

Each case is FOLDER/<name>/ with model.mlpackage, io.safetensors and case.json, as the conformance corpus has them.
The expected outputs are those of torch, always computed in float32; the compressed models are compared with torch
running on the weights that coremltools gets when it decompresses them. Everything is seeded by the case's name.
"""
import json
import logging
import os
import shutil
import sys
import warnings
import zlib
from collections import Counter
from dataclasses import dataclass, field

os.environ["TQDM_DISABLE"] = "1"
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import coremltools as ct  # noqa: E402
import coremltools.optimize as cto  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402
from torch import nn  # noqa: E402

FP32_TOLERANCE = 1e-4
PRECISIONS = {"fp32": (ct.precision.FLOAT32, np.float32), "fp16": (ct.precision.FLOAT16, np.float16)}


class ConvNet(nn.Module):
    """The first normalisation is folded into its convolution, the second has none before it and stays."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU())
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(12)
        self.depthwise = nn.Conv2d(12, 24, 5, padding=2, groups=12)
        self.pointwise = nn.Conv2d(24, 8, 1)
        self.nearest = nn.Upsample(scale_factor=2, mode="nearest")
        self.bilinear = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.mix = nn.Conv2d(16, 8, 3, dilation=2, padding="same")
        self.head = nn.Linear(8 * 4 * 5, 10)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias)
                nn.init.normal_(module.running_mean)
                nn.init.uniform_(module.running_var, 0.5, 2.0)

    def forward(self, image):
        x = self.norm(self.pool(self.stem(image)))
        x = torch.relu(self.pointwise(torch.relu(self.depthwise(x))))
        wide = torch.cat([self.nearest(x), self.bilinear(x)], dim=1)
        features = torch.relu(self.mix(wide))
        pooled = F.avg_pool2d(features, 4, stride=4, ceil_mode=True)
        return self.head(pooled.flatten(1)), features


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 10, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, sequence):
        outputs, (hidden, cell) = self.lstm(sequence)
        return outputs, hidden, cell


class Decoder(nn.Module):
    """One transformer block with its keys and values in states, as language models are converted.

    The mask's last dimension says how many tokens there are including these, so where their keys go.
    """

    VOCABULARY, WIDTH, HEADS, KEY_HEADS, HEAD, CONTEXT = 32, 24, 4, 2, 6, 16

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(self.VOCABULARY, self.WIDTH)
        self.query = nn.Linear(self.WIDTH, self.HEADS * self.HEAD)
        self.key = nn.Linear(self.WIDTH, self.KEY_HEADS * self.HEAD)
        self.value = nn.Linear(self.WIDTH, self.KEY_HEADS * self.HEAD)
        self.out = nn.Linear(self.HEADS * self.HEAD, self.WIDTH, bias=False)
        self.gate = nn.Linear(self.WIDTH, 40, bias=False)
        self.up = nn.Linear(self.WIDTH, 40, bias=False)
        self.down = nn.Linear(40, self.WIDTH, bias=False)
        self.attention_norm = nn.LayerNorm(self.WIDTH)
        self.norm_scale = nn.Parameter(torch.rand(self.WIDTH) + 0.5)
        self.logits = nn.Linear(self.WIDTH, self.VOCABULARY, bias=False)
        angles = torch.outer(torch.arange(self.CONTEXT), 10000.0 ** (-torch.arange(0, self.HEAD, 2) / self.HEAD))
        self.cos = nn.Parameter(torch.cat([angles, angles], dim=-1).cos(), requires_grad=False)
        self.sin = nn.Parameter(torch.cat([angles, angles], dim=-1).sin(), requires_grad=False)
        cache = (1, self.KEY_HEADS, self.CONTEXT, self.HEAD)
        # Core ML has states of fp16 only, so the reference keeps no more than that.
        self.register_buffer("key_cache", torch.zeros(cache, dtype=torch.float16))
        self.register_buffer("value_cache", torch.zeros(cache, dtype=torch.float16))

    def forward(self, tokens, mask):
        x = self.embedding(tokens)
        x = x + self.out(self.attend(self.attention_norm(x), mask))
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.norm_scale
        x = x + self.down(F.silu(self.gate(normed)) * self.up(normed))
        return self.logits(x)

    def attend(self, x, mask):
        end, length = mask.shape[-1], x.shape[1]
        begin = end - length
        cos, sin = self.cos[begin:end], self.sin[begin:end]
        heads = lambda y, count: y.view(1, -1, count, self.HEAD).transpose(1, 2)  # noqa: E731
        query = rotate(heads(self.query(x), self.HEADS), cos, sin)
        self.key_cache[:, :, begin:end, :] = rotate(heads(self.key(x), self.KEY_HEADS), cos, sin).half()
        self.value_cache[:, :, begin:end, :] = heads(self.value(x), self.KEY_HEADS).half()
        group = self.HEADS // self.KEY_HEADS
        keys = self.key_cache[:, :, :end, :].to(x.dtype).repeat_interleave(group, dim=1)
        values = self.value_cache[:, :, :end, :].to(x.dtype).repeat_interleave(group, dim=1)
        attended = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        return attended.transpose(1, 2).reshape(1, -1, self.HEADS * self.HEAD)


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.quantized = nn.Linear(48, 64)
        self.palettized = nn.Linear(64, 64)
        self.plain = nn.Linear(64, 12)

    def forward(self, x):
        return self.plain(F.gelu(self.palettized(torch.tanh(self.quantized(x)))))


@dataclass
class Case:
    name: str
    precision: str
    target: ct.target
    module: nn.Module
    inputs: list
    outputs: list
    # One dictionary of arrays per prediction.
    steps: list
    states: list = field(default_factory=list)
    # From the converted model to the one that is saved, changing the module's weights to those it then has.
    compress: object = None


def convnet(name, precision):
    shape, dtype = (2, 3, 29, 37), PRECISIONS[precision][1]
    inputs = [ct.TensorType("image", shape, dtype)]
    steps = [{"image": noise(shape, dtype)}]
    return Case(name, precision, ct.target.iOS16, ConvNet(), inputs, ["scores", "features"], steps)


def recurrent(name, precision):
    shape, dtype = (3, 7, 6), PRECISIONS[precision][1]
    inputs = [ct.TensorType("sequence", shape, dtype)]
    steps = [{"sequence": noise(shape, dtype)}]
    return Case(name, precision, ct.target.iOS17, Recurrent(), inputs, ["outputs", "hidden", "cell"], steps)


def decoder(name, precision):
    module, dtype = Decoder(), PRECISIONS[precision][1]
    length = ct.RangeDim(1, module.CONTEXT, default=1)
    inputs = [
        ct.TensorType("tokens", (1, length), np.int32),
        ct.TensorType("mask", (1, 1, length, ct.RangeDim(1, module.CONTEXT, default=1)), dtype),
    ]
    states = [
        ct.StateType(ct.TensorType(shape=getattr(module, name).shape, dtype=np.float16), name)
        for name in ["key_cache", "value_cache"]
    ]
    steps, end = [], 0
    for count in [5, 1, 1, 2, 1, 1]:
        end += count
        hidden = torch.ones(count, end).triu(end - count + 1)
        mask = torch.zeros(1, 1, count, end).masked_fill(hidden.bool(), -1e4)
        tokens = torch.randint(module.VOCABULARY, (1, count))
        steps.append({"tokens": tokens.numpy().astype(np.int32), "mask": mask.numpy().astype(dtype)})
    return Case(name, precision, ct.target.iOS18, module, inputs, ["logits"], steps, states)


def perceptron(target, quantization, palette):
    """An MLP whose first layer is quantised to int8 and whose second is palettised to 4 bits."""

    def make(name, precision):
        shape, dtype = (3, 48), PRECISIONS[precision][1]
        inputs = [ct.TensorType("x", shape, dtype)]
        steps = [{"x": noise(shape, dtype)}]
        return Case(name, precision, target, Perceptron(), inputs, ["y"], steps, compress=compress)

    def compress(model, module):
        quantized, palettized, _ = [op.weight.op.name for op in linears(model)]
        config = cto.coreml.OpLinearQuantizerConfig(mode="linear", dtype="int8", weight_threshold=0, **quantization)
        model = cto.coreml.linear_quantize_weights(model, only(quantized, config))
        config = cto.coreml.OpPalettizerConfig(mode="uniform", nbits=4, weight_threshold=0, **palette)
        model = cto.coreml.palettize_weights(model, only(palettized, config))
        plain = linears(cto.coreml.decompress_weights(model))
        for layer, op in zip([module.quantized, module.palettized, module.plain], plain, strict=True):
            layer.weight.data = torch.from_numpy(op.weight.val.astype(np.float32))
        return model

    return make


def linears(model):
    return program(model).functions["main"].find_ops(op_type="linear")


def only(name, config):
    return cto.coreml.OptimizationConfig(op_name_configs={name: config})


CASES = {
    "convnet": convnet,
    "lstm": recurrent,
    "decoder": decoder,
    "mlp-ios16": perceptron(ct.target.iOS16, {}, {}),
    "mlp-ios18": perceptron(
        ct.target.iOS18,
        {"granularity": "per_block", "block_size": 16},
        {"granularity": "per_grouped_channel", "group_size": 16},
    ),
}


def noise(shape, dtype):
    return torch.randn(shape).numpy().astype(dtype)


def program(model):
    return model._mil_program


def convert(case):
    module = case.module.eval()
    examples = [torch.from_numpy(as_torch(value)) for value in case.steps[0].values()]
    with torch.no_grad():
        traced = torch.jit.trace(module, examples, check_trace=False)
    for state in case.states:
        getattr(traced, state.name).zero_()
    precision, dtype = PRECISIONS[case.precision]
    outputs = [ct.TensorType(name, dtype=dtype) for name in case.outputs]
    model = ct.convert(
        traced,
        inputs=case.inputs,
        outputs=outputs,
        states=case.states or None,
        compute_precision=precision,
        minimum_deployment_target=case.target,
        convert_to="mlprogram",
        skip_model_load=True,
    )
    return case.compress(model, module) if case.compress else model


def as_torch(value):
    """Torch computes in float32, whatever the model takes."""
    return value.astype(np.float32) if value.dtype == np.float16 else value


def references(case):
    for state in case.states:
        getattr(case.module, state.name).zero_()
    for step in case.steps:
        with torch.no_grad():
            outputs = case.module(*[torch.from_numpy(as_torch(value)) for value in step.values()])
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        yield {name: value.numpy().copy() for name, value in zip(case.outputs, outputs, strict=True)}


def operations(block):
    for op in block.operations:
        yield op
        for inner in op.blocks:
            yield from operations(inner)


def description(case, model, expected):
    function = model.get_spec().mlProgram.functions["main"]
    blocks = function.block_specializations.values()
    ops = Counter(op.type for block in blocks for op in operations(block))
    dtype = np.dtype(PRECISIONS[case.precision][1]).name
    # For fp16 nothing is granted beyond the scorer's own rule: a hundredth of the largest value.
    tolerance = FP32_TOLERANCE if case.precision == "fp32" else 0.0
    return {
        "case": case.name,
        "test_id": f"torch_packages.py::{case.name}",
        "source": "torch_packages",
        "op_types": dict(sorted(ops.items())),
        "opset": function.opset,
        "target": case.target.name,
        "backend": ["mlprogram", case.precision],
        "inputs": [
            {"name": name, "dtype": value.dtype.name, "shape": value.shape} for name, value in case.steps[0].items()
        ],
        "outputs": [
            {"name": name, "dtype": dtype, "expected_dtype": value.dtype.name, "expected_shape": value.shape}
            for name, value in expected[0].items()
        ],
        "atol": tolerance,
        "rtol": tolerance,
        "test_effective_atol": tolerance,
        "test_effective_rtol": tolerance,
        "also_compare_shapes": True,
        "symbolic": any(isinstance(size, ct.RangeDim) for entry in case.inputs for size in entry.shape.shape),
        "states": [{"name": state.name, "dtype": "float16", "initial": "zeros"} for state in case.states],
        "steps": len(case.steps),
        "function": None,
        "known_issue_notes": [],
        "expect_error": False,
    }


def write(folder, name, precision, make):
    torch.manual_seed(zlib.crc32(name.encode()))
    case = make(name, precision)
    model = convert(case)
    expected = list(references(case))
    path = os.path.join(folder, name)
    os.makedirs(path)
    model.save(os.path.join(path, "model.mlpackage"))
    tensors = {}
    for number, (inputs, outputs) in enumerate(zip(case.steps, expected, strict=True)):
        at = f"@{number}" if number else ""
        tensors |= {f"in{at}.{name}": np.ascontiguousarray(value) for name, value in inputs.items()}
        tensors |= {f"out{at}.{name}": np.ascontiguousarray(value) for name, value in outputs.items()}
    save_file(tensors, os.path.join(path, "io.safetensors"))
    with open(os.path.join(path, "case.json"), "w") as file:
        json.dump(description(case, model, expected), file, indent=1)


def main():
    folder = sys.argv[1]
    shutil.rmtree(folder, ignore_errors=True)
    for name, make in CASES.items():
        for precision in PRECISIONS:
            print(f"{name}-{precision}", flush=True)
            write(folder, f"{name}-{precision}", precision, make)


if __name__ == "__main__":
    main()
