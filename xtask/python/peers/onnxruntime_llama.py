"""ONNX Runtime GenAI for `cargo xtask bench peers`.

    onnxruntime_llama.py convert CHECKPOINT FOLDER PRECISION
    onnxruntime_llama.py round   FOLDER WORKLOAD.json
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import rounds


class Model:
    def __init__(self, folder, longest):
        import onnxruntime_genai as genai

        self.genai, self.longest = genai, longest
        self.model = genai.Model(folder)
        self.forget()

    def next(self, ids):
        # The generator has given itself the token it gave last.
        if ids != self.last:
            self.generator.append_tokens(ids)
        self.generator.generate_next_token()
        self.last = [int(self.generator.get_next_tokens()[0])]
        return self.last[0]

    def forget(self):
        self.generator, self.last = None, None
        parameters = self.genai.GeneratorParams(self.model)
        # Up to the least length the end of the text is not picked: nobody else stops there either.
        most = self.longest + 1
        parameters.set_search_options(max_length=most, min_length=most, do_sample=False)
        self.generator = self.genai.Generator(self.model, parameters)


def convert(checkpoint, folder, precision):
    folder = pathlib.Path(folder)
    unfinished = folder.with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    builder = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
    subprocess.run(
        [*builder, "-i", checkpoint, "-o", unfinished, "-p", precision, "-e", "cpu", "-c", unfinished / "cache"],
        env=environment, stdout=sys.stderr, check=True,
    )
    path = unfinished / "genai_config.json"
    config = json.loads(path.read_text())
    config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = rounds.THREADS
    path.write_text(json.dumps(config, indent=2))
    unfinished.rename(folder)


if sys.argv[1] == "convert":
    convert(*sys.argv[2:])
else:
    rounds.run(lambda longest: Model(sys.argv[2], longest))
