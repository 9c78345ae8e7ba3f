"""Decoding with a drafter inside transformers' own `generate`.

`CustomGenerate` (custom_generate.py) is called in place of transformers' loop; request_batch.py
drafts and verifies the rows of such a call.
"""
