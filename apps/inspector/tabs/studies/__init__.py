"""The studies tab: reports with tables and figures."""
