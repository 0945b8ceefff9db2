"""Mamba-1 (jamba, mamba, falcon_mamba, zamba): continue the scan from the state that is held.

Upstream, a chunk of more than one token on an existing state silently starts the scan from zero: neither
`mamba_selective_scan` nor the kernel that may stand behind it takes an initial state. The convolution state
is continued, so the text looks almost right.

Here the scan gets the state when there is one; a fresh sequence still runs the library's own scan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from graftline.engine.inspection import names_used
from graftline.engine.overrides.rebind import library_global, rebind_forward

SCAN = "mamba_selective_scan"


def continue_scans(model: Any) -> None:
    """Let every Mamba-1 mixer of the model continue from its recurrent state."""
    for module in model.modules():
        if SCAN in names_used(module):
            _continue_scan(module)


def _continue_scan(module: Any) -> None:
    library_scan = library_global(module, SCAN)
    pending: list[torch.Tensor] = []

    def scan(*args: Any, **kwargs: Any) -> Any:
        if pending:
            return scan_from(pending.pop(0), *args, **kwargs)
        return library_scan(*args, **kwargs)

    rebind_forward(module, **{SCAN: scan})
    run: Callable[..., Any] = module.forward

    def forward(hidden_states: torch.Tensor, cache_params: Any = None, **kwargs: Any) -> Any:
        held = cache_params.get_recurrent_state(module.layer_idx) if cache_params is not None else None
        if held is not None and hidden_states.shape[1] > 1:
            # Zamba keeps a state per Mamba head, (rows, heads, dim, n), and scans one head after the other.
            pending.extend(held.unbind(1) if held.dim() == 4 else [held])
        try:
            return run(hidden_states, cache_params=cache_params, **kwargs)
        finally:
            pending.clear()

    module.forward = forward


def scan_from(
    state: torch.Tensor,
    hidden_states: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,  # noqa: N803
    B: torch.Tensor,  # noqa: N803
    C: torch.Tensor,  # noqa: N803
    **options: Any,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Selective scan of the library, from `state` (rows, channels, n) instead of from zero.

    `hidden_states` and `dt` are (rows, channels, tokens), `A` (channels, n), `B` and `C` (rows, n, tokens).
    Returns the output, (rows, channels, tokens), and with `return_last_state` the state after it.
    """
    dtype = hidden_states.dtype
    if (bias := options.get("delta_bias")) is not None:
        dt = dt + bias.to(dt.dtype)[..., None]
    if options.get("delta_softplus"):
        dt = F.softplus(dt)
    decay = torch.exp(A[None, :, None, :] * dt[:, :, :, None])
    driven = dt[:, :, :, None] * B.transpose(1, 2)[:, None].float() * hidden_states[:, :, :, None].float()
    outputs = []
    for token in range(hidden_states.shape[2]):
        state = decay[:, :, token] * state + driven[:, :, token]
        outputs.append((state.to(dtype) @ C[:, :, token, None])[:, :, 0])
    out = torch.stack(outputs, dim=-1)
    if (skip := options.get("D")) is not None:
        out = out + hidden_states * skip[None, :, None]
    if (gate := options.get("z")) is not None:
        out = out * F.silu(gate)
    return (out, state) if options.get("return_last_state") else out
