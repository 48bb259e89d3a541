"""Whether a question is in another language than English, by its script and its function words.

Meant for an encoder that reads English alone. It says nothing of short questions, part numbers and
names: "El Niño", "Rio de Janeiro" and "die casting" are what English texts have as well.
"""

from __future__ import annotations

import unicodedata

from glie.lexical.snippet import COMMON
from glie.lexical.terms import exact_words

FEWEST_LETTERS = 4  # of another script, which may be a name or a unit
FEWEST_WORDS = 2  # function words of another language
SHARE = 0.2  # of the words, that they must be

# Scripts by the first word of their characters' names.
SCRIPTS = {
    "CYRILLIC": "a language in Cyrillic letters",
    "GREEK": "Greek",
    "ARABIC": "a language in Arabic letters",
    "HEBREW": "Hebrew",
    "DEVANAGARI": "a language in Devanagari letters",
    "THAI": "Thai",
    "HANGUL": "Korean",
    "HIRAGANA": "Japanese",
    "KATAKANA": "Japanese",
    "CJK": "Chinese or Japanese",
    "TAMIL": "Tamil",
    "ARMENIAN": "Armenian",
    "GEORGIAN": "Georgian",
    "BENGALI": "Bengali",
}

# Words that join others. Those that are English words as well are left out: die, war, in, on, no.
FUNCTION = {
    "German": "der das den dem des ein eine einen einem einer eines und oder nicht ist sind waren "
    "wird werden wurde wurden hat haben hatte wie wer wann wo warum welche welcher welches welchen "
    "mit von vom zu zum zur für auf aus bei nach über unter zwischen als auch ich sie es sich im "
    "die in an am bis durch ohne gegen um kann können viele viel wieviel gibt wem wessen dass daß "
    "ihr seine man noch nur soll muss",
    "French": "le la les un une des du de et ou est sont était été ont avec dans sur sous pour par "
    "que qui quoi quel quelle quels quelles où quand comment combien pourquoi ce cette ces son sa "
    "ses leur leurs il elle ils elles ne pas plus au aux en se qu est-ce à",
    "Spanish": "el la los las un una unos unas de del y o es son era fue fueron con en por para "
    "que qué quién quiénes cuál cuáles cómo cuándo cuánto cuánta cuántos cuántas dónde se su sus "
    "lo al no más como este esta qué ha han hay según entre sobre sin",
    "Italian": "il lo la gli le un una uno di del della dei delle degli dello e è sono era erano "
    "che chi cosa quale quali quando quanto quanti quante come dove perché con per nel nella nei "
    "nelle da dal dalla si suo sua suoi non più ha hanno fu al alla agli alle dell nell qual in",
    "Portuguese": "o os as um uma uns umas de do da dos das e é são era foi foram com em no na nos "
    "nas por para que quem qual quais quando quanto quantos quantas como onde se seu sua seus não "
    "mais ao à pelo pela há ter tem",
    "Dutch": "de het een en of niet is zijn waren wordt worden werd werden heeft hebben had hoe "
    "wie wanneer waar waarom welke welk met van voor op uit bij naar over onder tussen als ook ik "
    "zij ze hij zich te door zonder tegen om kan kunnen veel hoeveel wat dat die deze dit er",
    "a Scandinavian language": "og eller ikke inte är er var som hvem vem hva vad hvilken hvilket "
    "hvilke vilken vilket vilka når hvornår hvor var varför hvorfor hvordan hur med av til till "
    "fra från på om den det de en et ett ei har hadde havde hade blir ble blev seg sig etter efter "
    "mange många mye meget i for å att at under mellom mellan",
    "Polish": "i w z na do nie jest są był była było były się że co kto kiedy gdzie dlaczego jak "
    "jaki jaka jakie który która które ile czy od po przez dla o ze za przy może można być oraz",
    "Romanian": "și sau nu este sunt era au cu în din pe la de ce cine când unde cum câți câte cât "
    "care pentru prin a al ale ai unui unei lui sa său cel cea după între",
    "Turkish": "ve veya bir bu şu ne kim nerede nasıl niçin neden hangi kaç için ile daha çok en "  # noqa: RUF001
    "olan olarak oldu mı mi mu mü değil hangisi nedir kimdir gibi sonra önce kadar tarafından "  # noqa: RUF001
    "zaman nereden nereye yılında",  # noqa: RUF001
    "Vietnamese": "của và là những các một không được có ở cho với trong khi nào gì ai đâu bao "
    "nhiêu thế như người đã về từ này đó năm ra tại vào bị",
    "Indonesian": "yang dan di ke dari untuk dengan pada apa siapa kapan mana mengapa bagaimana "
    "berapa adalah ini itu tidak oleh dalam akan",
    "Czech": "a v na je jsou byl byla bylo se že co kdo kdy kde proč jak jaký jaká jaké který "
    "která které kolik z ze do od po pro při nebo není",
    "Finnish": "ja tai ei on ovat oli olivat mikä mitä kuka ketä milloin missä miksi miten kuinka "
    "monta joka jotka että se hän niin kun",
    "Hungarian": "a az és vagy nem egy van volt voltak mi ki mikor hol miért hogyan hány mennyi "
    "melyik hogy mit kik milyen",
}
# what an English text has too: names and terms have these on their own
SHARED = {
    *("a", "i", "o", "e", "no", "on", "in", "is", "me", "or", "at", "as", "do", "to", "die", "war"),
    *("was", "of", "an", "am", "so", "had", "dat", "per", "plus", "son", "sur", "par", "sole"),
    *("come", "over", "under", "om", "var", "has", "het", "man", "fur", "most", "will", "les"),
    *("mi", "mu", "en", "se", "un", "et", "al", "de", "ad", "ne", "ai", "pe", "au", "de", "la"),
    *("ha", "os", "or", "ei", "er", "de", "it", "for", "be", "he", "we", "due", "via", "das"),
    *("el", "il", "lo", "ze", "um", "si", "med", "dit", "pro", "kan", "te", "can", "this", "with"),
    *("nos", "ki", "az", "van", "von", "di", "da", "du", "des", "le", "los", "las", "del", "mit"),
    *("then", "than", "cum", "care", "sa", "co", "po", "od", "dan", "at", "one", "ten", "not"),
}
_WORDS = {language: frozenset(words.split()) for language, words in FUNCTION.items()}
_SHARED = frozenset(SHARED)
ENGLISH = (
    "can could should would may might about between after before into than then these those they "
    "we you he she his her our your if been being which whose whom during per over under more most "
    "some any all each other such only"
)
_ENGLISH = frozenset(COMMON) | frozenset(ENGLISH.split())


def foreign_language(question: str) -> str | None:
    """The language of a question that is not in English; None if it is, or if that is not sure."""
    return _by_script(question) or _by_words(question)


def _by_script(question: str) -> str | None:
    """By letters that are not Latin, if they are most of the question."""
    letters = [letter for letter in question if letter.isalpha()]
    names = [
        unicodedata.name(letter, "").split(" ")[0] for letter in letters if ord(letter) > 0x2FF
    ]
    found = [name for name in names if name in SCRIPTS]
    wide = sum(name in ("CJK", "HIRAGANA", "KATAKANA", "HANGUL") for name in found)
    if 2 * len(found) <= len(letters) or len(found) + wide < FEWEST_LETTERS:
        return None
    if wide and {"HIRAGANA", "KATAKANA"} & set(found):
        return "Japanese"
    return SCRIPTS[max(set(found), key=found.count)]


def _by_words(question: str) -> str | None:
    """By function words. Those that English texts have too count only beside others."""
    words = exact_words(question)
    english = sum(word in _ENGLISH for word in words)
    best, most = None, 0
    for language, function in _WORDS.items():
        mine = [word for word in words if word in function]
        if len({*mine} - _SHARED - _ENGLISH) and len({*mine}) > most:
            best, most = language, len({*mine})
    enough = most >= FEWEST_WORDS and most > english and most >= SHARE * len(words)
    return best if enough and best and not _is_name(question, _WORDS[best]) else None


def _is_name(question: str, function: frozenset[str]) -> bool:
    """Whether all words but function words begin with a capital, as in a name or a title."""
    others = [word for word in question.split() if not function.issuperset(exact_words(word))]
    return "?" not in question and all(word[0].isupper() for word in others)
