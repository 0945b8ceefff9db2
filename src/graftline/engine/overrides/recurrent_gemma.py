"""RecurrentGemma: keep the states in the cache instead of on the modules.

Upstream, the convolution and RG-LRU states are attributes of the modules: one request at a time, a chunk of
more than one token drops the convolution state, and a one-token prompt starts from the previous request's.
The block is run here with the states of the cache; all computations are the library's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F


def keep_state_in_cache(model: Any) -> None:
    """Replace the forward of every recurrent block of the model."""
    for index, layer in enumerate(model.get_decoder().layers):
        block = layer.temporal_block
        if hasattr(block, "rg_lru"):
            block.layer_idx = index
            block.forward = _block_forward(block)


def _block_forward(block: Any) -> Any:
    def forward(
        input_states: torch.Tensor,
        position_ids: torch.Tensor,
        past_key_values: Any = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        gate = block.act_fn(block.linear_y(input_states))
        x = block.linear_x(input_states).transpose(1, 2)
        tokens, width = x.shape[-1], block.conv1d_width
        recurrent = past_key_values.get_recurrent_state(block.layer_idx)
        x = past_key_values.update_conv_state(x, block.layer_idx, conv_kernel_size=width)
        x = F.pad(x, (max(0, width - 1 + tokens - x.shape[-1]), 0))[..., -(width - 1 + tokens) :]
        x = F.conv1d(x, block.conv_1d.weight, block.conv_1d.bias, groups=x.shape[1])
        block.rg_lru.recurrent_states = recurrent
        x = block.rg_lru(x.transpose(1, 2), position_ids)
        past_key_values.update_recurrent_state(block.rg_lru.recurrent_states, block.layer_idx)
        block.rg_lru.recurrent_states = None
        return block.linear_out(x * gate), None

    return forward
