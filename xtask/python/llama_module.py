"""A plain Llama prefill for torch: ids and a mask in, logits of the last position and all keys and values out."""

import torch
import torch.nn.functional as F
from torch import nn


class Llama(nn.Module):
    def __init__(self, config, weights, longest):
        super().__init__()
        self.config = config
        self.head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        self.names = {}
        for name, tensor in weights.items():
            self.register_buffer(name.replace(".", "_"), tensor.float())
        frequencies = config["rope_theta"] ** (-torch.arange(0, self.head_dim, 2).float() / self.head_dim)
        angles = torch.outer(torch.arange(longest).float(), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def weight(self, name):
        return getattr(self, f"model.{name}.weight".replace(".", "_"))

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"]) * self.weight(name)

    def heads(self, x, name, count):
        return F.linear(x, self.weight(name)).view(1, -1, count, self.head_dim).transpose(1, 2)

    def rotate(self, x, length):
        half = self.head_dim // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
        return x * self.cos[:length] + turned * self.sin[:length]

    def layer(self, x, index, mask):
        at = f"layers.{index}"
        heads, groups = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        y = self.norm(x, f"{at}.input_layernorm")
        length = y.shape[1]
        query = self.rotate(self.heads(y, f"{at}.self_attn.q_proj", heads), length)
        key = self.rotate(self.heads(y, f"{at}.self_attn.k_proj", groups), length)
        value = self.heads(y, f"{at}.self_attn.v_proj", groups)
        repeat = lambda t: t.repeat_interleave(heads // groups, dim=1)  # noqa: E731
        scores = query @ repeat(key).transpose(2, 3) / self.head_dim**0.5 + mask
        mixed = (scores.softmax(-1) @ repeat(value)).transpose(1, 2).reshape(1, -1, heads * self.head_dim)
        x = x + F.linear(mixed, self.weight(f"{at}.self_attn.o_proj"))
        y = self.norm(x, f"{at}.post_attention_layernorm")
        gated = F.silu(F.linear(y, self.weight(f"{at}.mlp.gate_proj"))) * F.linear(y, self.weight(f"{at}.mlp.up_proj"))
        return x + F.linear(gated, self.weight(f"{at}.mlp.down_proj")), key, value

    def forward(self, ids, mask):
        x = F.embedding(ids, self.weight("embed_tokens"))
        caches = []
        for index in range(self.config["num_hidden_layers"]):
            x, key, value = self.layer(x, index, mask)
            caches += [key, value]
        logits = F.linear(self.norm(x[:, -1:], "norm"), self.weight("embed_tokens"))
        return (logits, *caches)
