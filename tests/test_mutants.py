"""The mutations of tests/mutants.json can be made, and the tests that should notice them are there."""

import ast
import json

import mutants
import pytest

MUTATIONS = json.loads(mutants.MUTANTS.read_text())


@pytest.mark.parametrize("mutant", MUTATIONS, ids=lambda mutant: mutant["mutated"])
def test_a_mutation_can_be_made_and_names_a_test_that_there_is(mutant):
    text = (mutants.ROOT / mutant["file"]).read_text()
    ast.parse(mutants.mutated(text, mutant))
    file, _, test = mutant["test"].partition("::")
    assert f"def {test.partition('[')[0]}(" in (mutants.ROOT / "tests" / file).read_text()


def test_twenty_or_more_mutants_in_all_the_rooms_that_numbers_come_from():
    places = [mutant["file"] for mutant in MUTATIONS]
    rooms = {place.split("/")[1] for place in places}
    assert len(places) >= 20 and rooms == {"replication", "measure", "scheduling", "serving", "training"}


@pytest.mark.parametrize("text", ["nothing of it", "a + b, a + b"])
def test_what_does_not_stand_there_once_cannot_be_mutated(text):
    with pytest.raises(mutants.MutantError, match="a mutant needs what stands there once"):
        mutants.mutated(text, {"file": "x.py", "original": "a + b", "mutated": "a - b"})
