"""Adapters conditioned on a preference: plain LoRA (GenARM), PBLoRA (PARM) and MoSLoRA (UniARM) with one interface.

All three are an ordinary PEFT LoRA whose rank-r features u = A x are modulated before B:

    y = W0 x + s B (M(α) A x + δ(α))

    lora     M = 1                                     one objective, or none
    pblora   M = blockdiag(W1, Σ_i α_i V_i)            Lin et al. 2025, arXiv:2505.06274
    moslora  M = diag(γ(α)), δ = δ(α)                  UniARM, arXiv:2602.09538; not the MoSLoRA of arXiv:2406.11909

W0 is the frozen layer, A and B are the LoRA matrices, s is their scaling factor, and α is the preference vector. PEFT
computes s B (.), and a forward hook on A applies M and δ. At a fixed α each adapter equals a plain LoRA with
B' = B M(α) and a bias s B δ(α).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from ...kernels.dispatch import wide
from ...kernels.lora_film import modulate
from ..backbones.loading import fingerprint
from ..data.preference_vectors import Preference, preference_matrix
from ..errors import DataError, UsageError
from ..io.hub_names import absolute_name
from ..io.sharded_weights import gather_tensor, put
from .modulation import MixedVector, Modulation, Preferences, random_objectives, span_coordinates, text_objectives
from .moslora import ScaleAndShift
from .pblora import BilinearCore
from .serving import Block, ServedLinear
from .settings import SETTINGS, AdapterSettings, load_settings

WEIGHTS = "preference_adapter.safetensors"
NAME = "default"


class PreferenceAdapter:
    """A causal language model with an adapter conditioned on a preference vector, shared by all rows or one per row."""

    def __init__(self, model: PeftModel, settings: AdapterSettings, mixer: nn.Module):
        self.model = model
        self.settings = settings
        self.objectives = settings.objectives
        self.mixer = mixer.to(next(model.parameters()).device)
        self.base: Any = model.get_base_model()
        self.layers: dict[str, Any] = {
            name: module for name, module in self.base.named_modules() if isinstance(module, LoraLayer)
        }
        with_heads = self.layers if settings.follows_preference else {}
        self.heads = {
            name: _head(settings, mixer.width).to(layer.lora_A[NAME].weight) for name, layer in with_heads.items()
        }
        self._rows: dict[str, Modulation] | None = None if with_heads else dict.fromkeys(self.layers, Modulation())
        self._disabled = False
        for name, layer in self.layers.items():
            layer.lora_A[NAME].register_forward_hook(self._modulation_hook(name))
            layer.merge = _refuse_merge
        # registered as submodules, so that their parameters are trained, moved and counted with the model
        model.base_model.preference_mixer = self.mixer
        model.base_model.preference_heads = nn.ModuleList(self.heads.values())

    def set_preference(self, alpha: Preference | Sequence[Preference] | Tensor, names: Sequence[str] = ()) -> None:
        """Set one α for all rows (mapping or tensor [K]) or one per row (mappings or [N, K]); tensors require `names`.

        Differentiable: the modulations of α are computed here once, and used by every forward until the next call.
        """
        self.use(self.modulations(self._matrix(alpha, names)))

    def modulations(self, alpha: Tensor) -> dict[str, Modulation]:
        """Compute the modulation of every layer for preference vectors α [N, K]."""
        alpha = alpha.to(next(self.model.parameters()).device, torch.float32)
        if not self.heads:
            return dict.fromkeys(self.layers, Modulation())
        mixed = self.mixer(alpha).to(next(iter(self.layers.values())).lora_A[NAME].weight.dtype)
        return {name: head(mixed) for name, head in self.heads.items()}

    def use(self, rows: dict[str, Modulation]) -> None:
        """Set the modulation of every layer for all following forward passes."""
        self._rows = rows

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """Disable the adapter within the context, so that outputs are the base model's."""
        self._disabled = True
        try:
            yield
        finally:
            self._disabled = False

    def _matrix(self, alpha: Preference | Sequence[Preference] | Tensor, names: Sequence[str]) -> Tensor:
        """Return preferences as a matrix α [N, K] in the order of the adapter's objectives."""
        if not self.settings.follows_preference:
            return torch.ones(1, 1)
        if isinstance(alpha, Tensor):
            if tuple(names) != self.objectives:
                raise UsageError(
                    f"a preference tensor needs the names of its objectives in the adapter's order {self.objectives}, "
                    f"got {tuple(names)}"
                )
            alpha = alpha if alpha.dim() == 2 else alpha[None]
            if alpha.shape[1] != len(names):
                raise UsageError(f"a preference over {', '.join(names)} has {len(names)} values, got {alpha.shape[1]}")
            return alpha
        vectors = [alpha] if isinstance(alpha, Mapping) or alpha is None else list(alpha)
        return torch.tensor(preference_matrix(vectors, self.objectives), dtype=torch.float32)

    def _modulation_hook(self, name: str):
        """Return the forward hook that modulates the features of a layer's LoRA matrix A."""

        def hook(_module: nn.Module, _inputs: Any, features: Tensor) -> Tensor:
            if self._disabled:
                return torch.zeros_like(features)
            if self._rows is None:
                raise UsageError(f"no preference is set; call set_preference for {', '.join(self.objectives)}")
            rows = self._rows[name]
            if rows.rows not in (None, 1, len(features)):
                raise UsageError(f"{rows.rows} preferences for {len(features)} rows; set one for all, or one per row")
            return modulate(features, *rows)

        return hook

    @contextmanager
    def serving(self, rows: dict[str, Modulation], start: int = 0) -> Iterator[None]:
        """Replace PEFT's layers by faster ones for decoding within the context; rows before `start` get no adapter."""
        restored, blocks = {}, {}
        for name, layer in self.layers.items():
            parent = self.base.get_submodule(name.rpartition(".")[0])
            restored[name] = parent
            served = self._layer_for_decoding(layer, rows[name], start, blocks.setdefault(parent, Block()))
            setattr(parent, name.rpartition(".")[2], served)
        try:
            yield
        finally:
            for name, parent in restored.items():
                setattr(parent, name.rpartition(".")[2], self.layers[name])

    def _layer_for_decoding(self, layer: Any, rows: Modulation, start: int, block: Block) -> ServedLinear:
        """Return the layer for decoding. The adapter gets the base layer's dtype; on a CPU, at least float32."""
        base = layer.get_base_layer()
        narrow = base.weight.is_cuda and base.weight.is_floating_point()
        dtype = base.weight.dtype if narrow else wide(base.weight.dtype)
        A, B = (adapter[NAME].weight.detach().to(dtype) for adapter in (layer.lora_A, layer.lora_B))
        rows = rows.map(lambda tensor: tensor.detach().to(A))
        return ServedLinear(base, A, B, rows, factor=self.settings.factor, start=start, block=block)

    def export_lora(self, alpha: Preference, folder: Path) -> None:
        """Export the adapter at one preference as a plain PEFT LoRA folder: B' = B M(α), and a LoRA bias B δ(α).

        `PeftModel.from_pretrained(base, folder)` gives the same logits. Engines without LoRA biases need `shift=False`.
        """
        tensors, biased = {}, False
        for name, (weight, bias) in self._lora_matrices(alpha).items():
            prefix = f"base_model.model.{name}"
            tensors[f"{prefix}.lora_A.weight"] = self.layers[name].lora_A[NAME].weight.detach().clone()
            tensors[f"{prefix}.lora_B.weight"] = weight.contiguous()
            if bias is not None:
                biased, tensors[f"{prefix}.lora_B.bias"] = True, bias
        config = replace(self.model.peft_config[NAME], lora_bias=biased, inference_mode=True)
        folder.mkdir(parents=True, exist_ok=True)
        config.save_pretrained(str(folder))
        save_file({key: value.cpu() for key, value in tensors.items()}, folder / "adapter_model.safetensors")

    @torch.no_grad()
    def merge(self, alpha: Preference) -> nn.Module:
        """Merge the adapter at one preference into the base model in place: W0 + s B M(α) A, and a bias + s B δ(α).

        The adapter is unusable afterwards. If the architecture has no biases that could hold B δ(α), use `export_lora`.
        """
        for name, (weight, bias) in self._lora_matrices(alpha).items():
            layer, base = self.layers[name], self.layers[name].get_base_layer()
            change = self.settings.factor * weight @ layer.lora_A[NAME].weight
            base.weight += (change.T if layer.fan_in_fan_out else change).to(base.weight)
            if bias is not None:
                bias = (self.settings.factor * bias).to(base.weight)
                base.bias = nn.Parameter(bias if base.bias is None else base.bias + bias, requires_grad=False)
            parent = self.base.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], base)
        return self.base

    @torch.no_grad()
    def _lora_matrices(self, alpha: Preference) -> dict[str, tuple[Tensor, Tensor | None]]:
        """Return B' = B M and the bias B δ (None without a shift) of every layer at one preference."""
        settings = {}
        for name, rows in self.modulations(self._matrix(alpha, ())).items():
            weight = self.layers[name].lora_B[NAME].weight
            shift = None if rows.shift is None else weight @ rows.shift[0].to(weight)
            settings[name] = (weight @ rows.matrix(weight.shape[1]).to(weight), shift)
        return settings

    def state(self) -> dict[str, Tensor]:
        """Return every tensor of the adapter by name."""
        tensors = {f"mixer.{key}": value for key, value in self.mixer.state_dict().items()}
        for name, layer in self.layers.items():
            tensors[f"{name}.A"], tensors[f"{name}.B"] = layer.lora_A[NAME].weight, layer.lora_B[NAME].weight
            if name in self.heads:
                tensors |= {f"{name}.{key}": value for key, value in self.heads[name].state_dict().items()}
        return {key: value.detach() for key, value in tensors.items()}

    def save_pretrained(self, folder: Path) -> None:
        """Save weights and settings, but not the base model."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file({key: gather_tensor(part).cpu().contiguous() for key, part in self.state().items()}, folder / WEIGHTS)
        (folder / SETTINGS).write_text(json.dumps(asdict(self.settings), indent=2) + "\n", encoding="utf-8")

    @torch.no_grad()
    def load_weights(self, folder: Path) -> None:
        """Load saved weights; raise `DataError` if a tensor is missing, unexpected or of another shape."""
        try:
            stored = load_file(folder / WEIGHTS)
        except (OSError, SafetensorError) as error:
            raise DataError(f"{folder / WEIGHTS}: missing or damaged ({error}); restore it") from error
        expected = self.state()
        for key in sorted({*expected, *stored}):
            if key not in stored or key not in expected or expected[key].shape != stored[key].shape:
                raise DataError(f"{folder / WEIGHTS}: '{key}' does not fit {SETTINGS}; restore both files")
            put(expected[key], stored[key])


def _refuse_merge(*_: Any, **__: Any) -> NoReturn:
    raise UsageError("PEFT cannot merge an adapter that follows a preference; use PreferenceAdapter.merge(alpha)")


def _head(settings: AdapterSettings, width: int) -> nn.Module:
    """Create the module that computes a layer's modulation from the preference (pblora or moslora)."""
    if settings.kind == "pblora":
        return BilinearCore(len(settings.objectives), settings.shared_rank, settings.rank)
    bias = settings.generator == "trunk"
    return ScaleAndShift(width, settings.rank, scale=settings.scale, shift=settings.shift, bias=bias)


def attach(model: Any, settings: AdapterSettings, tokenizer: Any = None) -> PreferenceAdapter:
    """Add a new adapter, whose initial output is 0, to the model in place; text embeddings require the `tokenizer`."""
    base = settings.base or absolute_name(model.config.name_or_path)
    settings = replace(settings, base=base, base_fingerprint=fingerprint(model))
    if settings.kind == "moslora" and settings.embedding == "text" and settings.generator != "alpha":
        settings = replace(settings, texts=settings.texts or settings.objectives)
    torch.manual_seed(settings.seed)
    return _assemble(model, settings, _mixer(model, settings, tokenizer))


def load_adapter(model: Any, folder: Path) -> PreferenceAdapter:
    """Load a saved adapter into its base model, in place; raise `DataError` if it was trained on another base."""
    settings = load_settings(folder)
    if (actual := fingerprint(model)) != settings.base_fingerprint:
        raise DataError(
            f"{folder}: the adapter was trained on {settings.base} (fingerprint {settings.base_fingerprint}), not on "
            f"{model.config.name_or_path} ({actual}); give the base that it was trained on"
        )
    adapter = _assemble(model, settings, _mixer(model, settings, empty=True))
    adapter.load_weights(folder)
    return adapter


def _assemble(model: Any, settings: AdapterSettings, mixer: nn.Module) -> PreferenceAdapter:
    """Add LoRA layers to the model as the settings state, and return the model as a `PreferenceAdapter`."""
    linear = _linear_names(model)
    layers = model.config.get_text_config().num_hidden_layers
    if not 0 <= settings.from_layer < layers:
        raise UsageError(f"from_layer must lie in 0..{layers - 1} for this model, got {settings.from_layer}")
    lora = LoraConfig(
        r=settings.total_rank,
        lora_alpha=settings.factor * settings.total_rank,  # PEFT's factor is lora_alpha / r
        lora_dropout=settings.dropout,
        target_modules=linear if settings.targets == ("all-linear",) else list(settings.targets),
        layers_to_transform=list(range(settings.from_layer, layers)) if settings.from_layer else None,
        task_type="CAUSAL_LM",
    )
    try:
        adapted = get_peft_model(model, lora)
    except ValueError as error:
        raise UsageError(
            f"no layer of {model.config.model_type} is called {', '.join(settings.targets)}; its linear layers are "
            f"{', '.join(linear)}"
        ) from error
    return PreferenceAdapter(adapted, settings, mixer)


def _linear_names(model: Any) -> list[str]:
    """Return the names of the model's linear layers, except its output head."""
    head = model.get_output_embeddings()
    layers = (
        name for name, module in model.named_modules() if isinstance(module, (nn.Linear, Conv1D)) and module is not head
    )
    return sorted({name.rpartition(".")[2] for name in layers})


def _mixer(model: Any, settings: AdapterSettings, tokenizer: Any = None, *, empty: bool = False) -> nn.Module:
    """Create the module that maps α to the generators' input; with `empty` (for loading) its vectors are 0."""
    k, width = len(settings.objectives), model.config.get_text_config().hidden_size
    if settings.kind != "moslora":
        return Preferences(k)
    hidden = settings.hidden if settings.generator == "trunk" else None
    if settings.generator == "alpha" or settings.embedding == "one_hot":
        return MixedVector(torch.eye(k), hidden)  # the generator reads α itself
    if empty:
        return MixedVector(torch.zeros(k, k if settings.span else width), hidden)
    if settings.embedding == "text" and tokenizer is None:
        raise UsageError("descriptions of the objectives need the tokenizer; pass it, or set embedding='one_hot'")
    if settings.embedding == "text":
        vectors = text_objectives(model, tokenizer, settings.texts, centred=settings.centred)
    else:
        vectors = random_objectives(k, width, settings.seed)
    return MixedVector(span_coordinates(vectors) if settings.span else vectors, hidden)
