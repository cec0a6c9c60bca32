"""A tokenizer and a small language model of a real architecture that reads requests for rubrics and writes rubrics."""

import re
from random import Random

import torch
from tokenizers import Regex, Tokenizer, decoders
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Sequence, Split
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from ...benchmarks.garden.models import SPECIALS
from ...judges.cdrrm.generator import Record
from ...judges.cdrrm.requests import system_prompt
from ...judges.prompts import part
from ...judges.rubrics.rubric import rubric_json
from ...rm.backbones.loading import small_config
from .checks import CHECKS
from .simulated_judge import rubric_of
from .simulated_teacher import STATED_AS
from .verifiable_prompts import (
    BY_CHANCE,
    HEADING,
    NEUTRAL,
    PADDING,
    QUESTIONS,
    STYLES,
    TOPICS,
    draw_prompt,
    render,
    write,
)

PARTS = ("instruction", "answer", "answer_a", "answer_b", "diagnosis_a", "diagnosis_b", "rubric")
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
APART, NOTHING = "Told apart by: ", "nothing"
LETTERS = [chr(code) for code in range(32, 127)] + ["\n"]


def phrases() -> list[str]:
    """Return the phrases that are one token: the world's sentences, the generator's instructions, and rubric syntax."""
    sentences = [text for check in CHECKS.values() for text in (*check.demands, *check.sentences)]
    asked = [question.format(topic) for question in QUESTIONS for topic in TOPICS]
    padded = [text for sentence in PADDING for text in (sentence, f"**{sentence}**")]
    marks = [f"<{slash}{name}>" for name in PARTS for slash in ("", "/")]
    form = [text for text in _form() if text]
    statuses = [f" | {side}: {status}" for side in "AB" for status in ("pass", "fail", "not said")]
    fixed = [system_prompt("generate"), HEADING, "user: ", *marks, *form, *STATED_AS, *statuses, APART, NOTHING]
    return list(dict.fromkeys([*fixed, *sentences, *asked, *NEUTRAL, *padded]))


def _form() -> list[str]:
    """Return the pieces of written rubrics: the text between rules' texts, and these texts."""
    written = rubric_json(rubric_of([*CHECKS]))
    texts = {text for rule in rubric_of([*CHECKS]).rules for text in (rule.criterion, rule.test)}
    between = re.split("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)), written)
    pieces = [piece for text in between for piece in re.split(r"(?<=[\[{\"r])(\d+)(?=\")", text)]
    return [*texts, *dict.fromkeys(pieces)]


def tokenizer() -> PreTrainedTokenizerFast:
    """Build a tokenizer: one token per phrase, one per letter of other text; spaces and list marks are dropped."""
    known = sorted(phrases(), key=len, reverse=True)
    ids = {token: index for index, token in enumerate(dict.fromkeys([*SPECIALS, *known, *LETTERS]))}
    words = Tokenizer(WordLevel(ids, unk_token="<unk>"))
    pattern = "|".join([*(re.escape(phrase) for phrase in known), r"[\s\S]"])
    unread = Split(Regex(r"^(?:\s+|-)$"), behavior="removed")
    words.pre_tokenizer = Sequence([Split(Regex(pattern), behavior="isolated"), unread])
    words.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=[token for token in SPECIALS if token.startswith("<|")],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def causal_lm(words: PreTrainedTokenizerFast, seed: int = 0) -> PreTrainedModel:
    """Build an untrained language model of 1.1 million parameters."""
    config = small_config(words, "qwen3", hidden=160, layers=3, heads=4, positions=192)
    config.initializer_range = 0.06  # with 0.02, the default for larger widths, training takes ten times as many steps
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config).float()


# ---- pretraining data ----


def lessons(n: int, seed: int) -> list[Record]:
    """Generate true conversations on reading: the demands of a prompt, which of two texts meets one, how texts differ.

    They replace the knowledge of a pretrained model, and contain no preferences, rubrics or better responses.
    """
    rng = Random(f"check lessons {seed}")
    return [rng.choices((_demands, _comparison, _contrast), (2, 3, 5))[0](rng) for _ in range(n)]


def _demands(rng: Random) -> Record:
    names, asked = _asked(rng)
    return _training_record(asked, "\n".join(STATED[name] for name in names))


def _asked(rng: Random) -> tuple[list[str], str]:
    """Return demands in the order of the prompt, and the prompt."""
    names, prompt = draw_prompt(rng)
    return names, part("instruction", f"user: {prompt}")


def _contrast(rng: Random) -> Record:
    """Return a record on two texts that meet most of a prompt's demands: the demands, and those that differ."""
    names, asked = _asked(rng)
    passed_and_text = []
    for _ in "AB":
        demanded = {name for name in names if CHECKS[name].forbids != (rng.random() < 0.7)}
        mentioned = frozenset(demanded | {name for name in CHECKS if name not in names and rng.random() < BY_CHANCE})
        text = write(rng, mentioned)
        short = text._replace(body=tuple(word for word in text.body if word not in NEUTRAL))
        passed_and_text.append(
            (mentioned, render(rng.choice((text, short)), rng.choice(STYLES), rng.sample(PADDING, 3)))
        )
    shown = [part(f"answer_{side}", text) for side, (_, text) in zip("ab", passed_and_text, strict=True)]
    lines = [
        " | ".join(
            [
                STATED[name],
                *(f"{side}: {_status(name, passed)}" for side, (passed, _) in zip("AB", passed_and_text, strict=True)),
            ]
        )
        for name in names
    ]
    differ = [name for name in names if len({_status(name, passed) for passed, _ in passed_and_text}) == 2]
    text_of_contrast = APART + (" ".join(STATED[name] for name in differ) or NOTHING)
    return _training_record("\n\n".join([asked, *shown]), "\n".join([*lines, text_of_contrast]))


def _status(name: str, passed: frozenset[str]) -> str:
    return "pass" if CHECKS[name].forbids != (name in passed) else "fail"


def _comparison(rng: Random) -> Record:
    """Return a record on short texts of which about half contain the criterion's sentence."""
    name, chosen_sentences = rng.choice([*CHECKS]), []
    for _ in "AB":
        others = [
            rng.choice(CHECKS[other].sentences) for other in rng.sample([*CHECKS], rng.randint(1, 3)) if other != name
        ]
        own_sentences = [rng.choice(CHECKS[name].sentences)] if rng.random() < 0.5 else []
        sentences = [*others, *own_sentences, *rng.sample(NEUTRAL, rng.randint(0, 2))]
        rng.shuffle(sentences)
        chosen_sentences.append(sentences)
    shown = [
        part(f"answer_{side}", " ".join(sentences)) for side, sentences in zip("ab", chosen_sentences, strict=True)
    ]
    passes = [
        CHECKS[name].forbids != any(sentence in CHECKS[name].sentences for sentence in sentences)
        for sentences in chosen_sentences
    ]
    text_of_comparison = " | ".join(
        f"{side}: {'pass' if pass_ else 'fail'}" for side, pass_ in zip("AB", passes, strict=True)
    )
    return _training_record("\n\n".join([*shown, STATED[name]]), f"{STATED[name]} | {text_of_comparison}")


def _training_record(user: str, assistant: str) -> Record:
    return {"prompt": [{"role": "user", "content": user}], "completion": [{"role": "assistant", "content": assistant}]}


STATED = {name: criterion for criterion, name in STATED_AS.items()}
