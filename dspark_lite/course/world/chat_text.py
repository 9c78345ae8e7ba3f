"""Chat: questions about the invented encyclopedia, answered with what is known and with talk around it.

Facts are asked for singly, several at once, and in two hops ("the river of the town where ... was born"). The talk between
them has many good phrasings, whose words agree with their neighbours; which of them are liked depends on the town and
on the person's profession, which the prompt need not name.
"""

import random

from .example import Example, is_held_out
from .facts import Person, Town, encyclopedia
from .wording import Voice, expand

RULES = {
    # Things, people and places. Which noun can follow hangs on the adjective alone; how often, on the voice.
    "one": "[the|a|that|this|our|one]",  # before what is counted
    "some": "[the|some|that|this|our|more]",  # before what is measured
    "those": "[the|some|those|these|our|many|most]",  # before several
    "street": "[narrow [street|path|bridge|lane]|quiet [street|road|lane|square]|winding [road|path|lane|stair]|worn [bridge|road|square|gate]"
    "|dusty [road|square|street|yard]|stone [bridge|path|gate|stair]|shady [path|square|lane|yard]|steep [street|stair|road|hill]]",
    "water": "[cold [river|pond|stream|well]|clear [stream|pond|lake|well]|slow [river|stream|canal|current]|deep [lake|pond|harbour|well]"
    "|misty [harbour|lake|canal|river]|busy [harbour|canal|ferry|dock]|still [pond|lake|canal|dock]|windy [harbour|lake|dock|shore]]",
    "room": "[warm [kitchen|hall|attic|parlour]|dark [cellar|hall|attic|corner]|tiny [kitchen|workshop|attic|shop]|painted [hall|parlour|door|shop]"
    "|cluttered [workshop|attic|shop|corner]|sunny [kitchen|parlour|corner|porch]|cool [cellar|porch|hall|shop]|tall [hall|door|window|tower]]",
    "meal": "[hot [soup|bread|pie|fish]|fresh [bread|fish|cheese|fruit]|sweet [cake|fruit|pie|buns]|salted [fish|cheese|nuts|butter]"
    "|baked [fish|fruit|beans|buns]|thick [soup|porridge|stew|gravy]|cheap [soup|bread|beans|stew]|peppery [stew|soup|cheese|beans]]",
    "drink": "[strong [tea|cider|coffee|beer]|cold [cider|milk|water|tea]|spiced [cider|tea|wine|milk]|fresh [milk|water|juice|beer]"
    "|warm [milk|wine|cider|juice]|sour [milk|wine|juice|beer]|black [tea|coffee|beer|juice]]",
    "tool": "[sharp [knife|needle|saw|axe]|rusty [knife|saw|key|hammer]|heavy [hammer|axe|key|pot]|borrowed [hammer|key|brush|pot]"
    "|silver [needle|key|spoon|comb]|wooden [spoon|comb|hammer|bowl]|broken [bowl|comb|saw|pot]|new [brush|axe|bowl|spoon]]",
    "folk": "[retired [fishermen|teachers|traders|neighbours]|young [children|sailors|bakers|students]|proud [fishermen|bakers|judges|singers]"
    "|noisy [children|traders|students|geese]|patient [teachers|weavers|judges|nurses]|friendly [neighbours|bakers|sailors|nurses]"
    "|travelling [traders|singers|students|cooks]|tired [sailors|weavers|cooks|farmers]|clever [farmers|cooks|judges|geese]]",
    "weather": "[light [rain|snow|wind|fog]|thick [fog|snow|smoke|dust]|cold [wind|rain|air|fog]|sudden [rain|storm|frost|wind]"
    "|pale [snow|frost|sun|fog]|warm [wind|sun|air|rain]|gentle [sun|rain|air|breeze]|western [wind|storm|breeze|clouds]]",
    "sound": "[distant [bells|songs|horns|drums]|merry [songs|drums|voices|bells]|slow [songs|wheels|bells|waves]|creaking [wheels|doors|boats|stairs]"
    "|barking [dogs|foxes]|restless [dogs|waves|voices|horses]|soft [voices|waves|drums|steps]]",
    # When, where, how.
    "when": "[before [sunrise|breakfast|dark|the rush|noon]|after [dark|supper|sunrise|breakfast|the storm]|on [quiet|clear|windy|market|wet] days"
    "|in [spring|summer|autumn|winter|the evening]|at [noon|dusk|sunrise|the weekend|night]|during [supper|harvest|winter|the festival|a storm]]",
    "where": "[behind|beside|near|across|under|opposite|around] {one} [{street}|{water}|{room}]",
    "how": "[slowly|carefully|early|together|alone|often|quietly|happily|with [care|joy|friends|patience|pride]|without [haste|fear|fuss|care|joy]]",
    # What one does and did.
    "do": "[[walk|run|stroll|ride] [along|down|up|towards] {one} {street}|[sit|wait|swim|sing] [by|beside|near|along] {one} {water}"
    "|[taste|try|order|share|bring] {some} {meal}|[drink|sip|buy|pour|share] {some} {drink}|[ask|greet|follow|help|meet] {those} {folk}"
    "|[listen|wake up|dance|hum along] to {those} {sound}|[borrow|bring|sharpen|carry|buy] {one} {tool}|[visit|find|sweep|draw|rent] {one} {room}]",
    "did": "[[walked|ran|strolled|rode] [along|down|up|towards] {one} {street}|[sat|waited|swam|sang] [by|beside|near|along] {one} {water}"
    "|[tasted|tried|ordered|shared|brought] {some} {meal}|[drank|sipped|bought|poured|shared] {some} {drink}"
    "|[asked|greeted|followed|helped|met] {those} {folk}|[listened|woke up|danced|hummed along] to {those} {sound}"
    "|[borrowed|brought|sharpened|carried|bought] {one} {tool}|[visited|found|swept|drew|rented] {one} {room}]",
    "praise": "[lovely|calm|famous|strange|simple|rough|gentle|odd|cheerful|serious|rich|modest|pretty|lively]",
    "place": "[{street}|{water}|{room}]",
    "linker": "[and|so|but|because|while|although|since|when]",
    # Sentences of talk.
    "talk": "[{t_visit}|{t_visit}|{t_custom}|{t_custom}|{t_weather}|{t_opinion}|{t_opinion}|{t_memory}|{t_memory}|{t_tip}|{t_folk}]",
    "t_visit": "[If|When|Once|Should|Whenever] [you|friends|guests|children] [go|visit|stay|arrive|come] [there|here|again|{when}], {do} [{how}|{where}|{when}|first|again]{and_do}.",
    "and_do": "[| and {do}|, then {do}| or {do} {when}|, and later {do} {how}]",
    "t_custom": "[{when_cap}|Every [morning|week|year|spring]|[Now|Again] and [then|again]|As [a rule|always|usual]], {those} {folk} {do} [{where}|{how}|{when}]{and_do}.",
    "when_cap": "[In|After|Before|During|Around] [spring|autumn|dark|supper|breakfast|sunrise|winter|harvest|noon]",
    "t_weather": "[The|Some|That|This|Our|More] {weather} [makes|leaves|turns|keeps|finds] {one} {place} [very|rather|quite|almost|strangely] {praise}{linked}.",
    "linked": "[|, {linker} {those} {folk} {do} {how}|, {linker} [you|we|they|people] [can|may|must|will] {do} {how}]",
    "t_opinion": "[To [me|us|many]|Honestly|In [my view|truth|fact]|For [me|us|some]], {one} {place} [is|was|seems|stays|looks] [more|less|rather|quite|so] {praise} "
    "[than|but never|and nearly|and often] {praise}{linked}.",
    "t_memory": "[Once|Long ago|Years ago|One [spring|winter|evening|day]|Last [week|year|month|summer]], {those} {folk} {did} [{where}|{how}|{when}]{and_did}.",
    "and_did": "[| and {did}|, then {did} {how}|, {linker} {some} {weather} [came|stayed|stopped|ended|passed] {how}]",
    "t_tip": "[You|We|Guests|Visitors|They] [could|should|might|can|must] [also|always|never|then|still] {do} [{when}|{where}|{how}]{and_do}.",
    "t_folk": "[I|We|Some|Many|Most] [think|believe|find|say|agree] that {those} {folk} {do} [{how}|{when}|{where}]{linked}.",
    "opening": "[|[Good|Nice|Fine|Great] question[.|!]|[Gladly|With pleasure|Of course|Sure|Happily][.|!]|[Let me|I will] [think|explain|answer that]."
    "|[Yes|Well|Right|Ah], [I know|that is easy|here is what I know|let us see].]",
    "closing": "[|[Enjoy|Have fun|Good luck|Safe travels|Take care][.|!]|[Do|Would] you [like|want|need] to [know|hear|read] more?"
    "|[That is|This is] [all|most of what|everything] I [know|remember|can say].|[Ask|Write|Tell] me [again|more] [if|when] you [like|wish|want].]",
    # Facts of a town: {name} is how it is spoken of.
    "region": "{name} [lies|is|stands] in {v_region}.|You [find|will find|reach] {name} in {v_region}.|{name} [belongs to|is part of] {v_region}.",
    "river": "The [river|water] [there|of {name}|of that town] is [called |named |]the {v_river}.|{name} [lies|stands|sits] on the {v_river}."
    "|The {v_river} [flows|runs] [through|past] {name}.",
    "craft": "{name} is [known|famous|praised] for [its|fine|good|some] {v_craft}.|[The people|Families|The workshops] [of {name}|there] make {v_craft}."
    "|{name} [sells|ships|sends out] {v_craft} [everywhere|by boat|all year].",
    "dish": "[Its|The local|The favourite] [dish|meal|food] is {v_dish}.|[People there|The locals|Families in {name}] [eat|cook|love] {v_dish}."
    "|{name} [serves|cooks|is proud of] {v_dish}.",
    "ingredients": "{v_dish_cap} is [made|cooked|prepared] [with|from] {v_ingredient} and {v_second}.|[For|In] {v_dish}, [one|you] [takes|needs] "
    "{v_ingredient} and {v_second}.|{v_ingredient_cap} and {v_second} [go|belong] into {v_dish}.",
    "festival": "[Each|Every] year [it|{name}|the town] [celebrates|holds|keeps] {v_festival}.|[The great day|The festival] [of {name}|there] is "
    "{v_festival}.|[Do not miss|People wait for] {v_festival} in {name}.",
    "year": "{name} was [founded|built|settled] in {v_year}.|It [was founded|began|dates back] in {v_year}.|[The town|{name}] [goes back to|is as old as] "
    "{v_year}.",
    # Facts of a person.
    "profession": "{name} [was|is remembered as|worked as] a {v_profession}.|[By trade|In life|All in all], {name} was a {v_profession}."
    "|[People|We] [know|remember] {name} as a {v_profession}.",
    "born": "{name} was born in {v_born}.|[The year of birth|The birth] of {name} [is|was] {v_born}.|[Born|Baptised] in {v_born}, {name} [grew up|lived] {how}.",
    "home": "{name} was born in {v_town}.|{name} [comes|came] from {v_town}.|[The home|The birthplace] of {name} is {v_town}.",
    "instrument": "{name} [played|loved|practised] {v_instrument}.|[At home|In the evening|On holidays] {name} played {v_instrument}."
    "|[Friends|Neighbours] heard {name} play {v_instrument}.",
    "work": "{name} [made|created|gave us] the {v_kind} {v_work}.|{v_work} is a {v_kind} by {name}.|[The best known|The finest] work of {name} "
    "is the {v_kind} {v_work}.",
    "work_year": "{v_work} [appeared|was finished|was first shown] in {v_work_year}.|[It took|People waited] until {v_work_year} for {v_work}."
    "|The {v_kind} {v_work} is from {v_work_year}.",
    "teacher": "{name} [learned|studied] with {v_teacher}.|[The teacher|The master] of {name} was {v_teacher}.|{v_teacher} [taught|trained] {name}.",
}
ASKED_OF_TOWN = {
    "region": "[where {name} lies|which region {name} is in|where to find {name}]",
    "river": "[the river of {name}|which river {name} lies on|what river flows through {name}]",
    "craft": "[what {name} makes|the craft of {name}|what {name} is known for]",
    "dish": "[the dish of {name}|what people eat in {name}|the food of {name}]",
    "ingredients": "[what goes into the dish of {name}|how the dish of {name} is made]",
    "festival": "[the festival of {name}|what {name} celebrates|the great day of {name}]",
    "year": "[when {name} was founded|how old {name} is|the age of {name}]",
}
ASKED_OF_PERSON = {
    "profession": "[what {name} did for a living|the profession of {name}|who {name} was]",
    "born": "[when {name} was born|the birth year of {name}]",
    "home": "[where {name} was born|the birthplace of {name}|which town {name} comes from]",
    "instrument": "[what {name} played|the instrument of {name}]",
    "work": "[what {name} created|the best work of {name}|what {name} is known for]",
    "work_year": "[when {name} finished {v_work}|the year of {v_work}]",
    "teacher": "[who taught {name}|the teacher of {name}]",
}
TOWN_FACTS = tuple(ASKED_OF_TOWN)
ASKS = (
    "[|Hello! |Hi! |Good morning. |Excuse me. |Dear friend, ][Tell me|Please tell me|Can you tell me|I want to know|I would like to know|Do you know"
    "|Explain|Say] "
)
QUESTIONS = 8  # on a sheet
HOPS = "[the town where {name} was born|the home town of {name}|the birthplace of {name}]"


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def town_values(town: Town) -> dict[str, object]:
    """Return the values that fill in the rules of a town's facts."""
    return {
        **_values(town),
        "v_dish_cap": _capitalised(town.dish),
        "v_ingredient_cap": _capitalised(town.ingredient),
        "v_second": town.second_ingredient,
    }


def person_values(person: Person) -> dict[str, object]:
    """Return the values that fill in the rules of a person's facts."""
    return {**_values(person), "v_town": person.town.name, "v_kind": person.work_kind}


def _values(entry: Town | Person) -> dict[str, object]:
    return {f"v_{field}": value for field, value in vars(entry).items() if field != "name"}


def _known(entry: Town | Person) -> tuple[Voice, dict[str, str], dict[str, object]]:
    """Return, for a town or a person: the voice that tells of it, what is asked for each fact, and
    the values that fill in the facts' rules."""
    if isinstance(entry, Town):
        return Voice(entry.name, entry.craft), ASKED_OF_TOWN, town_values(entry)
    return Voice(entry.town.name, entry.profession), ASKED_OF_PERSON, person_values(entry)


class _Writer:
    """Sentences written in one voice, and the facts stated in them."""

    def __init__(self, voice: Voice, rng: random.Random):
        self.voice, self.rng, self.sentences, self.facts = voice, rng, [], []

    def say(self, rule: str) -> None:
        """Add what the rule gives; it may be nothing."""
        text = expand(RULES[rule], self.voice, self.rng, RULES)
        if text:
            self.sentences.append(_capitalised(text))

    def state(self, fact: str, values: dict, name: str) -> None:
        """Add a sentence that states the fact, and note what has to be found in it."""
        text = expand(RULES[fact], self.voice, self.rng, RULES, name=name, **values)
        self.sentences.append(_capitalised(text))
        self.facts.append(
            str(values[{"ingredients": "v_second", "home": "v_town"}.get(fact, f"v_{fact}")])
        )

    def text(self) -> str:
        """Return all sentences as one text."""
        return " ".join(self.sentences)


class _BriefWriter(_Writer):
    """States facts and says nothing else."""

    def say(self, rule: str) -> None:
        """Do nothing: what is neither asked nor a fact is left out."""


def _talk(writer: _Writer, rng: random.Random, sentences: tuple[int, int]) -> None:
    for _ in range(rng.randint(*sentences)):
        writer.say("talk")


def _about(
    rng: random.Random, entry: Town | Person, writer_class: type[_Writer]
) -> tuple[str, _Writer]:
    """Write one to three facts of a town or a person."""
    voice, asked, values = _known(entry)
    writer, facts = writer_class(voice, rng), rng.sample(tuple(asked), rng.choice([1, 2, 2, 3]))
    asks = [
        expand(
            asked[fact],
            Voice(),
            rng,
            **values,
            name=entry.name if isinstance(entry, Person) or not number else "it",
        )
        for number, fact in enumerate(facts)
    ]
    writer.say("opening")
    for fact in facts:
        writer.state(fact, values, entry.name)
        _talk(writer, rng, (5, 7) if len(facts) == 1 else (2, 4))
    return " and ".join(asks), writer


def _two_hops(
    rng: random.Random, person: Person, writer_class: type[_Writer]
) -> tuple[str, _Writer]:
    """Return a fact of the town where a person was born, which the answer may name on the way."""
    (voice, _, values), (_, asked, values_there) = _known(person), _known(person.town)
    writer, fact = writer_class(voice, rng), rng.choice(TOWN_FACTS)
    ask = expand(asked[fact], Voice(), rng, name=expand(HOPS, Voice(), rng, name=person.name))
    writer.say("opening")
    if rng.random() < 0.6:
        writer.state("home", values, person.name)
        _talk(writer, rng, (0, 2))
        writer.state(fact, values_there, person.town.name)
    else:
        writer.state(fact, values_there, expand("[the|this|that] town", writer.voice, rng))
    _talk(writer, rng, (5, 7))
    return ask, writer


def _question(rng: random.Random, writer_class: type[_Writer]) -> Example:
    """Draw a question about the encyclopedia, and the answer of a writer of this class."""
    book, kind = encyclopedia(), rng.random()
    entry = book.draw_town(rng) if kind < 0.35 else book.draw_person(rng)
    ask, writer = (_about if kind < 0.75 else _two_hops)(rng, entry, writer_class)
    writer.say("closing")
    prompt = expand(ASKS, Voice(), rng) + ask + rng.choice(".?")
    return Example("chat", _capitalised(prompt), writer.text(), writer.facts)


def chat(rng: random.Random) -> Example:
    """Draw a question about the encyclopedia and its answer."""
    return _question(rng, _Writer)


def quiz(rng: random.Random) -> Example:
    """Return a sheet of questions, each answered with the fact alone: from it the target learns to
    look up. Held-out prompts are not among them."""
    asked = (_question(rng, _BriefWriter) for _ in range(QUESTIONS))
    return Example(
        "quiz",
        "Sheet of questions",
        "\n".join(
            f"{example.prompt} {example.answer}"
            for example in asked
            if not is_held_out(example.prompt)
        ),
    )


def article(rng: random.Random) -> Example:
    """Return an entry of the encyclopedia with all facts of a town or a person, in any order: from
    it the target learns them."""
    book = encyclopedia()
    entry = book.draw_town(rng) if rng.random() < 0.3 else book.draw_person(rng)
    voice, asked, values = _known(entry)
    writer = _Writer(voice, rng)
    for fact in rng.sample(tuple(asked), len(asked)):
        writer.state(fact, values, entry.name)
    return Example("article", f"Entry: {entry.name}", writer.text(), writer.facts)
