"""The words of thanks and farewells, as data for `graphs.text.farewells`.

Everything is written as people write it: case, accents and apostrophes do not matter. Single words
stand in one text. ``(a|b)`` in a phrase is one of the two, and ``(a|)`` may be left out.
"""

from typing import NamedTuple


class Courtesy(NamedTuple):
    """A kind of courtesy: how it begins and what may follow."""

    openers: tuple[str, ...]
    """Phrases that make a sentence a courtesy."""
    tail: str = ""
    """Words that may follow an opener, in any order, up to the end of the sentence."""
    topic: str = ""
    """Words of the tail after which a few words of any kind name what the courtesy is about."""


_DEGREES = (
    "so very kindly business much a lot again once more ever for all in advance everyone"
    " everybody both"
)

_HELP = (
    "the this that your our my kind great valuable wonderful amazing incredible excellent"
    " fantastic good warm continued hard thoughtful helpful generous very to me us you today"
    " here and as well help support time work effort efforts assistance guidance advice insight"
    " insights feedback patience understanding attention cooperation collaboration partnership"
    " input contribution contributions words wishes expertise dedication conversation discussion"
    " chat talk company kindness hospitality service effort everything it all helping me team"
    " friendship trust consideration process throughout interest responses suggestion"
    " suggestions reply answer answers explanation explanations information tip tips"
)

_NEEDS = (
    "if you your ever have need any more further other additional questions question concerns"
    " issues help assistance support guidance advice clarification anything something else or"
    " again in the future later down road line at all to please just simply can be of do for i"
    " we im were me us am are here always happy glad ready there whenever need feel free ask"
    " reach out contact get touch hesitate not dont do back come return let know time anytime"
    " any day as well with"
)

_MEETING = (
    "our your the next future more many again soon it that then too to you working work with"
    " talking talk speaking speak chatting chat meeting meet hearing hear from seeing see"
    " conversation conversations discussion discussions collaboration collaborations"
    " collaborating session sessions meeting meetings game adventure adventures project projects"
    " opportunity opportunities partnership time times one together and all of very much really"
    " in so here"
)

_OCCASION = (
    "a an the your very really truly great good nice lovely wonderful fantastic beautiful"
    " amazing pleasant productive relaxing restful peaceful safe happy blessed excellent awesome"
    " fabulous super brilliant joyful one day days evening night morning afternoon weekend week"
    " time trip journey flight holiday holidays vacation rest of ahead today tonight too as well"
    " and year break meal lunch dinner"
)

_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday"

COURTESIES = (
    # English: thanks.
    Courtesy(
        (
            "(many|) thanks",
            "(i|we|) thank (you|u)",
            "thank (y'all|ya)",
            "thx",
            "ty",
            "(i|we|) (really|truly|greatly|deeply|sincerely|also|) appreciate",
            "(much|greatly|really|truly|) appreciated",
            "(i am|i'm|we are|we're) (so|very|truly|deeply|really|) (grateful|thankful) (for|to|)",
            "(i|we) (can't|cannot|can not) thank you enough",
            "(i|we) (couldn't|could not) have done (it|this) without you",
            "(a|) (big|huge|heartfelt|special|warm) thank you",
            "my thanks",
            "(your|the) (kind|) words (really|truly|) mean (a lot|so much|the world)",
            "thanks a (million|bunch|ton|lot)",
            "(many|my) (heartfelt|sincere|warm) thanks",
            "(it|that|this) (really|truly|) means (a lot|so much|the world)",
            "(you have been|you've been|you were|you are|you're) (so|very|incredibly|really|most"
            "|) (helpful|kind|patient)",
            "you've been (a|an|) (so|very|) (great|wonderful|amazing|incredible|big) (help|team|)",
            "(you're|you are) (the best|too kind|so kind|very kind|a star|a lifesaver|amazing)",
        ),
        f"{_DEGREES} {_HELP}",
        "for with about on regarding",
    ),
    # English: what answers thanks.
    Courtesy(
        (
            "(you're|you are|your|ur) (very|most|always|so|more than|absolutely|) welcome",
            "(very|most|always) welcome",
            "(it's|it was|) (my|our) (absolute|) pleasure",
            "(the|) pleasure (was|is) (all|entirely|) (mine|ours)",
            "(the|) pleasure (is|was|) all mine",
            "don't mention it",
            "think nothing of it",
            "(i'm|i am|we're|we are|) (so|very|really|always|truly|just|) (glad|happy|pleased"
            "|delighted) (to|i could|we could|i was able to|you found|you liked|you enjoyed|that"
            " you)",
            "(i'm|i am|we're|we are|) (so|very|really|truly|) (glad|happy|pleased) (to hear|it"
            " helped)",
            "anytime",
            "any time",
            "(you|and you|and to you|to you|back to you|same to you|and the same to you) too",
            "(and|) (the|) same to (you|y'all)",
            "(and|) you as well",
            "(and to|to) you as well",
            "(right|) back at you",
            "likewise",
            "same here",
            "and you",
            "(the|) feeling is mutual",
        ),
        "help helped helping be been have of i we could assist assisting assisted assistance"
        " service"
        " support you your me us hear that it this useful helpful found was were is to all both"
        " everyone the and today here enjoyed our conversation collaboration work working with"
        " again so very mine ours could anytime always contribute collaborate whenever great"
        " good as well friends together do able",
        "with about on",
    ),
    Courtesy(
        ("(no|not a) (problem|problems|worries|trouble)",),
        "at all whatsoever any time for you me and all here",
    ),
    # English: farewells.
    Courtesy(
        (
            "(good|) (bye|by)",
            "(bye|) bye bye",
            "goodbye",
            "good-bye",
            "goodnight",
            "good night",
            "farewell",
            "so long",
            "cheers",
            "cheerio",
            "ciao",
            "adieu",
            "adios",
            "sayonara",
            "cya",
            "ttyl",
            "(take|) (good|great|) care of yourself",
            "(please|) take (good|great|) care",
            "(be|stay|keep) (safe|well|healthy|warm|strong|awesome|curious|inspired|positive"
            "|blessed)",
            "(keep|stay) in touch",
            "(let's|) (keep|stay) in touch",
            "(talk|speak|chat) (to you|with you|) (soon|later|again|then|tomorrow|next time)",
            "(catch|see) (you|ya) (soon|later|then|there|around|again|tomorrow|tonight|next time|)",
            "(see|) (you|ya) (all|) (soon|later|again|next time|next week)",
            "(i'll|i will|we'll) (see|talk to) you (soon|later|again|tomorrow|next time)",
            "(until|till|'til) (next time|then|we meet again|we speak again|tomorrow|next week"
            "|our next)",
            "sweet dreams",
            "sleep (well|tight)",
            "rest well",
            "god bless",
            "god speed",
            "godspeed",
            "(have|) (a|) safe (travels|trip|journey|flight)",
            "bon voyage",
            "over and out",
            "signing off",
            "peace out",
        ),
        f"{_WEEKDAYS} {_MEETING} on next week all everyone everybody folks guys for now and"
        " yourself of you soon later then there around tomorrow tonight time until till we meet"
        " speak stay safe",
    ),
    # English: wishes.
    Courtesy(
        (
            "(please|do|you|and|) have (a|an|the)",
            "(a|) (great|nice|lovely|wonderful|good|fantastic) (day|evening|weekend|week|night)"
            " (to|)",
            "(i|we|) (hope|trust) (that|) you have (a|an)",
            "have (lots of|) fun",
            "(i|we|i'm|i am|we are|) (wish|wishing) you (and yours|both|all|) (a|an|the|all|)",
            "(wishing|wish) (everyone|everybody|you all) (a|an|the|all|)",
            "(i|) (also|) hope (that|) you (enjoy|enjoyed)",
            "(please|do|you|and|) enjoy",
            "happy (coding|trading|gardening|cooking|writing|reading|learning|building|planning"
            "|playing|painting|programming|holidays|travels|trails|hacking|testing|cycling"
            "|baking|birthday)",
            "keep up the (good|great|excellent|amazing) work",
        ),
        f"{_OCCASION} best luck success in with everything all future endeavors endeavours you"
        " every happiness much and yours both everyone it life efforts work further continued of"
        " our conversation conversations chat game",
        "with in",
    ),
    Courtesy(
        (
            "(the|) best of luck",
            "(good|much) luck",
            "(i|we|) (wish|wishing) you (the|) best of luck",
            "(i|we|) (wish|wishing) you (all|) the (very|) best",
            "(i|we|) (wish|wishing) you (much|every|great|continued|all the|) (success|luck)",
            "all the (very|) best",
            "all (my|our) best",
            "(my|our|with|) (best|warm|warmest|kind|kindest|good) (wishes|regards)",
            "regards",
            "(yours|) (sincerely|faithfully|truly)",
            "(sincerely|faithfully) yours",
            "(much|lots of) (love|success)",
            "(fingers|) crossed for you",
            "(i'm|i am|we're) rooting for you",
        ),
        f"{_OCCASION} to with in for your you all both everyone future endeavors endeavours"
        " everything project projects work success luck from and of the",
        "with in for on",
    ),
    # English: pleasantries about the conversation and the next one.
    Courtesy(
        (
            "(it's|it has|it is|it was|this was|this has|that was|it's been|it has been|this has"
            " been) (been|) (a|an|such a|such an|) (really|truly|very|so|absolutely|) (great"
            "|real|true|absolute|) (pleasure|joy|honor|honour|privilege|delight|treat)",
            "(it's|it has|it was|it's been|it has been|this was|this has been) (been|) (so"
            "|really|truly|) (a|) (great|wonderful|lovely|nice|fun|good|fantastic|amazing"
            "|delightful) (working|talking|speaking|chatting|collaborating|meeting|playing"
            "|having|conversation|chat|discussion|experience|collaboration|session|to work|to"
            " talk|to meet|to chat)",
            "it (was|has been) (truly|really) (a|an) (great|) (pleasure|joy|honor|honour"
            "|privilege)",
            "(a|) (great|real|) pleasure (working|talking|speaking|chatting|meeting|doing"
            "|collaborating)",
            "(great|nice|lovely|wonderful|good) (working|talking|speaking|chatting|meeting"
            "|collaborating) (with|to|you)",
            "(i|we|i've|i have|we've|we have) (really|truly|thoroughly|also|very much|) enjoyed",
            "(i'm|i am|we're|we are|i|we|) (really|also|very much|eagerly|always|) look(ing|)"
            " forward to",
            "(i|we) (can't|cannot) wait (to|for) (work|talk|chat|speak|meet|see|our)",
            "(i'm|i am) (excited|thrilled) (for|about|to) (our|work|see|continue working)",
            "(i|we|) hope to (see|hear|talk|speak|work|chat|meet)",
            "we make a (great|good|fantastic|wonderful) team",
        ),
        f"{_MEETING} {_HELP} assisting helping supporting serving doing business being able having",
        "with on about",
    ),
    # English: offers to be there.
    Courtesy(
        (
            "(please|and|) (feel|) free to (reach out|contact|ask|get in touch|let me know|come"
            " back|return|message|write|call|drop by)",
            "(please|and|) (don't|do not|never|) hesitate to (reach out|contact|ask|get in touch"
            "|let me know|come back|return|message|write|call)",
            "(please|just|) let (me|us) know if (you|there's|there is|i can|we can) (ever|)"
            " (need any|need anything|have any|anything|be of|help|assist|need further|need more"
            " help)",
            "(if|should|whenever|when) (you|) (ever|) (need|have) (any|anything|help|more"
            "|further|me|us)",
            "if there's anything else",
            "if there is anything else",
            "(i'm|i am|we're|we are|i'll be|i will be) (always|) (just|right|only|) (here|around"
            "|there) (to help|to assist|to support|if you|whenever you|when you|for you|anytime"
            "|for any)",
            "(i'm|i am|we're|we are) (always|) (just|) (a message|one message|a call) away",
            "(i'm|i am|we're|we are|i'll|i will|) always (be|) (here|happy|glad) (to help|for you)",
            "(i'll|i will|we'll) (be sure to|definitely|certainly|gladly|surely|) (reach out"
            "|keep in touch|stay in touch|be in touch|let you know if|keep that in mind)",
            "come back (anytime|any time|soon|whenever)",
            "my door is always open",
        ),
        f"{_NEEDS} i have reach more when",
        "with about on regarding",
    ),
    # German.
    Courtesy(
        (
            "(vielen|) (herzlichen|besten|lieben|tausend|schönen|) dank",
            "(danke|dankeschön|dankesehr|merci)",
            "(ich|wir) (danke|danken|bedanke|bedanken)",
            "(gern|gerne|sehr gern|sehr gerne) geschehen",
            "bitte (schön|sehr)",
            "(aber|) (keine ursache|kein problem|nichts zu danken)",
            "(die freude|das vergnügen) (war|ist) ganz (meinerseits|auf meiner seite)",
            "(es|) (war|ist) (mir|uns|) (ein|eine|) (vergnügen|freude|ehre|große freude)",
            "(es|) (freut|freute) mich",
            "(es|) hat mich (sehr|) gefreut",
            "(gleichfalls|ebenfalls|ebenso|dir auch|ihnen auch|euch auch)",
        ),
        "dir ihnen euch sie dich mir mich uns schön sehr vielmals nochmals noch mal für die das"
        " den der deine deiner ihre eure ihren euren deinen hilfe unterstützung zeit mühe geduld"
        " antwort rat alles gute tolle wunderbare tolles freundlichen nette worte zusammenarbeit"
        " gespräch arbeit dass ich wir helfen konnte konnten auch ebenfalls gern gerne euch"
        " allen mit zu arbeiten im voraus bei herzlich ganz",
        "für bei mit",
    ),
    Courtesy(
        (
            "auf (wiedersehen|wiedersehn|wiederhören|wiederschauen|bald)",
            "(tschüss|tschüs|tschau|servus|ade|adieu|pfiati)",
            "bis (bald|dann|später|morgen|gleich|demnächst|nachher|zum nächsten mal|nächste woche)",
            "gute nacht",
            "(mach's|macht's|machen sie es|mach es) gut",
            "alles (gute|liebe)",
            "(pass|passen sie) (gut|) auf (dich|sich|euch) auf",
            "(ich|wir) (wünsche|wünschen)",
            "(hab|habt|haben sie|hätten sie) (noch|) (einen|ein|eine) (schönen|schönes|schöne"
            "|guten|gute)",
            "(einen|ein|eine|) (schönen|schönes|schöne|guten|angenehmen) (tag|abend|wochenende"
            "|woche|feierabend|nachmittag|urlaub)",
            "viel (erfolg|glück|spaß)",
            "gute (reise|besserung|heimfahrt|fahrt)",
            "(mit|) (freundlichen|besten|herzlichen|lieben|viele|liebe|beste|schöne) (grüßen"
            "|grüße)",
            "(melden sie sich|melde dich|meldet euch) (gern|gerne|jederzeit|einfach)",
            "(ich|wir) (freue|freuen) (mich|uns) auf",
        ),
        "dir ihnen euch noch einen ein eine den das die schönen schönes schöne guten gute tollen"
        " tag abend wochenende woche nachmittag feierabend zeit rest des tages und auch alles"
        " gute viel erfolg glück spaß weiterhin weiter dabei mit für beim ihr ihre ihrem dein"
        " deine deinem unser unsere nächste nächstes nächsten gespräch mal zusammenarbeit"
        " treffen wiedersehen jederzeit wenn falls sie du ihr weitere fragen hilfe brauchen"
        " brauchst haben hast etwas zukunft der montag dienstag mittwoch donnerstag freitag"
        " samstag sonntag bald wieder bei zum gern gerne",
        "mit für bei beim",
    ),
    # French.
    Courtesy(
        (
            "(merci|remerciements)",
            "(je|nous) (te|vous) (remercie|remercions)",
            "(de|il n'y a pas de) rien",
            "pas de (quoi|problème|souci)",
            "(il n'y a|y a|) pas de quoi",
            "(je|) (vous en|t'en) prie",
            "(avec|tout le|c'était un|c'est un|ce fut un|c'est avec|) (grand|) plaisir",
            "(à|a) (vous|toi) aussi",
            "(de même|pareillement|vous aussi|toi aussi|également)",
            "(ravi|ravie|heureux|heureuse|content|contente) (de|d'avoir|d'avoir pu)",
        ),
        "beaucoup bien infiniment mille fois encore vraiment tout à vous toi tous pour de"
        " d'avoir m'avoir votre ton ta tes vos ce cette la le les l' aide l'aide patience temps"
        " soutien réponse conseils conseil travail message gentillesse accueil tout avance"
        " d'avance et aider aidé pu vous t'avoir travailler travaillé avec collaboration"
        " conversation mon ami est pour moi ma part échange été un plaisir grand",
        "pour de",
    ),
    Courtesy(
        (
            "au revoir",
            "adieu",
            "salut (à tous|)",
            "(à|a) (bientôt|demain|plus|plus tard|tout à l'heure|tantôt|la prochaine|très"
            " bientôt|lundi|la semaine prochaine)",
            "bonne (journée|soirée|nuit|semaine|chance|continuation|route|fin de journée|année"
            "|fête)",
            "bon (week-end|courage|voyage|retour|appétit|après-midi)",
            "(je|nous) (vous|te) souhaite",
            "(prends|prenez) (bien|) soin de (toi|vous)",
            "(passe|passez) (une|un) (bonne|bon|excellente|excellent|très bonne)",
            "(bien|) (cordialement|amicalement)",
            "(n'hésitez|n'hésite) pas",
        ),
        "à a vous toi tous tout le monde et une un bonne bon excellente excellent belle très"
        " journée soirée nuit semaine week-end continuation chance fin de aussi encore pour la"
        " le votre ton prochaine fois bientôt si avez as besoin d'aide d'autres autres questions"
        " me contacter nous suite",
        "pour dans",
    ),
    # Spanish.
    Courtesy(
        (
            "(muchas|muchísimas|mil|) gracias",
            "(te|le|les|os) (agradezco|agradecemos)",
            "(muy|) agradecid(o|a)",
            "(de|por) nada",
            "no hay de qué",
            "no hay problema",
            "(ha sido|fue|es) un (verdadero|gran|) (placer|gusto)",
            "(un|el|con) (placer|gusto) (es mío|ha sido mío|fue mío|)",
            "(con mucho|mucho) gusto",
            "(igualmente|asimismo|lo mismo digo|tú también|usted también|a ti|a usted|a ustedes)",
            "me alegro de (haber|haberte|haberle|poder)",
            "me alegra (haber|haberte|poder)",
        ),
        "por todo toda tu su vuestra la el lo ayuda apoyo tiempo paciencia atención amabilidad"
        " consejo consejos respuesta trabajo de nuevo otra vez a ti usted ustedes vosotros todos"
        " y también muy tan amable amables colaboración conversación ayudado ayudarte ayudarle"
        " ayudar trabajar contigo con usted hablar mucho mucha gran antemano siempre",
        "por con",
    ),
    Courtesy(
        (
            "adi(ó|o)s",
            "(chao|chau|ciao|bye)",
            "hasta (luego|pronto|mañana|la vista|la próxima|siempre|otra|el lunes|entonces|la"
            " semana)",
            "nos vemos",
            "(que|) (tengas|tenga|tengan|tengáis|pases|pase|pasen) (un|una|unas|muy|) (buen"
            "|buena|buenas|feliz|lindo|linda|excelente|bonito|maravilloso|gran|bien)",
            "(buen|buena|feliz) (día|tarde|noche|viaje|suerte|semana|fin de semana|descanso"
            "|provecho)",
            "buenas noches",
            "(mucha|) suerte",
            "(cuídate|cuídese|cuídense|cuidaos)",
            "(te|le|les|os) (deseo|deseamos)",
            "(un|) (abrazo|saludo|cordial saludo|saludos)",
            "(saludos|atentamente)",
            "(no dudes|no dude|no duden) en",
            "que (te|le|les|os) vaya (muy|) bien",
        ),
        "a todos todas y un una el la lo muy mucho mucha buen buena buenas feliz lindo día tarde"
        " noche semana fin de viaje tardes noches vez próxima otra también siempre bien mejor"
        " suerte éxito con tu su proyecto en si necesitas necesita algo más ayuda preguntas"
        " contactarme pronto luego lunes martes miércoles jueves viernes sábado domingo que"
        " viene excelente resto del cordiales afectuosos",
        "con en",
    ),
    # Italian.
    Courtesy(
        (
            "(grazie|mille grazie|tante grazie|molte grazie|grazie mille)",
            "(ti|la|vi) (ringrazio|ringraziamo)",
            "(prego|di nulla|di niente|non c'è di che|figurati|si figuri|ci mancherebbe)",
            "(nessun|) problema figurati",
            "(è stato|è) un (vero|grande|) piacere",
            "(il|con) piacere (è|è stato|) (mio|tutto mio|)",
            "(altrettanto|anche a te|anche a lei|anche a voi|a te|a lei|ugualmente)",
            "(sono|) (felice|lieto|lieta|contento|contenta) di (averti|averla|aver|essere)",
        ),
        "mille tante molte ancora infinite di cuore davvero per il lo la l' tuo tua suo sua"
        " vostro vostra aiuto l'aiuto supporto tempo pazienza disponibilità consiglio consigli"
        " risposta gentilezza tutto tutti a te lei voi e anche così molto gentile collaborazione"
        " conversazione lavorare lavorato parlare aiutarti aiutarla aiutarvi con averti averla"
        " aiutato aiutata stato utile"
        " d'aiuto anticipo in",
        "per con",
    ),
    Courtesy(
        (
            "(arrivederci|arrivederla|addio|ciao|ciao ciao)",
            "a (presto|dopo|domani|più tardi|prestissimo|risentirci|rivederci|lunedì)",
            "alla prossima",
            "ci (vediamo|sentiamo)",
            "buon(a|) (giornata|serata|notte|fortuna|settimana|domenica|continuazione|fine"
            " settimana|weekend|lavoro|viaggio|proseguimento|pomeriggio|appetito|natale)",
            "buonanotte",
            "(ti|le|vi) (auguro|auguriamo)",
            "(stammi|stia|state|stai) bene",
            "(abbi|abbia) cura di (te|sé)",
            "(un|) (abbraccio|caro saluto)",
            "(cordiali|cari|distinti) saluti",
            "(in bocca al lupo|tanti auguri)",
            "non esitare a",
        ),
        "a tutti tutte e un una buona buon bella splendida ottima giornata serata notte"
        " settimana fine tutto il la meglio fortuna prossima volta presto domani anche te lei"
        " voi di più tardi con per il tuo suo progetto contattarmi se hai ha bisogno altre"
        " domande di aiuto lunedì martedì mercoledì giovedì venerdì sabato domenica",
        "per con",
    ),
    # Portuguese.
    Courtesy(
        (
            "(muito|muitíssimo|) obrigad(o|a)",
            "(eu|) (agradeço|agradecemos)",
            "(de nada|por nada|disponha|não há de quê|imagina|sem problema|não tem de quê)",
            "(foi|é) um (grande|) prazer",
            "(o|com) prazer (foi|é|) (meu|todo meu|)",
            "(igualmente|você também|para você também|para ti também|a você também|da mesma forma)",
            "(fico|estou) (muito|) (feliz|contente) (em|por) (ter|poder)",
        ),
        "por pela pelo pelas pelos tudo toda todo a o sua tua seu teu ajuda apoio tempo"
        " paciência atenção gentileza resposta conselho conselhos trabalho de novo mais uma vez"
        " mesmo eu que você vocês ti todos e também muito colaboração conversa ajudar ajudado"
        " conversar trabalhar com antecipadamente",
        "por pela pelo com",
    ),
    Courtesy(
        (
            "(tchau|tchauzinho|adeus|xau)",
            "até (logo|breve|amanhã|mais|já|à próxima|a próxima|mais tarde|então|segunda|a vista)",
            "(tenha|tenham|tem|tenhas) (um|uma) (bom|boa|ótimo|ótima|excelente|lindo|linda|feliz"
            "|bela)",
            "(bom|boa|ótimo|ótima) (dia|tarde|noite|semana|sorte|viagem|fim de semana|descanso"
            "|trabalho)",
            "boa noite",
            "(nos vemos|a gente se vê|vemo-nos)",
            "(cuide-se|cuida-te|se cuida|cuidem-se)",
            "(desejo|desejamos)",
            "(um|) (abraço|grande abraço)",
            "(abraços|atenciosamente|cumprimentos)",
            "(não hesite|não hesites) em",
            "fique (bem|com deus)",
        ),
        "a para todos todas e um uma bom boa ótimo ótima excelente dia tarde noite semana fim de"
        " tudo melhor sorte sucesso você vocês te lhe também muito bem próxima vez breve logo"
        " com no seu teu projeto contactar me entrar em contato se precisar de mais alguma ajuda"
        " segunda terça quarta quinta sexta feira sábado domingo",
        "com no",
    ),
)
"""What makes a sentence a courtesy, in six languages."""

FILLERS = (
    "all right",
    "of course",
    "got it",
    "sounds (good|great|wonderful|perfect)",
    "that's (great|wonderful|perfect|good|lovely|fantastic) (to hear|)",
    "that's (so|very|) kind (of you|)",
    "(great|good|nice|amazing|excellent|fantastic) (work|job|teamwork)",
    "well done",
    "my (friend|friends|dear|dear friend)",
    "for now",
    "once (more|again)",
    "as well",
    "until then",
    "in the meantime",
    "not at all",
    "(no|) that's (all|everything|all for now|all for today|it for now|it for today)",
    "(no|) that (is|was|will be|would be) (all|everything|all for now|all for today)",
    "nothing else",
    "(i|) will do",
    "i will",
    "also dann",
    "noch (einmal|mal)",
    "de nuevo",
    "très bien",
    "tout le monde",
    "muy bien",
    "va bene",
    "muito bem",
)
"""What may stand around a courtesy, and is none by itself."""

FILLER_WORDS = (
    "and so very too also again oh ah aw aww well ok okay alright great perfect wonderful"
    " excellent awesome fantastic lovely amazing super good nice sure absolutely definitely"
    " certainly indeed really truly congratulations dear hi hello hey team everyone everybody"
    " all both folks guys friend friends mate buddy sir madam ma'am doctor professor then xoxo"
    " und auch bitte nochmals encore ancora gern gerne sehr gut prima liebe lieber zusammen"
    " allerseits et alors parfait d'accord cher chère y perfecto vale bueno querido querida"
    " amigo amiga señor señora e ed bene perfetto caro cara perfeito certo"
)
"""The same, in single words."""

STOPS = (
    "and but now then please so next because when if while is are was were will would can could"
    " should must may might do does did don't doesn't didn't not no yes let lets let's i i'm"
    " i'll we we'll you he she they add use write make try run go show tell give send check fix"
    " remove change start stop take put keep say read look find explain continue implement"
    " create here there however also und aber jetzt nun bitte dann nicht ist sind ich wir sie"
    " schreibe mais maintenant ensuite est je nous pero ahora luego es yo ma adesso ora poi io"
    " mas agora depois"
)
"""What no topic goes on with: something else begins."""

SIGN_OFFS = (
    "regards",
    "wishes",
    "sincerely",
    "cheers",
    "yours",
    "truly",
    "faithfully",
    "thanks",
    "thank you",
    "love",
    "care",
    "best",
    "grüße",
    "grüßen",
    "cordialement",
    "saludos",
    "atentamente",
    "saluti",
    "abraços",
    "atenciosamente",
)
"""What the line above a signature ends with."""

SMILES = frozenset("👋✌🙏🤗😊🙂😀😃😄😁☺🤝❤💖💕💙💚💛💜🧡😘🥰😇🫶💐🌹")
"""Emoji that are a courtesy by themselves."""

DECORATION = frozenset(
    "✨🌟⭐🎉🎊👍🚀🌞☀🌈💪🥳😉😎🌸🌻🌺🌷🌱🌿🍀🎈👏🙌😍🤩😌😅😂🤣💫🌙🌍🌎🌏🏆🎓🫡☕🍻🥂♥😢😭"
)
"""Emoji that may stand beside a courtesy."""

TELLING = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    " fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty"
    " ninety hundred thousand million half first second third fourth fifth sixth seventh eighth"
    " ninth tenth last not no never none yes cannot cant dont doesnt didnt isnt arent wasnt"
    " werent wont wouldnt couldnt shouldnt havent hasnt hadnt without nor neither higher lower"
    " more less left right up down above below before after north south east west true false in"
    " out on off open closed white black red green blue yellow monday tuesday wednesday thursday"
    " friday saturday sunday eins zwei drei vier fünf sechs sieben acht neun zehn nicht kein"
    " keine nie höher tiefer kleiner größer deux trois quatre cinq sept huit neuf dix pas jamais"
    " dos tres cuatro cinco seis siete ocho nueve diez nunca sin due tre quattro cinque sei"
    " sette otto nove dieci dois quatro sete oito dez não nao non"
)
"""Words that make another statement of a reply that is otherwise the same, such as "not"."""
