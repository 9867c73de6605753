"""From settings to a stack that can answer: model folder, tokenizer, labels, layout, row builder, executor.

It refuses to know requests. Trap: everything that can be wrong with a model is found here, in the order that costs
least (configuration, tokenizer, chat template, then weights), so that no later request meets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import torch

from decider.backbone.load import folder_spec, load_hf_config
from decider.backbone.spec import DecoderSpec
from decider.errors import ConfigError, DeviceError, EngineError, ModelError, SetupError, first_line
from decider.model.cache import cache_dir
from decider.model.head import LabelHead, check_head, label_head
from decider.model.load import DTYPES, LoadedModel, load_module
from decider.model.source import ModelFolder, resolve
from decider.plan.buckets import Grid
from decider.plan.packs import PackLimits, card_limits
from decider.run.choose import choose_executor
from decider.run.cpu_dtype import pick_cpu_dtype
from decider.run.device import Pick, engine_names, pick_attention, pick_device, pick_devices, pick_dtype
from decider.run.executor import Executor
from decider.run.forward import on_device
from decider.run.graphs import CudaCapturer
from decider.run.grid import GridExecutor
from decider.run.options import GridOptions
from decider.run.pack_forward import why_not_static
from decider.run.pack_fp8 import check_fp8_packs
from decider.run.packed import packed_executor
from decider.run.reference import ReferenceExecutor
from decider.run.stats import ReferenceReport
from decider.run.variant import check_options
from decider.run.warmup import warm_pinned
from decider.settings import Settings
from decider.tokens.calibration import DTYPE_KEYS, Calibration
from decider.tokens.chat import ChatFrame, chat_frame
from decider.tokens.config import WORDINGS_NAME, DeciderConfig, load_config
from decider.tokens.labels import LabelTable, label_table
from decider.tokens.layout import Layout
from decider.tokens.rows import RowBuilder
from decider.tokens.tokenizer import Tokenizer
from decider.tokens.wordings import Wordings, load_wordings

Say = Callable[[str], None]

PACK_LIMITS = PackLimits(max_tokens=2048, max_sequences=512, max_slots=4096)
"""Packs of exact length. More tokens make products no faster on a CPU, and a call's memory larger."""


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A model in memory with all that is read from its folder, before an executor is made for it."""

    folder: ModelFolder
    config: DeciderConfig
    layout: Layout
    tokenizer: Tokenizer
    labels: LabelTable
    chat: ChatFrame | None
    chat_fault: str | None
    """Why this model has no chat layout, or None if it has one."""
    loaded: LoadedModel
    head: LabelHead
    executor: Pick
    attention: Pick
    picks: tuple[Pick, ...]
    """Every choice made up to here."""


@dataclass(frozen=True, slots=True)
class Stack:
    """All that stands between a validated request and label logits."""

    folder: ModelFolder
    config: DeciderConfig
    calibration: Calibration
    wordings: Wordings | None
    """Those that the model was trained on, where that is known."""
    dtype_key: str
    """The entry of `x_calibration` that answers are calibrated by, where it has one."""
    layout: Layout
    builder: RowBuilder
    chat_fault: str | None
    """Why this model has no chat layout, or None if it has one."""
    executor_name: str
    executors: Mapping[str, Executor]
    """One a device, by `engine_names`."""
    picks: tuple[Pick, ...]


def default_layout(settings: Settings, config: DeciderConfig) -> Pick:
    """The layout of requests that name none: settings > `decider_config.json` > plain, state first."""
    if settings.layout is not None:
        return Pick("layout", Layout.parse(settings.layout).name, settings.sources["layout"])
    reason = "decider_config.json" if config.present else "the model has no decider_config.json"
    return Pick("layout", Layout(chat=config.chat, schema_first=config.schema_first).name, reason)


def find_chat_frame(tokenizer: Tokenizer, labels: LabelTable, *, needed: bool) -> tuple[ChatFrame | None, str | None]:
    """The chat frame, or why there is none. Raises ModelError only if the model's own layout `needed` it."""
    try:
        return chat_frame(tokenizer, labels), None
    except ModelError as error:
        if needed:
            raise
        return None, str(error)


def make_executor(settings: Settings, opened: OpenModel, say: Say) -> Executor:
    """The executor that `settings` name, ready for rows; see `executor_for`."""
    return executor_for(
        opened.executor.value,
        opened.loaded,
        opened.head,
        attention=opened.attention,
        options=_options(settings),
        say=say,
    )


def spec_or_refusal(folder: ModelFolder) -> tuple[str | None, DecoderSpec | None]:
    """Why no native backbone has the model in `folder`, or else its decoder. Raises ModelError for a damaged config."""
    config = load_hf_config(folder)
    try:
        return None, folder_spec(folder, config)
    except ModelError as error:
        return str(error), None


def _why_not_captured(spec: DecoderSpec, device: torch.device, dtype: torch.dtype, options: GridOptions) -> str | None:
    if options.fp8 and dtype is not torch.bfloat16:
        return f"in fp8 they are of bfloat16, not {str(dtype).removeprefix('torch.')}"
    return why_not_static(spec, device, dtype)


def _pick_dtype(executor: str, device: str, wanted: str) -> Pick:
    if executor == "packed" and device == "cpu" and wanted == "auto":
        return pick_cpu_dtype()
    return pick_dtype(executor, device, wanted)


def _options(settings: Settings) -> GridOptions:
    return GridOptions(compile=settings.compile, fp8=settings.fp8)


def executor_for(
    name: str, loaded: LoadedModel, head: LabelHead, *, attention: Pick, options: GridOptions, say: Say
) -> Executor:
    """The executor called `name`; a grid, and packs on CUDA, are warmed up and sealed here, which takes a while there.

    Raises DeviceError, EngineError or ConfigError as the executors and their warm-ups do.
    """
    device = torch.device(loaded.device)
    # A kernel is launched on the current device, wherever its tensors are.
    with on_device(device):
        if name == "reference":
            return ReferenceExecutor(loaded, head)
        if name == "packed":
            limits = card_limits() if device.type == "cuda" else PACK_LIMITS
            return packed_executor(loaded, head, limits, fp8=options.fp8, say=say)
        assert name == "grid", name
        capturer = CudaCapturer(device) if device.type == "cuda" else None
        grid = GridExecutor(loaded, head, Grid(), capturer, say, attention=attention, options=options)
        grid.warmup()
        grid.seal()
        return grid


def _check_vocabulary(tokenizer: Tokenizer, loaded: LoadedModel) -> None:
    """Raises ModelError if a text could be given a token id that the model has no embedding for."""
    rows = int(cast("torch.nn.Embedding", loaded.module.get_input_embeddings()).weight.shape[0])
    if tokenizer.largest_id >= rows:
        raise ModelError(
            f"the tokenizer of {loaded.name!r} has token ids up to {tokenizer.largest_id} and the model only {rows} "
            "embeddings; use the tokenizer.json that belongs to the weights"
        )


def _head_of(loaded: LoadedModel, labels: LabelTable) -> LabelHead:
    head = label_head(loaded, labels.ids)
    with on_device(torch.device(loaded.device)):
        check_head(loaded, head, labels.ids)
    return head


def open_model(settings: Settings, say: Say) -> OpenModel:
    """Find and load the model that `settings` name, on one device. Raises SetupError's subclasses."""
    return _open_on(pick_device(settings.device), settings, say)


def _open_on(picked: Pick, settings: Settings, say: Say) -> OpenModel:
    """On the first of the devices that were picked; whatever is chosen for it suits the others, which are like it."""
    device, *others = picked.value.split(",")
    options = _options(settings)
    if others and settings.executor == "reference":
        raise ConfigError(
            f"the reference executor is the oracle, on one device, and device is {settings.device!r:.60}; name one"
        )
    packs_dtype = DTYPES[pick_dtype("packed", device, settings.dtype).value]
    if settings.executor in ("auto", "grid"):
        check_options(options, torch.device(device), captures=device.startswith("cuda"))
    elif settings.executor == "packed" and options.fp8:
        check_fp8_packs(torch.device(device), packs_dtype)
    folder = resolve(settings.model, gguf_file=settings.gguf_file, cache=cache_dir(), say=say)
    refusal = not_captured = None
    if settings.executor not in ("reference", "grid"):
        refusal, spec = spec_or_refusal(folder)
        if spec is not None and device.startswith("cuda"):
            not_captured = _why_not_captured(spec, torch.device(device), packs_dtype, options)
    chosen = choose_executor(settings.executor, device, options=options, refusal=refusal, not_captured=not_captured)
    config = load_config(folder.path, None if settings.decider_config is None else Path(settings.decider_config))
    for warning in config.warnings:
        say(warning)
    layout_pick = default_layout(settings, config)
    layout = Layout.parse(layout_pick.value)
    tokenizer = Tokenizer.from_pretrained(folder.path)
    labels = label_table(tokenizer)
    chat, chat_fault = find_chat_frame(tokenizer, labels, needed=layout.chat)

    dtype = _pick_dtype(chosen.value, device, settings.dtype)
    attention = pick_attention(chosen.value)
    with _naming(device) if others else nullcontext():
        loaded = load_module(folder, device=device, dtype=dtype.value, attention=attention.value)
        _check_vocabulary(tokenizer, loaded)
        head = _head_of(loaded, labels)
    n_labels = str(len(labels.ids))
    picks = (
        Pick("model", folder.name, folder.origin),
        picked,
        dtype,
        layout_pick,
        Pick("labels", n_labels, "label strings that are one token; the largest Choice this model can answer"),
    )
    return OpenModel(
        folder, config, layout, tokenizer, labels, chat, chat_fault, loaded, head, chosen, attention, picks
    )


def _executors(settings: Settings, opened: OpenModel, names: tuple[str, ...], say: Say) -> dict[str, Executor]:
    """An executor on each device of `names`, by its name; `opened` has the first one's weights.

    One after the other: reading weights sets torch's default dtype, attention is pinned for the whole process while a
    grid warms up, and giving cached memory back reaches every card, also one that captures. Side by side, little would
    be won: launching and capturing are Python's work. The model is found, and its kernels are compiled, once.
    """
    if len(names) == 1:
        return {names[0]: make_executor(settings, opened, say)}
    made: dict[str, Executor] = {}
    with ExitStack() as undo:
        for name in names:
            own_say = partial(_say_of, name, say)
            with _naming(name):
                own = opened if not made else _beside(opened, name.partition("#")[0], own_say)
                made[name] = make_executor(settings, own, own_say)
            undo.push(partial(_close_behind, made[name]))
        first = next(iter(made.values()))
        if isinstance(first, GridExecutor) and names[0].startswith("cuda"):
            warm_pinned(len(names))
        undo.pop_all()
    return made


def _beside(opened: OpenModel, device: str, say: Say) -> OpenModel:
    """`opened` with weights of its own on another `device` like it."""
    say("loading")
    loaded = load_module(opened.folder, device=device, dtype=opened.loaded.dtype, attention=opened.attention.value)
    return replace(opened, loaded=loaded, head=_head_of(loaded, opened.labels))


def _close_behind(executor: Executor, _kind: object, error: BaseException | None, _trace: object) -> None:
    """Close it on the way of `error`, which is what is told: one card's fault may reach those that are to be closed."""
    try:
        executor.close()
    except Exception as fault:
        if error is None:
            raise
        error.add_note(f"closing another engine failed as well: {first_line(fault)}")


def _say_of(name: str, say: Say, line: str) -> None:
    say(f"{name}: {line}")


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """What fails within says on which of several devices."""
    try:
        yield
    except (SetupError, EngineError) as error:
        raise type(error)(f"no engine on {name}: {error}") from error
    # What torch raises of a card that is broken, busy or full.
    except RuntimeError as error:
        raise DeviceError(f"no engine on {name}: {first_line(error)}; leave this device out") from error


def _picks(executors: Mapping[str, Executor], opened: OpenModel) -> tuple[Pick, ...]:
    """What was chosen for the first executor, and for the others only what differs."""
    picks: list[Pick] = []
    for name, executor in executors.items():
        report = executor.describe()
        own = (opened.attention,) if isinstance(report, ReferenceReport) else report.picks
        if not picks:
            picks = [*opened.picks, replace(opened.executor, value=str(report)), *own]
        else:
            picks.append(Pick(f"also {name}", str(report), "an engine of its own, behind the same queue"))
            picks += [replace(pick, name=f"{pick.name}, {name}") for pick in own if pick not in picks]
    return tuple(picks)


def assemble(settings: Settings, say: Say) -> Stack:
    """Build the stack. `say` receives progress lines. Raises SetupError's subclasses; see `decider.errors`.

    Of several devices each gets an executor; those that were made are closed where one fails, which the error names.
    """
    picked = pick_devices(settings.device)
    opened = _open_on(picked, settings, say)
    config = opened.config
    key = "fp8" if settings.fp8 else DTYPE_KEYS[opened.loaded.dtype]
    if config.x_calibration and key not in config.x_calibration:
        say(f"x_calibration has no entry for {key}; the plain temperatures are used")
    calibration, wordings = config.for_dtype(key), load_wordings(opened.folder.path)
    if calibration.temperatures.unfamiliar_by_type and wordings is None:
        raise ConfigError(
            f"the calibration of {key} has temperatures for unfamiliar wordings, and {opened.folder.path} has no "
            f"{WORDINGS_NAME} to tell them by; copy it from where the model is, or calibrate into a new file"
        )
    builder = RowBuilder(
        opened.tokenizer,
        opened.labels,
        config,
        chat=opened.chat,
        max_positions=opened.loaded.max_positions,
        max_state_tokens=settings.max_state_tokens,
    )
    executors = _executors(settings, opened, engine_names(picked.value), say)
    return Stack(
        folder=opened.folder,
        config=config,
        calibration=calibration,
        wordings=wordings,
        dtype_key=key,
        layout=opened.layout,
        builder=builder,
        chat_fault=opened.chat_fault,
        executor_name=opened.executor.value,
        executors=executors,
        picks=_picks(executors, opened),
    )
