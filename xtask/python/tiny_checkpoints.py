"""Writes a small random checkpoint per architecture with transformers' own classes, and what transformers computes.

    tiny_checkpoints.py FOLDER

Each is FOLDER/<name>/ as `save_pretrained` writes it, with a byte-level tokenizer and reference.safetensors: token
ids `ids.N` (int32) and the logits after each prefix `logits.N` (float32, `[len, vocabulary]`), a prompt with its greedy
continuation `greedy` (int32), and `notes` in the metadata: the length of that prompt, and the boundaries of the
configuration, beyond which something else is computed. The logits come from the stored weights, loaded again and
computed in float32. Everything is seeded by the checkpoint's name.
"""
import copy
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

# Threads gain nothing on models of this size.
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

SPECIAL = ["<s>", "</s>", "<unk>", "<pad>"]
VOCABULARY = 256 + len(SPECIAL)
# One token, within every boundary, and beyond them.
LENGTHS = [1, 6, 24, 48]
WINDOW = 8
# What models were first trained for.
ORIGINAL = 20
# Tokens of the prompt that is continued, tokens with the continuation (beyond every boundary), how many prompts are tried,
# and by how much every choice must be preferred: fp16 rounds logits by less.
PROMPT, CONTINUED, PROMPTS, GAP = 4, ORIGINAL + 6, 64, 0.015
# The largest of the least cosines beyond a boundary that a configuration without it may have.
OVERLOOKED = 0.999


@dataclass
class Checkpoint:
    """A checkpoint to write: its configuration, how it is stored, and what is changed in `config.json`."""

    config: Callable[[], transformers.PretrainedConfig]
    dtype: torch.dtype = torch.float32
    shard: str | None = None
    pickled: bool = False
    rewrite: Callable[[dict], dict] = lambda config: config
    change: Callable[[nn.Module], nn.Module] = lambda model: model
    model: type = transformers.AutoModelForCausalLM


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
        n_positions=LENGTHS[-1],
        bos_token_id=256,
        eos_token_id=257,
        **more,
    )


LLAMA3 = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": ORIGINAL}
YARN = {"factor": 4.0, "original_max_position_embeddings": ORIGINAL}
LONGROPE = {
    "short_factor": [1.0, 1.02, 1.05, 1.1, 1.2, 1.4, 1.7, 2.0],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
    "original_max_position_embeddings": ORIGINAL,
}


def older_spelling(config):
    """`config.json` as versions of transformers before 5 wrote it."""
    scaling = config.pop("rope_parameters")
    config["rope_theta"] = scaling.pop("rope_theta")
    config["rope_scaling"] = None if scaling["rope_type"] == "default" else scaling
    config["torch_dtype"] = config.pop("dtype")
    return config


def as_class(name, kind):
    """`config.json` of a class that transformers does not have."""
    return lambda config: {**config, "architectures": [name], "model_type": kind}


def outside_the_section(config):
    """The original length beside `rope_parameters`, where it has priority over the one within."""
    config["original_max_position_embeddings"] = ORIGINAL
    config["rope_parameters"]["original_max_position_embeddings"] = 2 * ORIGINAL
    return config


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
    return lambda: transformers.Phi3Config(**sizes(**{"original_max_position_embeddings": 128, **more}))


def gemma3(**more):
    return transformers.Gemma3TextConfig(
        **sizes(
            **{
                "head_dim": 32,
                "num_hidden_layers": 4,
                "sliding_window": WINDOW,
                "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
                "query_pre_attn_scalar": 24,
                "rope_parameters": {
                    "sliding_attention": rope("default", 10_000.0),
                    "full_attention": rope("linear", 1_000_000.0, factor=8.0),
                },
                **more,
            }
        )
    )


def gemma3_with_images(**text):
    """A Gemma 3 that sees images, of which the text model is exported."""
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    # The token of images lies outside the vocabulary.
    return lambda: transformers.Gemma3Config(
        text_config=gemma3(**text).to_dict(), vision_config=vision, mm_tokens_per_image=1, image_token_index=VOCABULARY
    )


GEMMA4 = {
    "hidden_size": 64,
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": WINDOW,
    "hidden_size_per_layer_input": 16,
    "vocab_size_per_layer_input": VOCABULARY,
}


def gemma4(**more):
    """The text model of a Gemma 4: the last layers have keys and values of earlier ones, and inputs of their own."""
    return lambda: transformers.Gemma4TextConfig(**sizes(**{**GEMMA4, **more}))


def published(config):
    """`config.json` as published checkpoints of Gemma 4 have it, without a section for each layer."""
    config.pop("per_layer_config")
    return {**config, "global_head_dim": GEMMA4["global_head_dim"]}


def gemma4_that_sees(**text):
    """A Gemma 4 that sees and hears, of which the text model is exported."""
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = {**small, "num_key_value_heads": 2, "head_dim": 8}
    return lambda: transformers.Gemma4Config(
        text_config=gemma4(**text)().to_dict(), vision_config=vision, audio_config=None, image_token_id=VOCABULARY - 1
    )


def decoder(kind, **more):
    """A configuration of a class of transformers by its name."""
    return lambda: getattr(transformers, f"{kind}Config")(**sizes(**more))


def mistral3_with_images(**text):
    """A Mistral that sees images, of which the text model is exported."""
    vision = {
        "model_type": "pixtral",
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "head_dim": 8,
        "image_size": 28,
        "patch_size": 14,
    }
    return lambda: transformers.Mistral3Config(
        text_config={"model_type": "ministral3", **sizes(**text)},
        vision_config=vision,
        image_token_index=VOCABULARY,
    )


MUP = ["embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"]


def minicpm(sizes, scale_emb, scale_depth, dim_model_base):
    """A MiniCPM, which this transformers does not have, as the Granite that computes the same."""
    return lambda: transformers.GraniteConfig(
        **sizes,
        embedding_multiplier=scale_emb,
        attention_multiplier=(sizes["hidden_size"] / sizes["num_attention_heads"]) ** -0.5,
        residual_multiplier=scale_depth / sizes["num_hidden_layers"] ** 0.5,
        logits_scaling=sizes["hidden_size"] / dim_model_base,
    )


def as_minicpm(**scales):
    """`config.json` of a MiniCPM instead of a Granite."""
    named = as_class("MiniCPMForCausalLM", "minicpm")
    return lambda config: {**{key: named(config)[key] for key in config if key not in MUP}, **scales}


def granite4(layers):
    """A Granite 4 without experts, all of whose layers attend."""
    return {
        "num_local_experts": 0,
        "layer_types": ["full_attention"] * layers,
        "shared_intermediate_size": 88,
        "mamba_n_heads": 4,
    }


# Sizes that no tile of a kernel divides.
AWKWARD = {
    "hidden_size": 60,
    "intermediate_size": 90,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "num_hidden_layers": 5,
}
GEMMA3_AWKWARD = {
    **AWKWARD,
    "head_dim": 22,
    "query_pre_attn_scalar": 22,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "sliding_attention": rope("default", 10_000.0),
        "full_attention": rope("default", 1_000_000.0),
    },
}
GRANITE = {
    "embedding_multiplier": 1.5,
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.6,
    "logits_scaling": 0.8,
}
MINISTRAL3 = {"mscale": 1.0, "mscale_all_dim": 1.0, **YARN}
SOME_WINDOWS = ["sliding_attention", "full_attention", "sliding_attention"]

# Layers that keep states of fixed size beside those that attend.
LFM2 = {"block_multiple_of": 8, "tie_word_embeddings": True}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 48,
    "linear_value_head_dim": 32,
}


def qwen3_5(**more):
    return lambda: transformers.Qwen3_5TextConfig(**sizes(**{"head_dim": 32, **DELTA, **more}))


def qwen3_5_with_images(**text):
    """A Qwen 3.5 that sees images, of which the text model is exported."""
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_heads": 2,
        "out_hidden_size": text.get("hidden_size", 64),
        "patch_size": 14,
        "num_position_embeddings": 4,
    }
    text = {"model_type": "qwen3_5_text", **sizes(**{"head_dim": 32, **DELTA, **text})}
    return lambda: transformers.Qwen3_5Config(text_config=text, vision_config=vision)


HYBRIDS = {
    "lfm2": Checkpoint(
        decoder("Lfm2", **LFM2, num_hidden_layers=5, layer_types=["conv", "conv", "full_attention", "conv", "conv"]),
        dtype=torch.bfloat16,
    ),
    "lfm2-awkward": Checkpoint(
        decoder(
            "Lfm2",
            **AWKWARD,
            full_attn_idxs=[1, 4],
            conv_bias=True,
            conv_L_cache=4,
            block_auto_adjust_ff_dim=False,
            tie_word_embeddings=False,
        )
    ),
    "qwen3_5": Checkpoint(
        qwen3_5(num_hidden_layers=4, tie_word_embeddings=True),
        dtype=torch.bfloat16,
        rewrite=lambda config: {**config, "mamba_ssm_dtype": "float32"},
    ),
    "qwen3_5-awkward": Checkpoint(
        qwen3_5(
            **AWKWARD,
            layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention", "full_attention"],
            head_dim=24,
            linear_num_key_heads=3,
            linear_num_value_heads=3,
            linear_key_head_dim=50,
            linear_value_head_dim=22,
            linear_conv_kernel_dim=3,
            attention_bias=True,
        )
    ),
    "qwen3_5-images": Checkpoint(
        qwen3_5_with_images(num_hidden_layers=4),
        dtype=torch.bfloat16,
        model=transformers.AutoModelForImageTextToText,
    ),
    "qwen3_5-images-awkward": Checkpoint(
        qwen3_5_with_images(
            **AWKWARD,
            layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention", "full_attention"],
            head_dim=24,
            linear_num_key_heads=3,
            linear_num_value_heads=3,
            linear_key_head_dim=50,
            linear_value_head_dim=22,
            linear_conv_kernel_dim=3,
        ),
        dtype=torch.float16,
        model=transformers.AutoModelForImageTextToText,
    ),
}

DECODERS = {
    "smollm3": Checkpoint(decoder("SmolLM3", no_rope_layer_interval=2), dtype=torch.bfloat16),
    "smollm3-listed": Checkpoint(
        decoder(
            "SmolLM3",
            **AWKWARD,
            no_rope_layers=[1, 0, 1, 1, 0],
            use_sliding_window=True,
            sliding_window=WINDOW,
            tie_word_embeddings=False,
            attention_bias=True,
        )
    ),
    "granite": Checkpoint(decoder("Granite", **GRANITE), dtype=torch.bfloat16),
    "granite-awkward": Checkpoint(
        decoder("Granite", **AWKWARD, **GRANITE, tie_word_embeddings=True, attention_bias=True, mlp_bias=True)
    ),
    "granite4": Checkpoint(
        decoder("GraniteMoeHybrid", **GRANITE, **granite4(3), position_embedding_type="rope"), dtype=torch.bfloat16
    ),
    "granite4-nope": Checkpoint(decoder("GraniteMoeHybrid", **AWKWARD, **granite4(5), position_embedding_type=None)),
    "olmo2": Checkpoint(decoder("Olmo2", num_key_value_heads=4), dtype=torch.bfloat16),
    "olmo2-awkward": Checkpoint(decoder("Olmo2", **AWKWARD, rope_parameters=rope("yarn", 10_000.0, **YARN))),
    "olmo3": Checkpoint(decoder("Olmo3", num_hidden_layers=5, sliding_window=WINDOW), dtype=torch.bfloat16),
    "olmo3-listed": Checkpoint(
        decoder(
            "Olmo3",
            **{**AWKWARD, "num_hidden_layers": 3},
            sliding_window=WINDOW,
            layer_types=SOME_WINDOWS,
            rope_parameters={
                "sliding_attention": rope("default", 10_000.0),
                "full_attention": rope("yarn", 10_000.0, **YARN),
            },
        )
    ),
    "gemma2": Checkpoint(
        decoder(
            "Gemma2",
            head_dim=32,
            query_pre_attn_scalar=24,
            sliding_window=WINDOW,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=12.0,
        ),
        dtype=torch.bfloat16,
    ),
    "gemma2-uncapped": Checkpoint(
        decoder(
            "Gemma2",
            **AWKWARD,
            head_dim=22,
            query_pre_attn_scalar=22,
            sliding_window=WINDOW,
            attn_logit_softcapping=None,
            final_logit_softcapping=None,
        )
    ),
    "ministral": Checkpoint(decoder("Ministral", head_dim=16, sliding_window=WINDOW, layer_types=SOME_WINDOWS)),
    "ministral-awkward": Checkpoint(
        decoder("Ministral", **AWKWARD, head_dim=18, sliding_window=WINDOW), dtype=torch.float16
    ),
    "ministral3": Checkpoint(
        decoder("Ministral3", head_dim=16, rope_parameters=rope("yarn", 1e4, llama_4_scaling_beta=0.1, **MINISTRAL3)),
        dtype=torch.bfloat16,
    ),
    "ministral3-unscaled": Checkpoint(
        decoder(
            "Ministral3",
            **AWKWARD,
            head_dim=26,
            rope_parameters=rope("yarn", 1e4, llama_4_scaling_beta=0.0, **MINISTRAL3),
        )
    ),
    "mistral3-images": Checkpoint(
        mistral3_with_images(
            head_dim=16, rope_parameters=rope("yarn", 1e4, llama_4_scaling_beta=0.1, **MINISTRAL3)
        ),
        dtype=torch.bfloat16,
        model=transformers.AutoModelForImageTextToText,
    ),
    "mistral3-images-awkward": Checkpoint(
        mistral3_with_images(
            **AWKWARD,
            head_dim=26,
            rope_parameters=rope("yarn", 1e4, llama_4_scaling_beta=0.7, **{**MINISTRAL3, "factor": 2.0}),
            tie_word_embeddings=False,
        ),
        dtype=torch.float16,
        model=transformers.AutoModelForImageTextToText,
    ),
    "ministral3-grown": Checkpoint(
        decoder(
            "Ministral3",
            **AWKWARD,
            head_dim=18,
            rope_parameters=rope("yarn", 1e4, llama_4_scaling_beta=0.7, **{**MINISTRAL3, "factor": 2.0}),
        )
    ),
    "gemma4": Checkpoint(
        gemma4(
            num_hidden_layers=6,
            layer_types=["sliding_attention", "full_attention"] * 3,
            num_kv_shared_layers=3,
            use_double_wide_mlp=True,
            final_logit_softcapping=12.0,
        ),
        dtype=torch.bfloat16,
        rewrite=published,
    ),
    "gemma4-awkward": Checkpoint(
        gemma4(
            **{**AWKWARD, "num_hidden_layers": 6},
            head_dim=20,
            global_head_dim=28,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
            num_kv_shared_layers=2,
            hidden_size_per_layer_input=10,
        )
    ),
    "gemma4-dense": Checkpoint(
        gemma4(
            num_hidden_layers=4,
            layer_types=["sliding_attention", "full_attention"] * 2,
            hidden_size_per_layer_input=0,
            attention_k_eq_v=True,
            num_global_key_value_heads=1,
        ),
        dtype=torch.bfloat16,
    ),
    "gemma4-sees": Checkpoint(
        gemma4_that_sees(
            num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2, num_kv_shared_layers=2
        ),
        dtype=torch.bfloat16,
        model=transformers.AutoModelForImageTextToText,
    ),
    "gemma4-sees-awkward": Checkpoint(
        gemma4_that_sees(
            **{**AWKWARD, "num_hidden_layers": 6},
            head_dim=20,
            global_head_dim=28,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
            hidden_size_per_layer_input=0,
            final_logit_softcapping=12.0,
        ),
        dtype=torch.float16,
        model=transformers.AutoModelForImageTextToText,
    ),
    "starcoder2": Checkpoint(decoder("Starcoder2"), dtype=torch.bfloat16),
    "starcoder2-window": Checkpoint(
        decoder("Starcoder2", **AWKWARD, sliding_window=WINDOW, tie_word_embeddings=False, hidden_act="gelu")
    ),
    "stablelm": Checkpoint(
        decoder("StableLm", use_qkv_bias=True, rope_parameters=rope("default", 1e4, partial_rotary_factor=0.25)),
        dtype=torch.bfloat16,
    ),
    "stablelm-parallel": Checkpoint(
        decoder(
            "StableLm",
            **AWKWARD,
            use_parallel_residual=True,
            rope_parameters=rope("default", 1e4, partial_rotary_factor=0.5),
        )
    ),
    "cohere2": Checkpoint(
        decoder("Cohere2", num_hidden_layers=5, sliding_window=WINDOW, logit_scale=0.6), dtype=torch.bfloat16
    ),
    "cohere2-listed": Checkpoint(
        decoder(
            "Cohere2",
            **{**AWKWARD, "num_hidden_layers": 3},
            sliding_window=WINDOW,
            layer_types=SOME_WINDOWS,
            logit_scale=1.4,
            attention_bias=True,
            tie_word_embeddings=False,
        )
    ),
    "glm": Checkpoint(
        decoder("Glm", head_dim=16, rope_parameters=rope("default", 1e4, partial_rotary_factor=0.5)),
        dtype=torch.bfloat16,
    ),
    "glm-awkward": Checkpoint(
        decoder(
            "Glm", **AWKWARD, head_dim=22, rope_parameters=rope("default", 1e4, partial_rotary_factor=1.0),
            attention_bias=False,
        )
    ),
    "glm4": Checkpoint(
        decoder("Glm4", head_dim=16, rope_parameters=rope("default", 1e4, partial_rotary_factor=0.5)),
        dtype=torch.bfloat16,
    ),
    "glm4-awkward": Checkpoint(
        decoder("Glm4", **AWKWARD, head_dim=20, rope_parameters=rope("default", 1e4, partial_rotary_factor=0.3))
    ),
    "ernie4_5": Checkpoint(decoder("Ernie4_5", head_dim=16), dtype=torch.bfloat16),
    "ernie4_5-biases": Checkpoint(
        decoder("Ernie4_5", **AWKWARD, head_dim=22, use_bias=True, tie_word_embeddings=False)
    ),
    "minicpm": Checkpoint(
        minicpm(sizes(tie_word_embeddings=True), scale_emb=1.5, scale_depth=1.4, dim_model_base=48),
        dtype=torch.bfloat16,
        rewrite=as_minicpm(scale_emb=1.5, scale_depth=1.4, dim_model_base=48),
    ),
    "minicpm-awkward": Checkpoint(
        minicpm(sizes(**AWKWARD), scale_emb=2, scale_depth=0.9, dim_model_base=30),
        rewrite=as_minicpm(scale_emb=2, scale_depth=0.9, dim_model_base=30),
    ),
    # The class of MiniCPM5: many queries per key, heads wider than the width divided by them.
    "minicpm5": Checkpoint(
        llama(num_attention_heads=8, num_key_value_heads=1, head_dim=32), dtype=torch.bfloat16
    ),
    # The class of Phi-4-mini: a tied head, and three quarters of a head rotated.
    "phi4-mini": Checkpoint(
        phi3(
            tie_word_embeddings=True,
            original_max_position_embeddings=ORIGINAL,
            rope_parameters=rope(
                "longrope",
                10_000.0,
                partial_rotary_factor=0.75,
                short_factor=[1.0, 1.02, 1.05, 1.1, 1.2, 1.4],
                long_factor=[1.0, 1.5, 2.0, 3.0, 4.0, 5.0],
                original_max_position_embeddings=ORIGINAL,
            ),
        ),
        dtype=torch.bfloat16,
    ),
}

CHECKPOINTS = {
    "llama": Checkpoint(llama(tie_word_embeddings=True)),
    "llama-beyond-trained": Checkpoint(llama(max_position_embeddings=ORIGINAL)),
    "llama-biases-llama3": Checkpoint(
        llama(rope("llama3", 5000.0, **LLAMA3), attention_bias=True, mlp_bias=True, head_dim=32),
        dtype=torch.bfloat16,
        shard="60KB",
    ),
    "llama-dynamic": Checkpoint(llama(rope("dynamic", 10_000.0, factor=2.0), max_position_embeddings=2 * ORIGINAL)),
    "llama-linear-older": Checkpoint(
        llama(rope("linear", 10_000.0, factor=2.0)), dtype=torch.float16, rewrite=older_spelling
    ),
    "llama-longrope": Checkpoint(llama(rope("longrope", 10_000.0, **LONGROPE))),
    "llama-yarn-older": Checkpoint(llama(rope("yarn", 10_000.0, **YARN)), rewrite=older_spelling),
    "mistral-window": Checkpoint(
        lambda: transformers.MistralConfig(**sizes(sliding_window=WINDOW, head_dim=16)), dtype=torch.float16
    ),
    "mistral-yarn-window": Checkpoint(
        lambda: transformers.MistralConfig(
            **sizes(sliding_window=WINDOW, head_dim=16, rope_parameters=rope("yarn", 10_000.0, **YARN))
        )
    ),
    "qwen2": Checkpoint(lambda: transformers.Qwen2Config(**sizes()), dtype=torch.bfloat16),
    "qwen2-window": Checkpoint(
        lambda: transformers.Qwen2Config(
            **sizes(use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1, tie_word_embeddings=True)
        )
    ),
    "qwen2-yarn": Checkpoint(
        lambda: transformers.Qwen2Config(**sizes(rope_parameters=rope("yarn", 1_000_000.0, **YARN))),
        dtype=torch.bfloat16,
    ),
    "qwen3": Checkpoint(lambda: transformers.Qwen3Config(**sizes(head_dim=32)), dtype=torch.bfloat16),
    "qwen3-window-yarn": Checkpoint(
        lambda: transformers.Qwen3Config(
            **sizes(
                head_dim=16,
                use_sliding_window=True,
                sliding_window=WINDOW,
                max_window_layers=2,
                rope_parameters=rope("yarn", 10_000.0, **YARN),
            )
        )
    ),
    "gemma3": Checkpoint(lambda: gemma3(final_logit_softcapping=4.0), dtype=torch.bfloat16),
    "gemma3-awkward": Checkpoint(lambda: gemma3(**GEMMA3_AWKWARD, tie_word_embeddings=False)),
    "gemma3-images": Checkpoint(
        gemma3_with_images(), dtype=torch.bfloat16, model=transformers.AutoModelForImageTextToText
    ),
    "gemma3-images-awkward": Checkpoint(
        gemma3_with_images(**GEMMA3_AWKWARD), model=transformers.AutoModelForImageTextToText
    ),
    "phi3": Checkpoint(
        phi3(
            sliding_window=WINDOW,
            rope_parameters=rope("default", 10_000.0, partial_rotary_factor=0.5),
        ),
        dtype=torch.bfloat16,
    ),
    "phi3-longrope": Checkpoint(
        phi3(original_max_position_embeddings=ORIGINAL, rope_parameters=rope("longrope", 10_000.0, **LONGROPE)),
    ),
    "phi3-longrope-outside": Checkpoint(
        phi3(original_max_position_embeddings=ORIGINAL, rope_parameters=rope("longrope", 10_000.0, **LONGROPE)),
        rewrite=outside_the_section,
    ),
    "phi3-longrope-window": Checkpoint(
        phi3(
            sliding_window=WINDOW,
            original_max_position_embeddings=ORIGINAL,
            rope_parameters=rope("longrope", 10_000.0, **LONGROPE),
        ),
        dtype=torch.float16,
    ),
    "gpt2": Checkpoint(gpt2()),
    "gpt2-by-layer": Checkpoint(gpt2(scale_attn_by_inverse_layer_idx=True, n_inner=80), dtype=torch.float16),
    "gpt2-bin": Checkpoint(gpt2(), pickled=True),
    "pagating": Checkpoint(gpt2(n_inner=96), change=gated(torch.sigmoid, 0.7, False)),
    "pagating-learned": Checkpoint(
        gpt2(n_inner=96, pagating_unit="paGELU"),
        change=gated(F.gelu, None, True),
        rewrite=as_class("PaGatingGPT2LMHeadModel", "gpt2_pagating"),
    ),
    "pagating-fixed": Checkpoint(
        gpt2(n_inner=80, pagating_unit="paGLU"),
        dtype=torch.float16,
        change=gated(torch.sigmoid, 0.3, False),
        rewrite=as_class("PaGatingGPT2LMHeadModel", "gpt2_pagating"),
    ),
    "student": Checkpoint(
        llama(), dtype=torch.bfloat16, shard="100KB", rewrite=as_class("StudentForCausalLM", "student_gqa")
    ),
    "student-llama3": Checkpoint(
        llama(rope("llama3", 10_000.0, **LLAMA3)), rewrite=as_class("StudentGqaForCausalLM", "student_9b_gqa")
    ),
    "student-awkward": Checkpoint(
        llama(**AWKWARD, head_dim=22, tie_word_embeddings=True), rewrite=as_class("StudentForCausalLM", "student_gqa")
    ),
    "student-9b-awkward": Checkpoint(
        llama(**AWKWARD), dtype=torch.float16, rewrite=as_class("StudentGqaForCausalLM", "student_9b_gqa")
    ),
    **DECODERS,
    **HYBRIDS,
}


def adds_one(model):
    """Whether norms scale by one more than their weight."""
    name = type(model).__name__
    return "Gemma" in name and "Gemma4" not in name


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
        elif name.endswith("conv1d.weight"):
            # Large sums, of which the activation leaves the positive ones, so that queries, keys and values are alike. Where what
            # a delta rule gives is near zero, its norm turns rounding into another sign.
            value = noise * 0.5 + 2.0
        elif "Qwen3_5" in type(model).__name__ and name.endswith("norm.weight"):
            value = noise * 0.3 + (1.0 if name.endswith("linear_attn.norm.weight") else 0.0)
        elif name.endswith("norm.weight") or ".ln_" in name and name.endswith("weight"):
            value = noise * 0.3 + (0.0 if adds_one(model) else 1.0)
        else:
            value = noise * 0.3
        parameter.data = value
    for name, buffer in model.named_buffers():
        if name.endswith("layer_scalar"):
            buffer.data = 0.8 + 0.1 * torch.randn(buffer.shape, generator=generator)


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
        return checkpoint.model.from_pretrained(folder, dtype=torch.float32)
    model = checkpoint.change(checkpoint.model.from_config(checkpoint.config()))
    stored = {}
    for file in folder.glob("model*.safetensors"):
        stored.update(load_file(file))
    missing, unexpected = model.load_state_dict({k: v.float() for k, v in stored.items()}, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        sys.exit(f"{folder.name}: cannot load {missing} {unexpected}")
    model.tie_weights()
    return model.float()


def without(model, change):
    """The model with another configuration."""
    config = copy.deepcopy(model.config)
    change(config.get_text_config())
    other = type(model)(config).eval()
    other.load_state_dict(model.state_dict())
    return other


def boundaries(model):
    """Keys of the configuration, the numbers of tokens beyond which they change something, and models without them.

    Nothing is exported beyond the `end` of a model: it has no positions there, or frequencies of its own for each length.
    """
    config = model.config.get_text_config()
    longest = config.max_position_embeddings
    if getattr(config, "rope_parameters", None) is None:
        yield "n_positions", longest, True, None
        return

    def set_window(config):
        config.sliding_window = 4096

    def set_rope(rope):
        def change(config):
            config.rope_parameters = {**rope, "rope_theta": config.rope_parameters["rope_theta"]}

        return change

    if getattr(config, "sliding_window", None):
        yield "sliding_window", config.sliding_window, False, without(model, set_window)
    section = config.rope_parameters
    kind = section.get("rope_type")
    original = section.get("original_max_position_embeddings")
    original = getattr(config, "original_max_position_embeddings", None) or original
    if section.get("llama_4_scaling_beta"):

        def stop_growth(config):
            config.rope_parameters["llama_4_scaling_beta"] = 0.0

        yield "llama_4_scaling_beta", original, False, without(model, stop_growth)
    if kind == "dynamic":
        yield "max_position_embeddings", longest, True, None
    elif longest < LENGTHS[-1]:
        yield "max_position_embeddings", longest, False, None
    if kind == "longrope":
        short = {**section, "long_factor": section["short_factor"]}
        yield "original_max_position_embeddings", original, False, without(model, set_rope(short))
    elif kind in ("llama3", "yarn"):
        growth = ("llama_4_scaling_beta", "original_max_position_embeddings")
        kept = {key: section[key] for key in growth} if "llama_4_scaling_beta" in section else {}
        default = without(model, set_rope({"rope_type": "default", **kept}))
        yield "original_max_position_embeddings", original, False, default


def by_prefix(model, ids):
    """The logits after each prefix: how a sequence is rotated may depend on its length."""
    with torch.no_grad():
        ends = range(1, len(ids) + 1)
        return torch.stack([model(ids[None, :end].long(), use_cache=False).logits[0, -1].float() for end in ends])


def least_cosine(logits, others):
    return F.cosine_similarity(logits.double(), others.double(), dim=-1).min().item()


def greedy(model, length, generator):
    """The prompt whose greedy continuation is the clearest of many."""
    ids = torch.randint(0, VOCABULARY, (PROMPTS, PROMPT), generator=generator)
    least = torch.full((PROMPTS,), float("inf"))
    with torch.no_grad():
        while ids.shape[1] < length:
            best = model(ids, use_cache=False).logits[:, -1].float().topk(2)
            least = torch.minimum(least, best.values[:, 0] - best.values[:, 1])
            ids = torch.cat([ids, best.indices[:, :1]], dim=1)
    if least.max() < GAP:
        sys.exit(f"no greedy continuation is clear: the best is preferred by {least.max()}")
    return ids[least.argmax()].to(torch.int32).contiguous()


def reference(model, generator):
    """Tensors and notes."""
    found = list(boundaries(model))
    longest = min([at for _, at, end, _ in found if end] + [LENGTHS[-1]])
    tensors = {}
    for index, length in enumerate(LENGTHS):
        ids = torch.randint(0, VOCABULARY, (min(length, longest),), generator=generator, dtype=torch.int32)
        logits = by_prefix(model, ids)
        if logits.std(-1).min() < 0.3:
            sys.exit(f"the logits are flat: {logits.std(-1)}")
        tensors |= {f"ids.{index}": ids, f"logits.{index}": logits.contiguous()}
    notes = []
    for key, at, end, other in found:
        # The last sequence goes beyond every boundary.
        overlooked = None if other is None else least_cosine(logits[at:], by_prefix(other, ids)[at:])
        if overlooked is not None and overlooked > OVERLOOKED:
            sys.exit(f"`{key}` {at} changes too little to be seen: {overlooked}")
        notes.append({"key": key, "at": at, "end": end, "ignored": overlooked})
    tensors["greedy"] = greedy(model, min(CONTINUED, longest), generator)
    return tensors, {"notes": json.dumps({"boundaries": notes, "prompt": PROMPT})}


def write(name, checkpoint, folder):
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    model = checkpoint.model.from_config(checkpoint.config(), attn_implementation="eager")
    model = checkpoint.change(model)
    randomise(model, generator)
    store(checkpoint, model, folder)
    write_tokenizer(folder)
    loaded = load(checkpoint, folder).eval()
    tensors, notes = reference(loaded, generator)
    save_file(tensors, folder / "reference.safetensors", notes)


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
