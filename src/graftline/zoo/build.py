"""Configurations and models of a family, made on the spot."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging

from graftline.errors import ConfigError
from graftline.zoo.families import ALL, FamilyInfo, find_family
from graftline.zoo.initialise import initialise
from graftline.zoo.sizes import TINY, Sizes


def families() -> tuple[str, ...]:
    """Names of all families, grouped by the kinds of layer they mix."""
    return tuple(family.name for family in ALL)


def describe(family: str) -> FamilyInfo:
    """What a family is made of.

    Raises:
        ConfigError: no family has that name or alias.
    """
    return find_family(family)


def build_config(family: str, *, sizes: Sizes | None = None) -> PretrainedConfig:
    """A configuration of the library for one family.

    Args:
        family: a name of `families()` or an alias.
        sizes: dimensions; the `tiny` preset if left out.

    Raises:
        ConfigError: no family has that name, or the family cannot have these sizes.
    """
    info = find_family(family)
    settings = info.settings(sizes or TINY)
    try:
        config: Any = CONFIG_MAPPING[info.model_type](**settings)
    except (StrictDataclassError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ConfigError(
            f"family '{info.name}' cannot have these sizes: {reason}", hint="change the size that it names"
        ) from error
    return config


def build_model(
    family: str, *, seed: int = 0, dtype: torch.dtype = torch.float32, sizes: Sizes | None = None
) -> PreTrainedModel:
    """A model with weights that follow from family, seed and sizes alone, in evaluation mode on the CPU.

    The global random generator is left as it was.

    Args:
        family: a name of `families()` or an alias.
        seed: chooses the weights; any integer.
        dtype: of the parameters; the library keeps a few of them in float32 all the same.
        sizes: dimensions; the `tiny` preset if left out.

    Raises:
        ConfigError: no family has that name.
    """
    config = build_config(family, sizes=sizes)
    with torch.random.fork_rng(devices=[]), no_progress_bars():
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        initialise(model, seed)
        if dtype != torch.float32:
            # Loading knows which parameters of a family stay in float32; a plain cast does not.
            weights = model.state_dict()
            model = type(model).from_pretrained(None, config=config, state_dict=weights, dtype=dtype)
    return model.eval()


@contextlib.contextmanager
def no_progress_bars() -> Iterator[None]:
    """Turns off the library's progress bars for as long as the block runs."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
