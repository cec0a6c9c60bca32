"""Static copy of a folder's judgments: pages that open from a file, for readers without the package."""
