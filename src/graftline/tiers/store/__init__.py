"""The lowest tier: stores that outlive the process, each opened from a URL."""
