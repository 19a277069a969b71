"""Runs inside vLLM's workers, named by `--worker-extension-cls`: loads all weights, tied ones too.

On CPUs vLLM packs the weights of each layer when it loads them. `reload_weights` packs again what
it finds in the files; a head that is tied to the embeddings is not there, and goes on with its old
weights without a word. Nothing of artangram is imported: vLLM has a Python of its own.
"""

from typing import Any


class Extension:
    """vLLM mixes it into its worker."""

    model_runner: Any

    def reload_all(self, weights_path: str) -> None:
        self.model_runner.reload_weights(weights_path=weights_path)
        for layer in self.model_runner.get_model().modules():
            if type(layer).__name__ == "ParallelLMHead":
                layer.quant_method.process_weights_after_loading(layer)
