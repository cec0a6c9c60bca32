"""Settings of the verbs: fields, parser, ranges, checks before loading, and specs such as `name(key=value)`."""
