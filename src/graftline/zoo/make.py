"""Checkpoints of the zoo on disk, as `from_pretrained` of the library reads them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from graftline.errors import ConfigError
from graftline.zoo.build import build_model, no_progress_bars
from graftline.zoo.sizes import preset as preset_sizes
from graftline.zoo.tokenizer import build_tokenizer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class MadeModel:
    """A checkpoint that was written.

    Args:
        path: its directory.
        parameters: how many numbers it holds, a tensor under two names counted once.
        bytes: of all files together.
    """

    path: Path
    parameters: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Target:
    path: Path
    replace: bool


def make_model(
    family: str,
    directory: str | os.PathLike[str],
    *,
    preset: str = "tiny",
    seed: int = 0,
    dtype: str = "float32",
    overrides: Mapping[str, int] | None = None,
    overwrite: bool = False,
) -> MadeModel:
    """Writes configuration, weights, tokenizer and generation settings of one model.

    The directory appears whole or not at all: files are written beside it and renamed. The same arguments and
    library versions give the same bytes.

    Args:
        family: a name of `families()` or an alias.
        directory: where to; parents are made. It must be absent or empty unless `overwrite` is set.
        preset: `tiny`, `demo` or `bench`.
        seed: chooses the weights.
        dtype: `float32`, `bfloat16` or `float16`.
        overrides: sizes that differ from the preset, by field name of `Sizes`.
        overwrite: replaces a model that is there; a directory that holds no model is refused all the same.

    Raises:
        ConfigError: an unknown name, sizes that cannot work, or a directory that is in the way.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"no dtype is named '{dtype}'", hint=f"dtypes are: {', '.join(DTYPES)}")
    sizes = preset_sizes(preset).replace(overrides or {})
    target = _check_target(Path(directory).absolute(), overwrite)
    tokenizer = build_tokenizer(sizes.vocab_size)
    model = build_model(family, seed=seed, dtype=DTYPES[dtype], sizes=sizes)
    scratch = _make_scratch(target.path)
    try:
        with no_progress_bars():
            model.save_pretrained(scratch, max_shard_size="100GB")
        tokenizer.save_pretrained(scratch, save_jinja_files=False)
        scratch.chmod(0o755)
        file_bytes = sum(file.stat().st_size for file in scratch.rglob("*") if file.is_file())
        _move_into_place(scratch, target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return MadeModel(path=target.path, parameters=parameters, bytes=file_bytes)


def _make_scratch(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        hint = "name a directory in a place that can be written"
        raise ConfigError(f"cannot make '{path}': {error.strerror}", hint=hint) from error


def _check_target(path: Path, overwrite: bool) -> _Target:
    if not path.exists() and not path.is_symlink():
        return _Target(path, replace=False)
    if not path.is_dir():
        raise ConfigError(f"'{path}' is not a directory", hint="name a directory that is absent or empty")
    if not any(path.iterdir()):
        return _Target(path, replace=True)
    if not overwrite:
        raise ConfigError(f"directory '{path}' is not empty", hint="name another, or set overwrite")
    if not (path / "config.json").is_file():
        raise ConfigError(
            f"directory '{path}' holds no model, so it is not overwritten", hint="name another, or empty it"
        )
    return _Target(path, replace=True)


def _move_into_place(scratch: Path, target: _Target) -> None:
    if not target.replace:
        scratch.rename(target.path)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.path.name}.old.", dir=target.path.parent))
    old = aside / "old"
    target.path.rename(old)
    try:
        scratch.rename(target.path)
    except OSError:
        old.rename(target.path)
        aside.rmdir()
        raise
    shutil.rmtree(aside)
