"""What is asked of a judge, and what a judge may answer."""
