"""Files: checked JSON, TOML and YAML, checksums, full disks, escaping, Markdown tables."""
