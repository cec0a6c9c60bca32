"""What is installed: extras and the sentence about a missing one, facts about the machine."""
