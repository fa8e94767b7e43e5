"""torch in fp32, by transformers, for `cargo xtask bench peers`.

    torch_llama.py CHECKPOINT WORKLOAD.json
"""
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch  # noqa: E402
import transformers  # noqa: E402

import rounds  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


class Model:
    def __init__(self, folder):
        torch.set_num_threads(rounds.THREADS)
        torch.set_grad_enabled(False)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.forget()

    def next(self, ids):
        out = self.model(torch.tensor([ids]), past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        self.cache = out.past_key_values
        return int(out.logits[0, -1].argmax())

    def forget(self):
        self.cache = transformers.DynamicCache()


rounds.run(lambda _: Model(sys.argv[1]))
