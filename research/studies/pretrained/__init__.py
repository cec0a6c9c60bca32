"""Study of reward models that start from pretrained weights, trained on human and model preferences.

The plan is `plan`: MiniLM's recipe (mix of data, learning rate, epochs) and SmolLM2's learning rate are chosen by the
accuracy on validation pairs; final models then rate held-out human pairs and five benchmarks once. Beside them stand a
linear head on frozen features, TF-IDF that is fitted on the same pairs, and every baseline of the benchmarks.
"""
