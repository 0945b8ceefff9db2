"""What an answer tells besides text: usage, reuse, timings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from graftline.engine.api import ReuseReport
from graftline.server.job import Choice, Job
from graftline.server.responses import (
    CachedByTier,
    CacheReport,
    PromptTokensDetails,
    ShortfallBody,
    Timings,
    Usage,
)


def first_of(job: Job, choices: Sequence[Choice]) -> Sequence[Choice]:
    """The first answer to each prompt; what the others reuse of it counts for nothing."""
    return choices[:: job.n]


def reused_tokens(job: Job, choices: Sequence[Choice]) -> int:
    """Tokens of the prompts that were not computed."""
    return sum(choice.reuse.reused_tokens for choice in first_of(job, choices) if choice.reuse)


def usage(job: Job, choices: Sequence[Choice]) -> Usage:
    """Tokens so far."""
    cached = reused_tokens(job, choices)
    completion = sum(choice.generated for choice in choices)
    return Usage(
        prompt_tokens=job.prompt_tokens,
        completion_tokens=completion,
        total_tokens=job.prompt_tokens + completion,
        prompt_tokens_details=PromptTokensDetails(
            cached_tokens=cached, cached_tokens_by_tier=by_tier(job, choices)
        ),
    )


def by_tier(job: Job, choices: Sequence[Choice]) -> CachedByTier:
    """Reused tokens by the tier in which they lay when the request came."""
    reports = [choice.reuse for choice in first_of(job, choices) if choice.reuse]
    return CachedByTier(
        device=sum(report.device_tokens for report in reports),
        host=sum(report.host_tokens for report in reports),
        store=sum(report.store_tokens for report in reports),
    )


def cache_report(job: Job, choices: Sequence[Choice]) -> CacheReport:
    """What was reused, summed over the prompts, and why not more."""
    reports = [choice.reuse or ReuseReport(0) for choice in first_of(job, choices)]
    worst = max(reports, key=lambda report: report.lost_tokens)
    boundaries: Counter[str] = Counter()
    for report in reports:
        for component, tokens in report.boundaries.items():
            boundaries[component] += tokens
    return CacheReport(
        matched_tokens=sum(report.matched_tokens for report in reports),
        reused_tokens=sum(report.reused_tokens for report in reports),
        lost_tokens=sum(report.lost_tokens for report in reports),
        limited_by=worst.limited_by,
        reason=worst.reason,
        boundaries=dict(boundaries),
        coalesced_tokens=sum(report.coalesced_tokens for report in reports),
        restored_ms=max(report.restored_ms for report in reports),
        shortfalls=[
            ShortfallBody(
                tier=short.tier.name.lower(),
                reached_tokens=short.reached_tokens,
                lost_tokens=short.lost_tokens,
                reason=short.reason,
            )
            for report in reports
            for short in report.shortfalls
        ],
        session_id=job.wishes.session_id or None,
    )


def timings(job: Job, choices: Sequence[Choice]) -> Timings:
    """Times of the whole request."""
    first = first_of(job, choices)
    start_s = min(choice.submitted_s for choice in first)
    first_s = max(choice.first_s for choice in first)
    last_s = max(choice.last_s for choice in choices)
    cached = reused_tokens(job, choices)
    prompt_n, predicted_n = job.prompt_tokens - cached, sum(choice.generated for choice in choices)
    prompt_ms, predicted_ms = max(0.0, first_s - start_s) * 1e3, max(0.0, last_s - first_s) * 1e3
    return Timings(
        cache_n=cached,
        prompt_n=prompt_n,
        prompt_ms=prompt_ms,
        prompt_per_token_ms=_ratio(prompt_ms, prompt_n),
        prompt_per_second=_ratio(prompt_n * 1e3, prompt_ms),
        predicted_n=predicted_n,
        predicted_ms=predicted_ms,
        predicted_per_token_ms=_ratio(predicted_ms, predicted_n),
        predicted_per_second=_ratio(predicted_n * 1e3, predicted_ms),
    )


def report_line(job: Job, choices: Sequence[Choice]) -> str:
    """One line for the log."""
    report = cache_report(job, choices)
    lost = (
        f", lost {report.lost_tokens} to {report.limited_by} ({report.reason})" if report.lost_tokens else ""
    )
    lost += "".join(f", {short_line(short)}" for short in report.shortfalls)
    return (
        f"request {job.request_id}: session {job.wishes.session_id or '-'}, prompt {job.prompt_tokens},"
        f" matched {report.matched_tokens}, reused {report.reused_tokens}{lost},"
        f" generated {sum(choice.generated for choice in choices)}"
    )


def short_line(short: ShortfallBody) -> str:
    """What one tier cost, in words."""
    if short.reached_tokens is None:
        return f"{short.tier} not known ({short.reason})"
    return f"{short.tier} reached {short.reached_tokens}, lost {short.lost_tokens} ({short.reason})"


def _ratio(amount: float, by: float) -> float:
    return amount / by if by else 0.0
