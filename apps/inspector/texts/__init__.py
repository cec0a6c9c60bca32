"""Untrusted texts as HTML: rendered Markdown, and tokens in colours."""
