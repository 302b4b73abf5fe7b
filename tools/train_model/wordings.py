"""Words and sentence patterns of the tasks. Names that end in `_HELD` are never used in training.

Patterns: {a} attribute, {e} entity, {v} value, {p} person, {o} object.
"""

ADJECTIVES = ("red black white blue green dark bright old new young great little small large long short high low golden "
              "silver wooden broken empty heavy cold warm quiet strange happy rich wild gentle hidden ancient foreign "
              "royal copper narrow dusty crooked velvet iron lonely painted frozen purple striped yellow").split()
ADJECTIVES_HELD = "orange marble hollow rusty stormy faded crimson leather".split()
NOUNS = ("lantern house door horse table letter window garden river bridge castle tower ship boat road church chair book "
         "box ring sword gun bell clock hat coat glass bottle lamp candle mountain forest field island harbour village "
         "street kitchen soldier captain officer doctor prince princess king queen merchant servant sailor whale dog "
         "cat bird fish tree flower stone basket mirror carpet ladder hammer wagon saddle kettle violin drum telescope "
         "compass anchor blanket curtain").split()
NOUNS_HELD = "trumpet chest orchard statue feather wallet cottage pillow parrot engine".split()

FIRST_NAMES = ("Anna Boris Clara Daniel Edith Felix Grace Henry Ida Jacob Karl Laura Martin Nora Oscar Paula Quentin "
               "Rosa Simon Tessa Ulrich Vera Walter Yvonne Arthur Bertha Conrad Dora Emil Flora Gustav Helen Ivan Julia "
               "Leon Maria Nathan Olga Peter Rachel Stephen Thomas Ursula Victor").split()
FIRST_NAMES_HELD = "Agnes Barnaby Cecilia Desmond Eleanor Gilbert Harriet Isidore".split()
LAST_NAMES = ("Adler Brook Carter Dawson Ellis Foster Grant Hardy Irving Jordan Keller Lambert Mason Norton Osborne Parker "
              "Quinn Rivers Stone Turner Underwood Vance Wagner Young Baker Cooper Dalton Fisher Graves Holmes Marsh "
              "Nash Palmer Reed Shaw Thorne Walsh Webb Winter Abbott").split()
LAST_NAMES_HELD = "Ashdown Bellamy Crowther Fairfax Lockwood Merrick Penrose Whitlow".split()
SYLLABLES = ("ba be bor da den dor el fa fen gal gor ha hel is jo ka kel kor la lin lor ma mel mir na nor o pa pel ra ren "
             "ri sa sel tar tel ti tor u va vel vin wen xa yor za zel").split()

PLACES = ("London Paris Moscow Vienna Berlin Rome Madrid Athens Cairo Boston Lisbon Dublin Prague Warsaw Geneva Naples "
          "Oxford Bristol Nantucket Smolensk Bath Brighton Hamburg Venice").split()
COLOURS = "red blue green yellow purple white black brown grey pink".split()
MONTHS = ("January February March April May June July August September October November December").split()
WORDS = ("apple river thunder candle window marble forest copper ribbon harvest shadow button winter basket pepper anchor "
         "silence garden needle feather mirror blanket lemon tiger planet bottle pocket violin meadow hammer island "
         "dragon castle velvet engine monkey pillow rocket saddle ticket walnut zebra magnet pencil orchid cactus "
         "garlic hunter jacket kettle ladder market napkin oyster parade quarry raisin salmon timber urchin valley "
         "willow yogurt acorn barrel cobalt donkey ember falcon ginger hazel indigo jungle").split()

# (singular, kind of value)
ATTRIBUTES = [("secret code", "number"), ("password", "word"), ("locker number", "number"), ("favourite colour", "colour"),
              ("birthday", "date"), ("home town", "place"), ("motto", "phrase"), ("phone number", "long"),
              ("nickname", "word"), ("destination", "place"), ("price", "number"), ("owner", "name"),
              ("teacher", "name"), ("lucky word", "word"), ("code name", "made"), ("access key", "mixed"),
              ("room number", "number"), ("first message", "phrase"), ("magic number", "number"), ("rival", "name"),
              ("serial number", "mixed"), ("favourite word", "word"), ("inventor", "made"), ("weight", "number")]
ATTRIBUTES_HELD = [("safe combination", "number"), ("watchword", "word"), ("account number", "long"),
                   ("birthplace", "place"), ("slogan", "phrase"), ("neighbour", "name")]

STATEMENTS = ["The {a} of {e} is {v}.", "Remember that the {a} of {e} is {v}.", "Note: the {a} of {e} is {v}.",
              "As everybody knows, the {a} of {e} is {v}.", "For {e}, the {a} is {v}.", "It was said that {e} had {v} as the {a}.",
              "One thing is certain: the {a} of {e} is {v}.", "The {a} that belongs to {e} is {v}.",
              "About {e}: the {a} is {v}.", "Somebody wrote on the wall that the {a} of {e} is {v}.",
              "In the ledger, the {a} of {e} stands as {v}.",
              "They agreed that the {a} of {e} would be {v}."]
# No longer used in training: after 17M tokens model S found 18 % of the values that precede their
# key, and 87 % of the others (an induction head copies a value that follows its key).
STATEMENTS_REVERSED = ["{v} is the {a} of {e}.", "Do not forget that {v} is the {a} of {e}."]
STATEMENTS_HELD = ["If you ever need the {a} of {e}, it is {v}.", "Everyone in town says that the {a} of {e} is {v}.",
                   "The notebook gives {v} as the {a} of {e}.", "Between us, the {a} of {e} is {v}."]
QUESTIONS = ["What is the {a} of {e}?", "What was the {a} of {e}?", "Tell me the {a} of {e}.", "Which {a} belongs to {e}?",
             "Please give the {a} of {e}.", "For {e}, what is the {a}?", "What does the text say is the {a} of {e}?",
             "State the {a} of {e}.", "According to the document, what is the {a} of {e}?", "Find the {a} of {e}."]
QUESTIONS_HELD = ["I need to know the {a} of {e}.", "Do you remember the {a} of {e}?", "Can you look up the {a} of {e}?",
                  "What did they say was the {a} of {e}?"]
LIST_QUESTIONS = ["List every {a} of {e}.", "What are all the values of the {a} of {e}?",
                  "Name all that is given as the {a} of {e}."]
LIST_QUESTIONS_HELD = ["Write down each {a} of {e} in the text."]

# (statement, the object described through the person)
RELATIONS = [("{p} owns {o}.", "the thing that {p} owns"), ("{p} keeps {o} at home.", "the thing that {p} keeps at home"),
             ("{p} was looking after {o}.", "what {p} was looking after"), ("{p} once bought {o}.", "what {p} once bought")]
RELATIONS_HELD = [("{p} inherited {o}.", "the thing that {p} inherited")]
CHAIN = " Name it first."  # after a two-hop question: the answer is "the red lantern, 48213"

QUOTE_INTROS = ["He read the words again:", "As it was written before:", "She repeated it from memory:",
                "Once more, word for word:", "The passage is worth repeating:", "To quote from above:"]
QUOTE_INTROS_HELD = ["They copied the same lines:", "Let us hear it a second time:"]

KEY_FORMATS = ["{k}: {v}\n", "{k} = {v}\n", "{k} -> {v}\n", '"{k}": "{v}",\n', "- {k} | {v}\n", "The value of {k} is {v}.\n"]
KEY_FORMATS_HELD = ["[{k}] {v}\n", "{k} => {v}\n"]
KEY_QUESTIONS = ["What is the value of {k}?", "Which value belongs to {k}?", "Look up {k}.", "Give the entry for {k}."]
KEY_QUESTIONS_HELD = ["What stands beside {k}?", "Find {k} in the list."]

CATEGORIES = {
    "animal": "dog cat horse cow sheep pig goat lion tiger bear wolf fox deer rabbit mouse whale eagle duck goose hen owl".split(),
    "food": "bread cheese butter apple meat soup cake rice egg potato onion pear sugar honey salt pie ham bacon".split(),
    "colour": "red blue green yellow white black brown grey pink purple orange golden silver".split(),
    "body": "hand foot head arm leg eye ear nose mouth finger knee neck shoulder back hair face".split(),
    "family": "father mother brother sister son daughter uncle aunt cousin husband wife nephew niece".split(),
    "number": "one two three four five six seven eight nine ten eleven twelve twenty hundred".split(),
    "clothes": "hat coat shirt dress boot glove shoe cap cloak apron veil collar jacket belt".split(),
    "building": "house church castle barn inn palace tower cottage shop school hall stable".split(),
    "water": "sea river lake ocean stream pond rain harbour wave flood brook".split(),
    "month": "January February March April May June July August September October November December".split(),
}
FEW_SHOT_FORMATS = ["{x} -> {y}\n", "{x}: {y}\n", "Input: {x}\nLabel: {y}\n\n", "Word: {x}\nClass: {y}\n\n", "{x} = {y}\n"]
FEW_SHOT_FORMATS_HELD = ["Item: {x}\nGroup: {y}\n\n", "{x} is {y}\n"]

COUNT_QUESTIONS = ["How many times does the word {w} occur in the list?", "Count the word {w}.", "How often is {w} listed?"]
COUNT_QUESTIONS_HELD = ["How many of the words are {w}?"]
COPY_INTROS = [("Copy this text:", "Copy:"), ("Original:", "Copy:"), ("First time:", "Second time:"),
               ("Repeat after me:", "I repeat:")]
COPY_INTROS_HELD = [("Write this twice:", "Again:")]

ACKNOWLEDGEMENTS = ["Noted.", "All right.", "I will remember that.", "Thank you."]
SELF_STATEMENTS = ["My {a} is {v}.", "By the way, my {a} is {v}.", "Please remember: my {a} is {v}.", "You should know that my {a} is {v}."]
SELF_STATEMENTS_HELD = ["I should mention that my {a} is {v}."]
SELF_QUESTIONS = ["What is my {a}?", "What did I say my {a} is?", "Tell me my {a}.", "Which {a} did I give you?"]
SELF_QUESTIONS_HELD = ["Do you still know my {a}?"]
READING = ["Read this:", "Here is a passage:", "Another part of the story:", "It goes on like this:"]
SYSTEM = "You are a helpful assistant."


def vocabulary():
    """Every text above once, for the tokenizer's counts."""
    out = []
    for name, value in globals().items():
        if name.isupper():
            stack = [value]
            while stack:
                x = stack.pop()
                if isinstance(x, str):
                    out.append(" " + x)
                else:
                    stack.extend(x.values() if isinstance(x, dict) else x)
    return out
