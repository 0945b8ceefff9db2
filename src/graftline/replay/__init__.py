"""Replays traces of requests through the real cache without a model, beside the clairvoyant optimum."""

from graftline.replay.compositions import Composition, parse_composition
from graftline.replay.cost import CostModel
from graftline.replay.formats import FORMATS, FileTrace
from graftline.replay.lines import TraceError
from graftline.replay.loops import Arrivals, Clients
from graftline.replay.requests import ReplayRequest
from graftline.replay.simulate import Setup, simulate
from graftline.replay.sweep import SweepPlan, SweepResult, sweep
from graftline.replay.tokens import PagedTrace

__all__ = [
    "FORMATS",
    "Arrivals",
    "Clients",
    "Composition",
    "CostModel",
    "FileTrace",
    "PagedTrace",
    "ReplayRequest",
    "Setup",
    "SweepPlan",
    "SweepResult",
    "TraceError",
    "parse_composition",
    "simulate",
    "sweep",
]
