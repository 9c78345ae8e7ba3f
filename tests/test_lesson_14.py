"""Lesson 14: patients run and answer correctly, share the weights and leave the healthy drafter as it was; charts, tests and figures say
what they are given."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dspark_lite.common.files import write_json
from dspark_lite.course.clinic import patients
from dspark_lite.course.exercises import lesson_14
from dspark_lite.course.figures import lesson_14 as figures
from dspark_lite.course.measure import symptoms
from dspark_lite.course.measure.lab import setup
from dspark_lite.course.replication import clinic_results
from dspark_lite.decoding import generate
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.scheduling.cost_table import CostTable
from helpers import PROMPT

ALL = {**patients.CAUSES, **patients.QUIET}
LOSSY = {"16-bit draws", "best one, claimed as drawn"}
# what these do is tried in every run
QUICK = {
    *LOSSY,
    "bonus lost",
    "refused kept",
    "leak between requests",
}
slow = pytest.mark.slow(
    reason="of each patient answers and a distance take half a second, a chart takes two"
)
MOST_SLOW = [cause if cause in QUICK else pytest.param(cause, marks=slow) for cause in ALL]


OPTIONS = dict(max_new_tokens=16, stop_token_ids=())


@pytest.fixture(scope="module")
def toy():
    """A healthy service of random models of eleven tokens with blocks of four, and what it answers."""
    target, drafters = toy_models(seed=4, vocab_size=11, gamma=4)
    healthy = patients.Service(
        target,
        drafters["dspark"],
        lambda prompt: PROMPT,
        costs=CostTable([1, 2, 3, 4, 5], [1.0, 0.9, 0.9, 0.8, 0.8]),
    )
    return healthy, generate(target, drafters["dspark"], PROMPT, **OPTIONS)


@pytest.mark.parametrize("cause", MOST_SLOW)
def test_a_patient_writes_its_targets_greedy_text_and_leaves_the_healthy_one_alone(toy, cause):
    healthy, before = toy
    sick = ALL[cause](healthy)
    plain = generate(sick.target, None, PROMPT, **OPTIONS)
    for _ in range(2):  # the second request of a patient
        assert (
            generate(sick.target, sick.drafter, PROMPT, rule=sick.rule, **OPTIONS).token_ids
            == plain.token_ids
        )
    after = generate(healthy.target, healthy.drafter, PROMPT, **OPTIONS)
    assert after.token_ids == before.token_ids and [r.accepted for r in after.rounds] == [
        r.accepted for r in before.rounds
    ]
    assert {
        name: id(parameter) for name, parameter in healthy.drafter.named_parameters()
    }.items() >= {
        name: id(parameter) for name, parameter in sick.drafter.named_parameters()
    }.items()


@pytest.mark.parametrize("cause", MOST_SLOW)
def test_two_patients_are_lossy_and_all_others_are_not(cause):
    distance = patients.Patient(cause).distance()
    assert distance > 1e-5 if cause in LOSSY else distance < 1e-5
    assert clinic_results.chart(cause).distance == pytest.approx(distance, abs=1e-6)


def test_a_ward_is_drawn_by_its_seed():
    wards = [patients.ward(seed) for seed in range(20)]
    assert wards[3] == patients.ward(3) and len({tuple(one.values()) for one in wards}) == 20
    assert all(
        list(one) == list(range(1, 15)) and len(set(one.values())) == 14 <= len(patients.CAUSES)
        for one in wards
    )
    assert set().union(*(one.values() for one in wards)) == set(patients.CAUSES)
    assert list(patients.admit(3)) == list(wards[3])


@pytest.fixture(scope="module")
def clinic():
    """The healthy service of the tiny models as the lesson has it, its symptoms, and a text with the target's own answer."""
    lab = setup("tiny", prompts=symptoms.CHART_ANSWERS)
    drafter = lab.drafter("dspark")
    healthy = patients.Service(
        lab.target,
        drafter,
        lab.encode,
        costs=symptoms.price_table(clinic_results.step_milliseconds(drafter.gamma + 1)),
    )
    text = lab.encode(lab.prompts["math"][0])
    answer = generate(lab.target, None, text, max_new_tokens=24, stop_token_ids=()).token_ids
    usual = symptoms.symptoms(symptoms.take_chart(healthy, lab.prompts))
    return SimpleNamespace(lab=lab, healthy=healthy, usual=usual, text=text, answer=answer)


@torch.inference_mode()
def failing(clinic, service):
    """The names of the tests that a service does not pass."""
    text = clinic.text
    features = service.target.prefill(text[:, :-1], service.drafter.taps)[0].features
    own, further = symptoms.place_of_drafts(service, text, clinic.answer)
    seen = {
        **symptoms.reactions(service, text),
        "one place on": own >= further,
        "memory": lesson_14.same_block(service.drafter, features, text[:, -1], text.shape[1] // 2),
    }
    return {name for name, right in seen.items() if not right}


def clear(usual, shown):
    """The columns in which symptoms lie clearly away from the usual ones."""
    return {
        name
        for name in usual
        if abs(symptoms.standard_errors(shown[name], usual[name])) > symptoms.CLEAR
    }


@pytest.mark.parametrize("cause", ALL)
def test_what_tells_a_cause_is_on_its_recorded_chart_or_in_a_test(clinic, cause):
    columns = clear(clinic.usual, symptoms.symptoms(clinic_results.chart(cause)))
    assert bool(columns) == (cause in patients.CAUSES)
    if cause in patients.CAUSES and not set(lesson_14.TELLING[cause]) & columns:
        assert set(lesson_14.TELLING[cause]) & failing(
            clinic, patients.Patient(cause).service(clinic.healthy)
        )


@pytest.mark.parametrize(
    "cause",
    [
        "refused kept",
        *(pytest.param(cause, marks=slow) for cause in ALL if cause != "refused kept"),
    ],
)
def test_a_chart_taken_now_is_the_recorded_one(clinic, cause):
    """No symptom lies clearly away from the recorded one; another machine may draw another token once."""
    recorded = clinic_results.chart(cause)
    taken = symptoms.take_chart(
        patients.Patient(cause).service(clinic.healthy),
        clinic.lab.prompts,
        distance=recorded.distance,
    )
    assert clear(symptoms.symptoms(recorded), symptoms.symptoms(taken)) == set()
    assert taken.drafts == recorded.drafts and len(taken.rounds) == pytest.approx(
        len(recorded.rounds), abs=3
    )


def test_a_chart_is_read_as_it_was_recorded(tmp_path, monkeypatch):
    chart = made_chart(np.arange(12) % 4)
    chart.rounds["odds"] = np.linspace(0, 1, 12)
    write_json(tmp_path / "clinic.json", {"charts": {"flu": clinic_results.as_row(chart)}})
    monkeypatch.setattr(clinic_results, "CLINIC", tmp_path / "clinic.json")
    read = clinic_results.chart("flu")
    assert read[1:] == chart[1:] and read.rounds.dtype == chart.rounds.dtype
    assert all(
        read.rounds[name] == pytest.approx(chart.rounds[name], abs=1e-4) for name in symptoms.NOTED
    )


def test_a_price_table_is_a_line_through_medians_and_no_token_is_free():
    table = symptoms.price_table({size: [10 + 2 * size, 10 + 2 * size, 99] for size in range(1, 5)})
    assert [table.seconds(1, size) for size in (1, 4)] == pytest.approx([1.2, 1.8])
    assert symptoms.price_table({size: [10 - size] for size in range(1, 5)}).seconds(
        1, 4
    ) == pytest.approx(1.04)


def test_the_healthy_one_passes_every_test(clinic):
    assert failing(clinic, clinic.healthy) == set()
    assert (
        clinic.usual["left by a round"].value == clinic.usual["left at start"].value == 0
        and clinic.usual["read per token"].value == 1
    )


@pytest.mark.parametrize(
    ("cause", "failed"),
    [
        ("other layout", "one place on"),
        ("mask for the anchor", "anchor"),
        ("block kept", "memory"),
        ("features one late", "newest features"),
        ("head left out", "head"),
    ],
)
def test_each_test_fails_on_what_it_is_for(clinic, cause, failed):
    assert failed in failing(clinic, patients.Patient(cause).service(clinic.healthy))


def test_a_ratio_has_its_standard_error_from_answers():
    """Rounds of an answer that are copies of one another bring nothing."""
    rng = np.random.default_rng(0)
    kept = rng.integers(0, 8, 40).astype(float)
    once = symptoms.ratio(kept, np.ones(40), np.arange(40))
    copied = symptoms.ratio(np.repeat(kept, 5), np.ones(200), np.repeat(np.arange(40), 5))
    assert once.error == pytest.approx(kept.std(ddof=1) / np.sqrt(40)) and copied == pytest.approx(
        once
    )
    assert np.isnan(symptoms.ratio(np.ones(3), np.ones(3), np.arange(3)).value)


def test_standard_errors_of_exact_and_of_unknown_symptoms():
    exact = symptoms.Symptom(1.0, 0.0)
    other = symptoms.Symptom(0.0, 0.0)
    unknown = symptoms.Symptom(float("nan"), float("nan"))
    assert (
        symptoms.standard_errors(exact, exact) == 0
        and symptoms.standard_errors(exact, other) == np.inf
    )
    assert symptoms.standard_errors(unknown, exact) == 0
    assert symptoms.standard_errors(
        symptoms.Symptom(2.0, 3.0), symptoms.Symptom(1.0, 4.0)
    ) == pytest.approx(0.2)


def test_the_excess_is_what_the_chi_square_rises_by():
    """2,000 times 400 draws from a wrong distribution: the mean chi-square is that of a right one, two, and the excess."""
    p, wrong = np.array([0.5, 0.3, 0.2]), np.array([0.56, 0.25, 0.19])
    counts = np.random.default_rng(0).multinomial(400, wrong, 2000)
    statistic = ((counts - 400 * p) ** 2 / (400 * p)).sum(1)
    drawn_otherwise = (
        (wrong * (1 - wrong)) / p
    ).sum() - 2  # a wrong distribution has a variance of its own
    assert statistic.mean() == pytest.approx(
        2 + drawn_otherwise + lesson_14.excess(p, wrong, 400),
        abs=4 * statistic.std() / np.sqrt(2000),
    )


def right(**changed):
    """The right diagnosis of the lesson's ward but for some beds."""
    return {bed: (cause, lesson_14.TELLING[cause][0]) for bed, cause in patients.ward().items()} | {
        int(bed[3:]): said for bed, said in changed.items()
    }


def said(diagnosis, capsys, *seed):
    """What the checker answers."""
    done = lesson_14.check_diagnosis(diagnosis, *seed)
    (line,) = capsys.readouterr().out.splitlines()
    assert done == (line == "Correct.")
    return line


@pytest.mark.parametrize("seed", [0, 5])
def test_every_evidence_that_tells_a_cause_is_taken(seed, capsys):
    longest = max(map(len, lesson_14.TELLING.values()))
    for number in range(longest):
        diagnosis = {
            bed: (cause, lesson_14.TELLING[cause][number % len(lesson_14.TELLING[cause])])
            for bed, cause in patients.ward(seed).items()
        }
        assert said(diagnosis, capsys, seed) == "Correct."


def test_a_wrong_cause_is_told_what_it_would_have_shown(capsys):
    assert set(lesson_14.WOULD) == set(lesson_14.TELLING) == set(patients.CAUSES)
    ward = patients.ward()
    for cause in set(patients.CAUSES) - {ward[2]}:
        line = said(right(bed2=(cause, "distance")), capsys)
        assert (
            line
            == f"Not yet: 13 of 14 beds are right. Bed 2: if that were {cause!r}, {lesson_14.WOULD[cause]}."
        )


def test_the_first_beds_are_judged_alone(capsys):
    whole = right()
    first = {bed: whole[bed] for bed in lesson_14.FIRST_BEDS}
    assert lesson_14.check_first_beds(first) and lesson_14.check_first_beds(whole)
    assert not lesson_14.check_first_beds(first | {5: ("refused kept", "distance")})
    assert not lesson_14.check_first_beds({bed: said for bed, said in first.items() if bed != 5})
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith(
        f"Not yet: {len(first) - 1} of {len(first)} beds are right. Bed 5: "
    ) and lines[3].startswith("Not done yet")


@pytest.mark.parametrize(
    ("cause", "evidence"),
    [
        ("another draft's calibration", "promised - kept"),
        ("16-bit draws", "Distance"),
        ("Head left out", " head"),
        ("thinking on", "template"),
    ],
)
def test_a_hyphen_a_capital_and_the_template_are_understood(cause, evidence, capsys):
    (bed,) = (bed for bed, lies in patients.ward().items() if lies == cause.lower())
    assert said(right(**{f"bed{bed}": (cause, evidence)}), capsys) == "Correct."


def test_evidence_that_proves_nothing_is_refused(capsys):
    cause = patients.ward()[1]
    assert "the cause is right, and 'memory' does not tell it" in said(
        right(bed1=(cause, "memory")), capsys
    )


@pytest.mark.parametrize(
    ("diagnosis", "sentence"),
    [
        ("leaks", "is a dictionary"),
        (right(bed1="leak between requests"), "give a cause and the evidence"),
        (right(bed1=("flu", "memory")), "the causes are features one late"),
        (right(bed1=(["flu"], "memory")), "the causes are features one late"),
        (right(bed1=("bonus lost", "fever")), "it is one of anchor, block's price"),
    ],
)
def test_a_diagnosis_in_another_form_is_told_the_form(diagnosis, sentence, capsys):
    assert sentence in said(diagnosis, capsys)


@pytest.mark.parametrize(
    "diagnosis", [..., right(bed9=(..., ...)), right(bed9=("thinking on", ...)), {1: right()[1]}]
)
def test_a_diagnosis_that_is_half_done_is_a_reminder(diagnosis, capsys):
    assert said(diagnosis, capsys).startswith("Not done yet")


def made_chart(kept, drafts=3):
    """A chart of a single round in each of twelve answers, four a domain, that kept so many drafts."""
    rounds = np.zeros(12, dtype=[(name, float) for name in symptoms.NOTED])
    rounds["domain"], rounds["answer"], rounds["round"] = np.arange(12) // 4, np.arange(12), 1
    rounds["accepted"] = kept
    rounds["committed"] = kept + 1
    rounds["whole"] = 1
    rounds["read"] = kept + 1
    return symptoms.Chart(rounds, drafts, 2.0)


def test_symptoms_of_a_made_chart():
    found = symptoms.symptoms(made_chart(np.array([3, 3, 2, 0] * 3)))
    value = {name: symptom.value for name, symptom in found.items()}
    assert (value["first draft"], value["later drafts"], value["read per token"]) == (
        0.75,
        15 / 18,
        1,
    )
    assert (value["block's price"], value["drafts"]) == (2.0, 3)
    assert np.isnan(value["last draft"]) and np.isnan(value["τ math"]), "too few rounds"


def test_the_table_colours_what_is_clear_and_nothing_else():
    healthy = {"a": symptoms.Symptom(1.0, 0.1), "left at start": symptoms.Symptom(0.0, 0.0)}
    bed = {"a": symptoms.Symptom(1.2, 0.1), "left at start": symptoms.Symptom(7.0, 0.0)}
    axes = figures.ward_table({"bed 1": bed}, healthy, "two").axes[0]
    assert axes.images[0].get_array().tolist() == [[0, 0], [0, figures.SHADES]]
    written = [text.get_text() for text in axes.texts]
    assert written == ["1.00", "0", "1.20", "7", "anything left?"]
    just = figures.ward_table(
        {"bed 1": {"a": symptoms.Symptom(1.425, 0.1)}}, {"a": healthy["a"]}, ""
    )
    (shade,) = just.axes[0].images[0].get_array()[1]
    assert figures.PALEST * figures.SHADES < shade < 0.4 * figures.SHADES


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("own odds", -0.004, "0.00"),
        ("own odds", -0.04, "-0.04"),
        ("own odds", 0.0, "0"),
        ("last draft", float("nan"), "–"),
        ("distance", 1.2e-4, "1e-04"),
    ],
)
def test_an_entry_has_no_negative_zero_and_a_dash_for_what_is_unknown(name, value, text):
    assert figures.entry(name, value) == text


def test_the_chart_of_a_patient_stands_beside_the_healthy_one():
    panels = figures.patient(
        made_chart(np.full(12, 1)), made_chart(np.full(12, 3)), ["math", "code", "chat"], "one"
    ).axes
    assert [len(axes.containers) for axes in panels] == [2, 2, 2, 2]
    assert [list(container.lines[0].get_ydata())[:2] for container in panels[1].containers] == [
        [1, 1],
        [1, 0],
    ]
