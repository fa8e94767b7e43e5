"""Small random encoders by transformers' own classes against what the program makes of them.

    tiny_encoders.py PROGRAM FOLDER

Each configuration is written as `save_pretrained` writes it to FOLDER/<name>, some with the modules of
sentence-transformers, exported and embedded by PROGRAM at two sequence lengths, with padding and without. What comes out
is compared with transformers in float32: hidden states of every token, pooled vectors or scores. Everything is seeded by
the name. Prints a line per configuration; exits with 1 if a cosine is below the limit, or a score is off.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import warnings
import zlib

os.environ["TQDM_DISABLE"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

VOCABULARY = 260
LENGTHS = (16, 40)
# Tokens of the texts: one, few, one less than a length, and all of each.
COUNTS = (1, 6, 15, 16, 40)
# fp16 explains less than this of an angle, and of a score.
REQUIRED, OFF = 0.9999, 0.02


def bert(**more):
    return {
        "vocab_size": VOCABULARY, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
        "num_attention_heads": 4, "max_position_embeddings": 48, "pad_token_id": 0, **more,
    }


def modernbert(**more):
    return {
        **bert(), "max_position_embeddings": 64, "local_attention": 10, "pad_token_id": 0, "eos_token_id": 1,
        "bos_token_id": 2, "cls_token_id": 2, "sep_token_id": 1, **more,
    }


def causal(**more):
    return {
        "vocab_size": VOCABULARY, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "max_position_embeddings": 64, **more,
    }


def gemma(**more):
    return causal(
        query_pre_attn_scalar=10, sliding_window=10, use_bidirectional_attention=True,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], **more,
    )


T = transformers
# A name: the class, its configuration, and how texts become vectors (a pooling, widths of dense layers, normalisation).
ENCODERS = {
    "bert": (T.BertModel, T.BertConfig(**bert()), None),
    "bert-awkward": (T.BertModel, T.BertConfig(**bert(hidden_size=35, num_attention_heads=5, intermediate_size=51, hidden_act="gelu_new")), ("mean", [], True)),
    "bert-cls": (T.BertModel, T.BertConfig(**bert(type_vocab_size=3)), ("cls", [], True)),
    "bert-masked": (T.BertForMaskedLM, T.BertConfig(**bert()), None),
    "bert-scores": (T.BertForSequenceClassification, T.BertConfig(**bert(num_labels=1)), "scores"),
    "bert-scores-3": (T.BertForSequenceClassification, T.BertConfig(**bert(num_labels=3, hidden_act="relu")), "scores"),
    "roberta": (T.RobertaModel, T.RobertaConfig(**bert(pad_token_id=1, type_vocab_size=1)), None),
    "roberta-scores": (T.RobertaForSequenceClassification, T.RobertaConfig(**bert(pad_token_id=1, type_vocab_size=1, num_labels=2)), "scores"),
    "roberta-masked": (T.RobertaForMaskedLM, T.RobertaConfig(**bert(pad_token_id=1, type_vocab_size=1)), None),
    "xlm-roberta": (T.XLMRobertaModel, T.XLMRobertaConfig(**bert(pad_token_id=3, type_vocab_size=1, hidden_size=36)), ("mean", [], True)),
    "xlm-roberta-scores": (T.XLMRobertaForSequenceClassification, T.XLMRobertaConfig(**bert(pad_token_id=1, type_vocab_size=1, num_labels=1)), "scores"),
    "xlm-roberta-masked": (T.XLMRobertaForMaskedLM, T.XLMRobertaConfig(**bert(pad_token_id=1, type_vocab_size=1)), None),
    "modernbert": (T.ModernBertModel, T.ModernBertConfig(**modernbert()), None),
    "modernbert-awkward": (T.ModernBertModel, T.ModernBertConfig(**modernbert(hidden_size=54, num_attention_heads=3, intermediate_size=33, local_attention=7, norm_bias=True, attention_bias=True, mlp_bias=True, layer_types=["sliding_attention", "full_attention", "sliding_attention"])), ("cls", [], True)),
    "modernbert-masked": (T.ModernBertForMaskedLM, T.ModernBertConfig(**modernbert()), None),
    "modernbert-scores": (T.ModernBertForSequenceClassification, T.ModernBertConfig(**modernbert(num_labels=2)), "scores"),
    "modernbert-scores-mean": (T.ModernBertForSequenceClassification, T.ModernBertConfig(**modernbert(num_labels=3, classifier_pooling="mean", classifier_bias=True)), "scores"),
    "embedding-gemma": (T.Gemma3TextModel, T.Gemma3TextConfig(**gemma()), ("mean", [96, 48], True)),
    "embedding-gemma-awkward": (T.Gemma3TextModel, T.Gemma3TextConfig(**{**gemma(), "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 10, "sliding_window": 7, "hidden_size": 39}), None),
    "qwen3-embedding": (T.Qwen3Model, T.Qwen3Config(**causal(tie_word_embeddings=True)), ("lasttoken", [], True)),
    "qwen3-embedding-awkward": (T.Qwen3Model, T.Qwen3Config(**causal(num_attention_heads=6, num_key_value_heads=3, head_dim=10, tie_word_embeddings=False)), ("mean", [20], False)),
}


def randomise(model, generator):
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "embeddings" in name and parameter.dim() == 2 or "embed_tokens" in name:
            parameter.data = noise * 0.7
        elif parameter.dim() == 2:
            parameter.data = noise * 1.1 / parameter.shape[1] ** 0.5
        elif name.lower().endswith("norm.weight"):
            parameter.data = noise * 0.3 + (0.0 if "Gemma3" in type(model).__name__ else 1.0)
        else:
            parameter.data = noise * 0.3


def write_modules(folder, width, how, generator):
    """`modules.json` and its folders; gives the weights of the dense layers."""
    pooling, widths, normalize = how
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling")]
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps({"embedding_dimension": width, "pooling_mode": pooling}))
    dense = []
    for number, out in enumerate(widths):
        path = f"{number + 2}_Dense"
        kinds.append((path, "Dense"))
        (folder / path).mkdir()
        config = {"in_features": width, "out_features": out, "bias": False,
                  "activation_function": "torch.nn.modules.linear.Identity"}
        (folder / path / "config.json").write_text(json.dumps(config))
        dense.append(torch.randn(out, width, generator=generator) / width**0.5)
        save_file({"linear.weight": dense[-1]}, folder / path / "model.safetensors")
        width = out
    if normalize:
        kinds.append((f"{len(widths) + 2}_Normalize", "Normalize"))
    modules = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
               for i, (path, kind) in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    return dense


def expected(model, how, dense, ids):
    """What transformers computes of one text without padding."""
    with torch.no_grad():
        out = model(input_ids=ids[None], attention_mask=torch.ones_like(ids)[None], output_hidden_states=True)
    if how == "scores":
        return out.logits.float()
    states = out.last_hidden_state[0] if hasattr(out, "last_hidden_state") else last_state(model, ids)
    if how is None:
        return states.float()
    pooling, _, normalize = how
    x = {"mean": states.mean(0), "cls": states[0], "lasttoken": states[-1]}[pooling]
    for weight in dense:
        x = weight @ x
    return (F.normalize(x, dim=0) if normalize else x)[None].float()


def last_state(model, ids):
    """Of a class that fills in words, the encoder inside it."""
    with torch.no_grad():
        return model.base_model(input_ids=ids[None], attention_mask=torch.ones_like(ids)[None]).last_hidden_state[0]


def run(program, *args):
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, args))}: {done.stderr}")
    return done.stdout


def check(program, folder, name):
    kind, config, how = ENCODERS[name]
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    model = kind(config).eval()
    randomise(model, generator)
    checkpoint = folder / name
    model.save_pretrained(checkpoint)
    if "Gemma3" in kind.__name__:
        # The class halves the key when it is made; published checkpoints have the whole.
        written = json.loads((checkpoint / "config.json").read_text())
        written["sliding_window"] = 2 * (config.sliding_window - 1)
        (checkpoint / "config.json").write_text(json.dumps(written))
    dense = [] if how in (None, "scores") else write_modules(checkpoint, config.hidden_size, how, generator)
    bundle = folder / f"{name}-bundle"
    run(program, "export", checkpoint, "-o", bundle, "--shapes", ",".join(map(str, LENGTHS)), "--chunks", 1 + (len(name) % 2))
    least, worst, compared = 1.0, 0.0, 0
    for count in COUNTS:
        ids = torch.randint(4, VOCABULARY, (count,), generator=generator)
        wanted = expected(model, how, dense, ids)
        for length in (length for length in LENGTHS if length >= count):
            out = run(program, "embed", bundle, "--json", "--seq-len", length, "--token-ids", ",".join(map(str, ids.tolist())))
            found = torch.tensor(json.loads(out)["texts"][0]["vectors"])
            if found.shape != wanted.shape:
                sys.exit(f"{name}: {tuple(found.shape)} numbers, expected {tuple(wanted.shape)}")
            least = min(least, F.cosine_similarity(found.double(), wanted.double(), dim=-1).min().item())
            worst = max(worst, ((found - wanted).abs().max() / wanted.abs().max().clamp(min=1)).item())
            compared += found.shape[0]
    passed = worst <= OFF if how == "scores" else least >= REQUIRED
    what = "hidden states" if how is None else how if how == "scores" else how[0]
    print(f"{kind.__name__:40} {name:26} {what:14} {compared:5} vectors  least cosine {least:.7f}  off by {worst:.5f}  "
          f"{'passed' if passed else 'FAILED'}", flush=True)
    return passed


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    only = sys.argv[3:] or list(ENCODERS)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    results = [check(program, folder, name) for name in only]
    print(f"{len(results)} encoders of {len({ENCODERS[name][0] for name in only})} classes, {results.count(False)} failed")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
