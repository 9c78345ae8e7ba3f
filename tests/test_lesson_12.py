"""Lesson 12: it ends with the ledger."""

import notebooks


def test_the_ledger_is_the_last_figure():
    (source,) = notebooks.lesson_sources("12")
    cells = [cell.source for cell in notebooks.read_cells(source) if cell.cell_type == "code"]
    assert [cell for cell in cells if "Markdown(" in cell and "import" not in cell][-2:] == \
        ["Markdown(ledger.ledger_table())", "Markdown(ledger.settings_table())"]
