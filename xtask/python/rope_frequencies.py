"""Writes what transformers makes of rotary settings: frequencies and magnitude, on both sides of every boundary.

    rope_frequencies.py src/convert/model/testdata/rope.json

Each entry is a `config.json` with the sequence length that was asked for, the frequencies that the rotary embedding of
its class then uses, and its factor on cosines and sines. The tests of the exporter and of the reference read it.
"""
import json
import sys

import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

CLASSES = {
    "llama": (transformers.LlamaConfig, LlamaRotaryEmbedding),
    "phi3": (transformers.Phi3Config, Phi3RotaryEmbedding),
}
SHORT = [1.0, 1.02, 1.1, 1.2, 1.5, 2.0]
LONG = [1.0, 1.5, 2.5, 4.0, 7.0, 9.0]
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONGROPE = {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG}

# The class, what `config.json` says of positions, and sequence lengths.
CASES = [
    ("llama", {}, [64]),
    ("phi3", {"partial_rotary_factor": 0.5}, [64]),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 4.0}}, [64, 65]),
    ("llama", {"rope_scaling": {"type": "dynamic", "factor": 4.0}}, [256, 257, 400]),
    ("llama", {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 64}}, [64, 65]),
    ("llama", {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}}, [64, 65]),
    ("llama", {"rope_scaling": {"type": "yarn", "factor": 4.0, "truncate": False, "beta_fast": 16.0}}, [64]),
    ("llama", {"rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 0.5}}, [64]),
    ("llama", {"rope_scaling": {**LONGROPE, "original_max_position_embeddings": 64}}, [64, 65, 200]),
    ("llama", {"rope_scaling": {**LONGROPE, "factor": 8.0, "original_max_position_embeddings": 64}}, [65]),
    ("phi3", {"original_max_position_embeddings": 64, "rope_scaling": LONGROPE}, [64, 65]),
    # The length outside the section has priority.
    (
        "phi3",
        {
            "original_max_position_embeddings": 32,
            "rope_scaling": {**LONGROPE, "original_max_position_embeddings": 64, "attention_factor": 1.25},
        },
        [32, 33, 65],
    ),
]


def entry(kind, positions, seq_len):
    config = {
        "hidden_size": 48,
        "num_attention_heads": 4,
        "max_position_embeddings": 256,
        "rope_theta": 10_000.0,
        **positions,
    }
    config_class, rotary_class = CLASSES[kind]
    fresh = json.loads(json.dumps(config))
    rotary = rotary_class(config_class(**fresh))
    rotary(torch.zeros(1, 1, 1), torch.arange(seq_len)[None])
    return {
        "class": kind,
        "config": config,
        "seq_len": seq_len,
        "frequencies": [float(f"{value:.9g}") for value in rotary.inv_freq.tolist()],
        "magnitude": rotary.attention_scaling,
    }


def main():
    entries = [entry(kind, positions, seq_len) for kind, positions, lengths in CASES for seq_len in lengths]
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(one) for one in entries) + "\n]\n")
    print(f"{len(entries)} entries by transformers {transformers.__version__}")


if __name__ == "__main__":
    main()
