"""File input and output: checked JSON, TOML and YAML, checksums, full disks, escaping, Markdown tables."""
