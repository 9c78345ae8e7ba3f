"""A byte-level BPE tokenizer with Qwen's special tokens and chat template, trained on the tiny world."""

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ...common.errors import DSparkLiteError
from ..names import DOMAINS
from .examples import examples

COUNTED = (*DOMAINS, "article", "drill")  # of examples that its words are counted in
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
# Qwen's split: contractions, words with their leading blank, single digits, punctuation, line ends, blanks.
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# The part of Qwen3's chat template that one conversation of plain text needs: thinking is off when asked to be.
CHAT_TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{{- message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""


def train_tokenizer(vocab_size: int, seed: int, per_domain: int = 2000) -> PreTrainedTokenizerFast:
    """Train the tokenizer on `per_domain` examples of each domain; its length is `vocab_size`,
    special tokens included."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL_TOKENS),
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    texts = (
        text
        for domain in COUNTED
        for example in examples(domain, per_domain, seed)
        for text in (f"user\n{example.prompt}", f"assistant\n{example.answer}")
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def chat_ids(tokenizer, prompt: str, *, enable_thinking: bool = False) -> list[int]:
    """Return the token ids of a first turn, up to and including the place where the answer starts.

    Without `enable_thinking` an empty `<think></think>` ends them, as in the data of the released drafts.
    Raise DSparkLiteError if the tokenizer has no chat template, or one that refuses the turn.
    """
    messages = [{"role": "user", "content": prompt}]
    return messages_ids(tokenizer, messages, enable_thinking=enable_thinking)


def messages_ids(tokenizer, messages: list[dict], *, enable_thinking: bool = False) -> list[int]:
    """Return the token ids of messages {role, content}, as `chat_ids` does of a first turn."""
    if tokenizer.chat_template is None:
        raise DSparkLiteError(
            "the tokenizer has no chat template, so nobody knows how a question is put to this model; save one with "
            "the tokenizer (tokenizer.chat_template), or give token ids"
        )
    try:
        text = tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=enable_thinking,
        )
    except Exception as error:  # jinja2's, whatever a template does
        raise DSparkLiteError(
            f"the chat template refuses a conversation of {', '.join(m['role'] for m in messages)} ({error})"
        ) from error
    return tokenizer(text, add_special_tokens=False)["input_ids"]
