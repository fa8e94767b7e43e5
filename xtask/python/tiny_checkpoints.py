"""Writes a small random checkpoint per architecture with transformers' own classes, and what transformers computes.

    tiny_checkpoints.py FOLDER

Each is FOLDER/<name>/ as `save_pretrained` writes it, with a byte-level tokenizer and reference.safetensors: token
ids `ids.N` (int32) and the logits of every position `logits.N` (float32, `[len, vocabulary]`). The logits come from
the stored weights, loaded again and computed in float32. Everything is seeded by the checkpoint's name.
"""
import json
import os
import pathlib
import shutil
import sys
import warnings
import zlib
from dataclasses import dataclass
from typing import Callable

os.environ["TQDM_DISABLE"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import tokenizers  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch import nn  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

SPECIAL = ["<s>", "</s>", "<unk>", "<pad>"]
VOCABULARY = 256 + len(SPECIAL)
# One token, within every window, and beyond them.
LENGTHS = [1, 6, 24, 40]
WINDOW = 8


@dataclass
class Checkpoint:
    """A checkpoint to write: its configuration, how it is stored, and what is changed in `config.json`."""

    config: Callable[[], transformers.PretrainedConfig]
    dtype: torch.dtype = torch.float32
    shard: str | None = None
    pickled: bool = False
    rewrite: Callable[[dict], dict] = lambda config: config
    change: Callable[[nn.Module], nn.Module] = lambda model: model


def sizes(**more):
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "bos_token_id": 256,
        "eos_token_id": 257,
        "pad_token_id": 259,
        **more,
    }


def rope(kind, base, **more):
    return {"rope_type": kind, "rope_theta": base, **more}


def llama(scaling=None, **more):
    parameters = scaling or rope("default", 10_000.0)
    return lambda: transformers.LlamaConfig(**sizes(rope_parameters=parameters, **more))


def gpt2(**more):
    return lambda: transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=64,
        n_layer=3,
        n_head=4,
        n_positions=64,
        bos_token_id=256,
        eos_token_id=257,
        **more,
    )


LLAMA3 = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32}


def older_spelling(config):
    """`config.json` as versions of transformers before 5 wrote it."""
    scaling = config.pop("rope_parameters")
    config["rope_theta"] = scaling.pop("rope_theta")
    config["rope_scaling"] = None if scaling["rope_type"] == "default" else scaling
    config["torch_dtype"] = config.pop("dtype")
    return config


def as_student(config):
    return {**config, "architectures": ["StudentForCausalLM"], "model_type": "student_gqa"}


class GateNorm(nn.LayerNorm):
    """A layer norm of the activated gate."""


class Gated(nn.Module):
    """`value * (alpha * activation(gate) + 1 - alpha)` with both linear in the input."""

    def __init__(self, width, activation, alpha, normed):
        super().__init__()
        self.value_proj = nn.Linear(width, width)
        self.gate_proj = nn.Linear(width, width)
        self.activation = activation
        self.gate_norm = GateNorm(width) if normed else nn.Identity()
        if alpha is None:
            self.alpha_param = nn.Parameter(torch.zeros(()))
        else:
            self.register_buffer("alpha_fixed", torch.tensor(alpha))

    def forward(self, x):
        gate = self.gate_norm(self.activation(self.gate_proj(x)))
        alpha = torch.sigmoid(self.alpha_param) if hasattr(self, "alpha_param") else self.alpha_fixed
        return self.value_proj(x) * (alpha * gate + 1 - alpha)


class GatedMlp(nn.Module):
    """The MLP of a paGating layer."""

    def __init__(self, hidden, inner, activation, alpha, normed):
        super().__init__()
        self.fc_in = nn.Linear(hidden, inner)
        self.act = Gated(inner, activation, alpha, normed)
        self.fc_out = nn.Linear(inner, hidden)

    def forward(self, x):
        return self.fc_out(self.act(self.fc_in(x)))


def gated(activation, alpha, normed):
    """Puts paGating MLPs into a GPT-2."""

    def change(model):
        for block in model.transformer.h:
            block.mlp = GatedMlp(model.config.n_embd, model.config.n_inner, activation, alpha, normed)
        return model

    return change


def phi3(**more):
    return lambda: transformers.Phi3Config(**sizes(original_max_position_embeddings=128, **more))


CHECKPOINTS = {
    "llama": Checkpoint(llama(tie_word_embeddings=True)),
    "llama-biases-llama3": Checkpoint(
        llama(rope("llama3", 5000.0, **LLAMA3), attention_bias=True, mlp_bias=True, head_dim=32),
        dtype=torch.bfloat16,
        shard="60KB",
    ),
    "llama-linear-older": Checkpoint(
        llama(rope("linear", 10_000.0, factor=2.0)), dtype=torch.float16, rewrite=older_spelling
    ),
    "llama-yarn-older": Checkpoint(llama(rope("yarn", 10_000.0, **YARN)), rewrite=older_spelling),
    "mistral-window": Checkpoint(
        lambda: transformers.MistralConfig(**sizes(sliding_window=WINDOW, head_dim=16)), dtype=torch.float16
    ),
    "qwen2": Checkpoint(lambda: transformers.Qwen2Config(**sizes()), dtype=torch.bfloat16),
    "qwen2-window": Checkpoint(
        lambda: transformers.Qwen2Config(
            **sizes(use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1, tie_word_embeddings=True)
        )
    ),
    "qwen3": Checkpoint(lambda: transformers.Qwen3Config(**sizes(head_dim=32)), dtype=torch.bfloat16),
    "gemma3": Checkpoint(
        lambda: transformers.Gemma3TextConfig(
            **sizes(
                head_dim=32,
                num_hidden_layers=4,
                sliding_window=WINDOW,
                layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
                query_pre_attn_scalar=24,
                final_logit_softcapping=4.0,
                rope_parameters={
                    "sliding_attention": rope("default", 10_000.0),
                    "full_attention": rope("linear", 1_000_000.0, factor=8.0),
                },
            )
        ),
        dtype=torch.bfloat16,
    ),
    "phi3": Checkpoint(
        phi3(
            sliding_window=WINDOW,
            rope_parameters=rope("default", 10_000.0, partial_rotary_factor=0.5),
        ),
        dtype=torch.bfloat16,
    ),
    "phi3-longrope": Checkpoint(
        lambda: transformers.Phi3Config(
            **sizes(
                original_max_position_embeddings=64,
                max_position_embeddings=256,
                rope_parameters=rope(
                    "longrope",
                    10_000.0,
                    short_factor=[1.0, 1.02, 1.05, 1.1, 1.2, 1.4, 1.7, 2.0],
                    long_factor=[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
                    original_max_position_embeddings=64,
                ),
            )
        )
    ),
    "gpt2": Checkpoint(gpt2()),
    "gpt2-by-layer": Checkpoint(gpt2(scale_attn_by_inverse_layer_idx=True, n_inner=80), dtype=torch.float16),
    "gpt2-bin": Checkpoint(gpt2(), pickled=True),
    "pagating": Checkpoint(gpt2(n_inner=96), change=gated(torch.sigmoid, 0.7, False)),
    "pagating-learned": Checkpoint(
        gpt2(n_inner=96, pagating_unit="paGELU"), change=gated(F.gelu, None, True)
    ),
    "student": Checkpoint(llama(), dtype=torch.bfloat16, shard="100KB", rewrite=as_student),
}


def randomise(model, generator):
    """Weights that keep activations near one, norms and biases that are not trivial."""
    transposed = {id(m.weight) for m in model.modules() if isinstance(m, transformers.pytorch_utils.Conv1D)}
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if id(parameter) in embeddings:
            value = noise * 0.7
        elif parameter.dim() == 2:
            fan_in = parameter.shape[0] if id(parameter) in transposed else parameter.shape[1]
            value = noise * 1.1 / fan_in**0.5
        elif name.endswith("norm.weight") or ".ln_" in name and name.endswith("weight"):
            value = noise * 0.3 + (0.0 if "Gemma3" in type(model).__name__ else 1.0)
        else:
            value = noise * 0.3
        parameter.data = value


def write_tokenizer(folder):
    """One token per byte, and the special ones."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={text: i for i, text in enumerate(alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    names = dict(zip(["bos_token", "eos_token", "unk_token", "pad_token"], SPECIAL))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)


def store(checkpoint, model, folder):
    model.to(checkpoint.dtype)
    model.save_pretrained(folder, **({"max_shard_size": checkpoint.shard} if checkpoint.shard else {}))
    if checkpoint.pickled:
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    path = folder / "config.json"
    config = checkpoint.rewrite(json.loads(path.read_text()))
    path.write_text(json.dumps(config, indent=2) + "\n")


def load(checkpoint, folder):
    """The model again from what was stored, by transformers wherever it knows the class."""
    config = json.loads((folder / "config.json").read_text())
    known = config["model_type"] in transformers.models.auto.configuration_auto.CONFIG_MAPPING
    if known and checkpoint.change is Checkpoint.change:
        return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = checkpoint.change(transformers.AutoModelForCausalLM.from_config(checkpoint.config()))
    stored = {}
    for file in folder.glob("model*.safetensors"):
        stored.update(load_file(file))
    missing, unexpected = model.load_state_dict({k: v.float() for k, v in stored.items()}, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        sys.exit(f"{folder.name}: cannot load {missing} {unexpected}")
    model.tie_weights()
    return model.float()


def reference(model, generator):
    tensors = {}
    for index, length in enumerate(LENGTHS):
        ids = torch.randint(0, VOCABULARY, (length,), generator=generator, dtype=torch.int32)
        with torch.no_grad():
            logits = model(ids[None].long(), use_cache=False).logits[0].float()
        if logits.std(-1).min() < 0.3:
            sys.exit(f"the logits are flat: {logits.std(-1)}")
        tensors |= {f"ids.{index}": ids, f"logits.{index}": logits.contiguous()}
    return tensors


def write(name, checkpoint, folder):
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    model = transformers.AutoModelForCausalLM.from_config(checkpoint.config(), attn_implementation="eager")
    model = checkpoint.change(model)
    randomise(model, generator)
    store(checkpoint, model, folder)
    write_tokenizer(folder)
    loaded = load(checkpoint, folder).eval()
    save_file(reference(loaded, generator), folder / "reference.safetensors")


def main():
    root = pathlib.Path(sys.argv[1])
    shutil.rmtree(root, ignore_errors=True)
    for name, checkpoint in CHECKPOINTS.items():
        folder = root / name
        folder.mkdir(parents=True)
        write(name, checkpoint, folder)
    print(f"{len(CHECKPOINTS)} checkpoints in {root}")


if __name__ == "__main__":
    main()
