"""The paper's table and figures with ours beside them: ours filled, with intervals; the paper's hollow and dashed.

Ours come from assets/measurements (`our_results`), the paper's from its printed numbers (`paper`). A figure whose
measurements are not there raises DSparkLiteError.
"""

import numpy as np

from dspark_lite.common import paper
from dspark_lite.common.names import DOMAINS
from ..measure import studies
from ..replication import our_results, quantities, recorded_serving, worlds
from .style import BLACK, GREY, drafter_style, draw_estimates, draw_positions, figure, hollow, measured_on, policy_style

TARGET = "Qwen3-4B"  # of the paper's Figures 2 to 4
COLUMNS = list(our_results.PLACES.values())
PAPER_FULL_DEPTH = max(studies.PAPER_DEPTHS.values())
PASS_TICKS = list(studies.DEEP_PASSES)  # over the answers, of the trainings in the deep world
DRAFT_LENGTH = "draft length: anchor and drafts (tokens)"


def legend_below(fig, axes, paper_target: str = TARGET) -> None:
    """The drafters, and what filled and hollow mean, in a row under all panels."""
    handles, labels = axes.get_legend_handles_labels()
    ours = axes.plot([], [], color=GREY, marker="o")[0]
    theirs = axes.plot([], [], **hollow({"color": GREY, "marker": "o"}))[0]
    fig.legend([*handles, ours, theirs], [*labels, "filled: here, 95 %", f"hollow: paper ({paper_target})"],
               loc="outside lower center", ncols=int(fig.get_figwidth() / 1.5), fontsize=8)


def figure_2(recipes: dict[str, str] = studies.TABLE_1):
    """Conditional acceptance by draft position, a panel a domain: DSpark, DFlash and Eagle3, {drafter: recipe}."""
    fig, panels = figure(len(DOMAINS), width=3.9, height=3.9, sharey=True)
    for axes, domain in zip(panels, DOMAINS):
        for index, name in enumerate(paper.LABELS):
            style, shift = drafter_style(name), 0.1 * (index - 1)
            draw_positions(axes, our_results.conditional_acceptance(recipes[name], domain), style, shift)
            theirs = paper.conditional_acceptance(name, domain)
            axes.plot(np.arange(1, len(theirs) + 1) + shift, theirs, **hollow(style))
        axes.set(xticks=range(1, len(theirs) + 1), ylim=(0.3, 1.02))
        dflash, dspark = (_fall(recipes[name], domain) for name in ("dflash", "dspark"))
        axes.set_title(f"{domain}: from first to last {dflash:+.2f} DFlash, {dspark:+.2f} DSpark", fontsize=10)
        axes.label_outer()
    measured_on(panels[-1], our_results.measured(recipes["dspark"])["device"])
    legend_below(fig, panels[0])
    return fig


def figure_2_deep():
    """`figure_2` in the deep world after two passes over the answers, the first seed of each drafter."""
    fig = figure_2({name: recipes[0] for name, recipes in studies.DEEP_PASSES[2].items()})
    fig.suptitle("The deep world, after two passes", fontsize=11)
    return fig


def _fall(recipe: str, domain: str) -> float:
    """How much higher a drafter's last position is than its first; below zero it falls."""
    first, *_, last = our_results.conditional_acceptance(recipe, domain)
    return last.value - first.value


def table_1(target: str = TARGET):
    """Accepted length of the five drafters by domain, beside the paper's domain means on one of its targets."""
    fig, axes = figure(width=8.4, height=4.2)
    for index, (name, recipe) in enumerate(studies.TABLE_1.items()):
        x = np.arange(len(COLUMNS)) + 0.15 * (index - (len(studies.TABLE_1) - 1) / 2)
        style = {**drafter_style(name), "linestyle": "none"}
        draw_estimates(axes, x, [our_results.accepted_lengths(recipe)[place] for place in COLUMNS], style)
        if name in paper.LABELS:
            means = paper.domain_means(target, name)
            theirs = [*means.values(), np.mean(list(means.values()))]
            axes.plot(x + 0.06, theirs, **hollow(style, "none"))
    axes.set(xticks=range(len(COLUMNS)), xticklabels=[*DOMAINS, "mean of the three"],
             ylabel="accepted length (tokens per round)")
    axes.set_ylim(bottom=1)
    longest = [max(studies.TABLE_1, key=lambda name: our_results.accepted_lengths(studies.TABLE_1[name])[place].value) for place in COLUMNS]
    places = zip([*DOMAINS, "the mean"], longest)
    axes.set_title("Longest here: " + ", ".join(f"{drafter_style(name)['label']} in {place}" for place, name in places), fontsize=10)
    measured_on(axes, our_results.measured("tiny-dspark")["device"])
    legend_below(fig, axes, target)
    return fig


def two_worlds():
    """Accepted length by domain in the shallow and in the deep world, the paper's hollow: who is first, and where?"""
    fig, panels = figure(len(worlds.WORLDS), width=5.0, height=4.2, sharey=True)
    for axes, (world, recipes) in zip(panels, worlds.WORLDS.items()):
        for index, (name, recipes_of_one) in enumerate(recipes.items()):
            x = np.arange(len(COLUMNS)) + 0.16 * (index - (len(recipes) - 1) / 2)
            style = {**drafter_style(name), "linestyle": "none"}
            draw_estimates(axes, x, [our_results.lengths_over_seeds(recipes_of_one)[place] for place in COLUMNS], style)
            if name in paper.LABELS:
                means = list(paper.domain_means(TARGET, name).values())
                axes.plot(x + 0.06, [*means, np.mean(means)], **hollow(style, "none"))
        over = {rival: our_results.gains_over_seeds(recipes["dspark"], recipes[rival])["all"].value for rival in ("dflash", "eagle3")}
        passes = our_results.measured(recipes["dspark"][0])["recipe"]["epochs"]
        axes.set_title(f"{world} world, {passes} pass{'es' * (passes > 1)}: "
                       f"DSpark {over['dflash']:+.1%} over DFlash, {over['eagle3']:+.1%} over Eagle3", fontsize=9)
        axes.set(xticks=range(len(COLUMNS)), xticklabels=[*DOMAINS, "mean"], ylim=(1, None))
    panels[0].set_ylabel("accepted length (tokens per round)")
    measured_on(panels[-1], our_results.measured(studies.DEEP["dspark"][0])["device"])
    legend_below(fig, panels[0])
    return fig


def gain_by_training_and_world():
    """DSpark's gain over Eagle3 in the shallow world as trained for Table 1, there trained as in the deep world, and in the deep world,
    a panel for each domain and one for the mean."""
    made = worlds.worlds_and_trainings()
    fig, panels = figure(len(COLUMNS), width=2.6, height=3.1, sharey=True)
    for axes, (title, place) in zip(panels, our_results.PLACES.items()):
        found = [our_results.gains_over_seeds(recipes["dspark"], recipes["eagle3"])[place].scaled(100) for recipes in made.values()]
        draw_estimates(axes, np.arange(len(made)), found, {**drafter_style("eagle3"), "linestyle": "none"})
        axes.axhline(0, color=GREY, linestyle="--", linewidth=1)
        axes.set(xticks=range(len(made)), xticklabels=[name.replace(", ", ",\n") for name in made], xlim=(-0.4, len(made) - 0.6), title=title)
        axes.tick_params(axis="x", labelsize=7)
    panels[0].set_ylabel("DSpark's accepted length over\nEagle3's (%)")
    added = {cause: found["all"] for cause, found in worlds.training_and_world("eagle3").items()}
    fig.suptitle("DSpark over Eagle3 in the mean: " + ", ".join(
        f"the {cause} adds {100 * e.value:+.1f} [{100 * e.low:+.1f}, {100 * e.high:+.1f}] points" for cause, e in added.items()), fontsize=11)
    measured_on(panels[-1], our_results.measured(studies.DEEP["dspark"][0])["device"])
    return fig


def lengths_by_head_and_losses():
    """Accepted length without and with the sequential head, learned from cross-entropy alone and from DSpark's losses, a panel for each
    domain and one for the mean, in the deep world: where the lines are parallel, either cause works alone."""
    lines = {"dflash": ("without a head", studies.DEEP["dflash"], studies.DEEP_LOSSES["dflash"]),
             "dspark": ("with the Markov head", studies.DEEP_LOSSES["dspark"], studies.DEEP["dspark"])}
    fig, panels = figure(len(COLUMNS), width=2.6, height=3.4, sharey=True)
    for axes, (title, place) in zip(panels, our_results.PLACES.items()):
        for shift, (name, (label, *trainings)) in zip((-0.02, 0.02), lines.items()):
            found = [our_results.lengths_over_seeds(recipes)[place] for recipes in trainings]
            draw_estimates(axes, np.arange(len(found)) + shift, found, {**drafter_style(name), "label": label})
        axes.set(xticks=(0, 1), xticklabels=["cross-entropy\nalone", "DSpark's\nlosses"], xlim=(-0.4, 1.4), title=title)
    panels[0].set_ylabel("accepted length\n(tokens per round)")
    _, head, losses, _ = (found["all"] for found in worlds.head_and_losses().values())
    fig.suptitle(f"In the mean the losses bring {losses.value:+.1%} without a head, the head {head.value:+.1%} with DSpark's losses", fontsize=11)
    measured_on(panels[-1], our_results.measured(studies.DEEP["dspark"][0])["device"])
    fig.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return fig


def longer_training():
    """Accepted length by passes over the training answers, a panel for each domain and one for the mean, in the deep world."""
    fig, panels = figure(len(COLUMNS), width=2.6, height=3.0, sharey=True)
    for axes, (title, place) in zip(panels, our_results.PLACES.items()):
        for name in worlds.WORLDS["deep"]:
            passes, found = zip(*((passes, our_results.lengths_over_seeds(recipes)[place]) for passes, recipes in worlds.trainings(name).items()))
            draw_estimates(axes, passes, found, drafter_style(name))
        axes.set_xscale("log", base=2)
        axes.set(xticks=PASS_TICKS, xticklabels=PASS_TICKS, xlabel="passes over the answers", title=title)
    panels[0].set_ylabel("accepted length\n(tokens per round)")
    seeds = {passes: len(recipes) for passes, recipes in worlds.trainings("dspark").items()}
    found = [f"{lead['all'].value:+.1%} with {passes} (seeds: {seeds[passes]})" for passes, lead in worlds.leads("eagle3").items()]
    fig.suptitle(f"DSpark over Eagle3, by passes: {', '.join(found)}", fontsize=11)
    measured_on(panels[-1], our_results.measured(studies.DEEP["dspark"][0])["device"])
    fig.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(worlds.WORLDS["deep"]), fontsize=8)
    return fig


def gain_by_passes_and_world():
    """DSpark's gain over Eagle3 by passes over the answers in either world, trained alike, a panel for each domain and one for the mean."""
    found = {world: worlds.leads("eagle3", world) for world in worlds.PASSES}
    fig, panels = figure(len(COLUMNS), width=2.6, height=3.2, sharey=True)
    for axes, (title, place) in zip(panels, our_results.PLACES.items()):
        for shift, (world, by_passes), lines in zip((0.97, 1.03), found.items(), (":", "-")):
            style = {**drafter_style("eagle3"), "linestyle": lines, "label": f"{world} world"}
            draw_estimates(axes, shift * np.array(list(by_passes)), [gains[place].scaled(100) for gains in by_passes.values()], style)
        axes.axhline(0, color=GREY, linestyle="--", linewidth=1)
        axes.set_xscale("log", base=2)
        axes.set(xticks=PASS_TICKS, xticklabels=PASS_TICKS, xlabel="passes over the answers", title=title)
    panels[0].set_ylabel("DSpark's accepted length over\nEagle3's (%)")
    most = max(set.intersection(*(set(by_passes) for by_passes in found.values())))
    fig.suptitle(f"DSpark over Eagle3 in the mean after {most} passes: " + ", ".join(
        f"{by_passes[most]['all'].value:+.1%} in the {world} world" for world, by_passes in found.items()), fontsize=11)
    measured_on(panels[-1], our_results.measured(studies.DEEP["dspark"][0])["device"])
    fig.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(found), fontsize=8)
    return fig


def servers(load: int):
    """Throughput over plain decoding's by how many drafts are verified, at one load, of each server: which length had most?"""
    fig, panels = figure(len(recorded_serving.SERVERS), width=3.6, height=3.4, sharey=True)
    for axes, (world, title) in zip(panels, recorded_serving.SERVERS.items()):
        scheduled = worlds.throughputs(world, load)
        drafts, gain = scheduled.pop("algorithm1")
        lengths, gains = zip(*sorted(scheduled.values()))
        draw_estimates(axes, lengths, gains, {**policy_style("fixed"), "label": "one fixed length for all"})
        draw_estimates(axes, [drafts], [gain], {**policy_style("algorithm1"), "linestyle": "none", "label": "Algorithm 1, at its mean length"})
        axes.axhline(1, color=GREY, linestyle="--", linewidth=1, label="plain decoding")
        best, _ = max(scheduled.values(), key=lambda found: found[1].value)
        axes.set_title(f"{title}: most with {best:.0f} drafts", fontsize=10)
        axes.set(xticks=[round(length) for length in lengths], xlabel="drafts verified per request")
        measured_on(axes, recorded_serving.serving_run(world)["device"])
    panels[0].set_ylabel("throughput over plain decoding's")
    fig.suptitle(f"{load} requests under way", fontsize=10)
    fig.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return fig


def figure_3(depths: dict[int, str] = studies.DEPTHS, dflash: str = studies.TABLE_1["dflash"]):
    """Accepted length of DSpark by depth, {layers: recipe}, and of DFlash at full depth (there 5 layers), a panel a domain."""
    fig, panels = figure(len(DOMAINS), width=3.9, height=3.7, sharey=True)
    full = max(depths)
    paper_depths = {layers: PAPER_FULL_DEPTH if layers == full else layers for layers in depths}
    for axes, domain in zip(panels, DOMAINS):
        ours = [our_results.accepted_lengths(recipe)[domain] for recipe in depths.values()]
        draw_estimates(axes, list(depths), ours, drafter_style("dspark"))
        axes.plot(list(depths), [paper.by_depth("dspark", there)[domain] for there in paper_depths.values()], **hollow(drafter_style("dspark")))
        style = {**drafter_style("dflash"), "linestyle": "none"}
        rival = our_results.accepted_lengths(dflash)[domain]
        theirs = paper.by_depth("dflash", PAPER_FULL_DEPTH)[domain]
        draw_estimates(axes, [full], [rival], style)
        axes.plot(full, theirs, **hollow(style, "none"))
        axes.axhline(rival.value, color=style["color"], linewidth=1)
        axes.axhline(theirs, color=style["color"], linewidth=1, linestyle="--")
        axes.set(xlabel=f"layers (full: {full} here, {PAPER_FULL_DEPTH} there)", xticks=list(depths), ylim=(1, None))
        axes.set_xticklabels(["full" if n == full else f"{n}" for n in depths])
        shallow = our_results.gains(depths[2], dflash)[domain].value
        there = paper.by_depth("dspark", 2)[domain] / theirs - 1
        axes.set_title(f"{domain}: 2 layers {shallow:+.0%} on DFlash (paper {there:+.0%})", fontsize=10)
    panels[0].set_ylabel("accepted length (tokens per round)")
    measured_on(panels[-1], our_results.measured(dflash)["device"])
    legend_below(fig, panels[0])
    return fig


def figure_3_deep():
    """`figure_3` in the deep world, one pass over the answers."""
    return figure_3(studies.DEEP_DEPTHS, studies.DEEP["dflash"][0])


def figure_4(study: dict[tuple[str, int], str] = studies.LENGTH_STUDY):
    """Accepted length by draft length (upper row) and the gain of DSpark over DFlash (lower row), a column a domain; `study` has the
    recipes, {(drafter, draft length): recipe}, and a drafter of one length alone is left to the tables."""
    fig, (panels, gains) = figure(len(DOMAINS), 2, width=3.6, height=2.9, sharey="row", sharex=True)
    for axes, below, domain in zip(panels, gains, DOMAINS):
        for index, name in enumerate(paper.STUDY):
            shift, style = 0.18 * (index - 1), drafter_style(name)
            lengths = [length for length in studies.LENGTHS if (name, length) in study]
            if len(lengths) < 2:
                continue
            ours = [our_results.accepted_lengths(study[name, length])[domain] for length in lengths]
            theirs = paper.by_draft_length(name, domain)
            draw_estimates(axes, np.array(lengths) + shift, ours, style)
            axes.plot(np.array(list(theirs)) + shift, theirs.values(), **hollow(style))
        _draw_gains(below, study, domain)
        axes.set(title=domain, ylim=(1, None))
        below.set(xlabel=DRAFT_LENGTH, xticks=studies.LENGTHS)
    panels[0].set_ylabel("accepted length\n(tokens per round)")
    gains[0].set_ylabel("DSpark over DFlash (%)")
    grows = [domain for domain in DOMAINS if quantities.gain_growth((domain,), 8, 16, study=study).value > 0]
    fig.suptitle(f"From draft length 8 to 16 the gain over DFlash grows on {', '.join(grows) or 'no domain'}", fontsize=11)
    measured_on(gains[-1], our_results.measured(study["dspark", 8])["device"])
    legend_below(fig, panels[0])
    return fig


def _draw_gains(axes, study: dict[tuple[str, int], str], domain: str) -> None:
    """The gain of DSpark over DFlash by draft length: ours with its interval, the paper's hollow."""
    style = drafter_style("dspark")
    pairs = ([study[name, length] for name in ("dspark", "dflash")] for length in studies.LENGTHS)
    ours = [our_results.gains(*pair)[domain].scaled(100) for pair in pairs]
    draw_estimates(axes, studies.LENGTHS, ours, style)
    there = [paper.by_draft_length(name, domain) for name in ("dspark", "dflash")]
    axes.plot(studies.LENGTHS, [100 * (there[0][length] / there[1][length] - 1) for length in studies.LENGTHS], **hollow(style))
    axes.axhline(0, color=BLACK, linewidth=0.8)


def figure_4_deep():
    """`figure_4` in the deep world: one pass over the answers, then some updates at each draft length."""
    return figure_4(studies.DEEP_LENGTH_STUDY)


def figure_4_latency():
    """How much longer a full round takes than DFlash's by draft length: the Markov and the RNN head."""
    measured = our_results.measured(studies.LATENCY)
    fig, axes = figure(width=6.0, height=4.0)
    for shift, name in ((-0.1, "dspark"), (0.1, "dspark_rnn")):
        style, theirs = drafter_style(name), paper.overhead(name)
        ours = [our_results.overhead(measured, name, length) for length in studies.LENGTHS]
        draw_estimates(axes, np.array(studies.LENGTHS) + shift, [e.scaled(100) for e in ours], style)
        axes.plot(np.array(list(theirs)) + shift, [100 * value for value in theirs.values()], **hollow(style))
    axes.axhline(0, color=BLACK, linewidth=0.8)
    axes.set(xlabel=DRAFT_LENGTH, ylabel="round longer than DFlash's (%)", xticks=studies.LENGTHS)
    longest = max(studies.LENGTHS)
    axes.set_title(f"At length {longest} the Markov head's loop makes a round {our_results.overhead(measured, 'dspark', longest).value:.1%} "
                   f"longer,\nin the paper, beside a far larger target, {paper.overhead('dspark')[longest]:.1%}", fontsize=10)
    measured_on(axes, f"{measured['device']}, batch {measured['batch']} (paper: {paper.claim('latency batch size')})")
    legend_below(fig, axes)
    return fig


def gain_by_domain(ours: str, theirs: str, target: str = TARGET):
    """How much longer one drafter of Table 1 accepts than another, by domain, beside the paper's on one of its targets.

    The paper's values are there for the drafters that its table has.
    """
    fig, axes = figure(width=6.4, height=3.8)
    found = our_results.gains(studies.TABLE_1[ours], studies.TABLE_1[theirs])
    look = {"linestyle": "none", "markersize": 9}
    draw_estimates(axes, range(len(COLUMNS)), [found[place].scaled(100) for place in COLUMNS],
                   {**look, "color": drafter_style(ours)["color"], "marker": "o", "label": "here, 95 %"})
    if {ours, theirs} <= set(paper.LABELS):
        means = [list(paper.domain_means(target, name).values()) for name in (ours, theirs)]
        ratios = np.divide(*([*values, np.mean(values)] for values in means))
        axes.plot(np.arange(len(COLUMNS)) + 0.12, 100 * (ratios - 1), **look, color=BLACK, marker="D", markerfacecolor="none",
                  label=f"the paper's, {target}")
    axes.axhline(0, color=BLACK, linewidth=0.8)
    axes.set(xticks=range(len(COLUMNS)), xticklabels=[*DOMAINS, "mean of the three"], xlim=(-0.5, len(COLUMNS) - 0.5),
             ylabel="accepted length, longer by (%)", title=f"{drafter_style(ours)['label']} over {drafter_style(theirs)['label']}")
    measured_on(axes, our_results.measured("tiny-dspark")["device"])
    fig.legend(loc="outside lower center", ncols=2, fontsize=8)
    return fig


def draw_own_lengths(own: dict, label: str):
    """Accepted length of DSpark by domain: of a lab's own models (`own`, {domain: estimate}), of the recorded tiny ones, and the
    paper's, whose prompts are the benchmarks of each domain."""
    fig, axes = figure(width=6.0, height=3.2)
    style, x = {**drafter_style("dspark"), "linestyle": "none"}, np.arange(len(own))
    recorded = our_results.accepted_lengths(studies.TABLE_1["dspark"])
    draw_estimates(axes, x - 0.1, list(own.values()), {**style, "marker": "D", "label": label})
    draw_estimates(axes, x, [recorded[domain] for domain in own], {**style, "color": GREY, "label": "here, tiny models"})
    theirs = paper.domain_means(TARGET, "dspark")
    axes.plot(x + 0.1, [theirs[domain] for domain in own], **{**hollow(style, "none"), "label": f"paper ({TARGET})"})
    axes.set(xticks=x, xticklabels=list(own), ylabel="accepted length (tokens per round)", ylim=(1, None))
    axes.legend(fontsize=8)
    return fig
