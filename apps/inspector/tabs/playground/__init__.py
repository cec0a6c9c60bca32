"""The playground tab: guided decoding, sweeps and files of decoded completions."""
