"""Rules for what English speakers say about themselves; each begins with the subject of its clause."""

from __future__ import annotations

import re

from .language import Language
from .rule import FactRule, rule

_ADVERB = (
    r"(?: (?:been|just|finally|recently|actually|now|also|both|really|currently|already|officially|then|still|"
    r"always|mostly|usually|mainly|quite|very|so|much|absolutely|totally|generally|(?!hardly|barely|practically|virtually|nearly|scarcely|rarely|supposedly|allegedly|apparently)\w{3,}ly))*"
)
_I = rf"(?:I|we)(?:[’']ve|[’']?m|[’']re| have| am| are)?{_ADVERB}"
_NAME = r"(?-i:(?:(?:Dr|Mr|Mrs|Ms|Prof)\. )?(?!(?:Dr|Mr|Mrs|Ms|Prof)\b)[A-Z][\w’'-]*[\w](?: (?:van |von |de |da |bin |al-)*[A-Z][\w’'-]*[\w]){0,3})"
_FIRST = r"(?-i:[A-Z][\w’-]+)"
_WORD = r"[A-Z][\w’'-]*(?:\.(?=\w)\w+)*"
_PLACE = (
    rf"(?!(?-i:I|My|This|That|It|A|An|Next|Another|The)\b(?! Hague| Bronx))(?:the )?"
    rf"(?-i:(?:St\. |Ft\. |Mt\. )?{_WORD}(?:[ -](?:(?:de|la|el|of|on|am|upon|the|do|da|an der|sur)[ -])?{_WORD}){{0,3}})"
)
_LOWER = r"(?-i:(?=[^A-HJ-Z]*$))(?P<value>(?!here|there|town|fear|hope|peace|sin|poverty|dorms?|flats?|apartments?|exile|denial|isolation)[a-z]{3,})(?= now\b| and\b| with\b|[.!,;\x1f]|$)"
_ORG = rf"(?:the )?(?!(?-i:I|My|This|That|It|A|An)\b)(?-i:(?:St\. )?{_WORD}(?:(?: of| de| and| &)? {_WORD}){{0,4}})"
_CHAR = r"(?:[^!?;,:\n\x1f.]|\.(?=\S)|:(?=\d))"
_REST = rf"{_CHAR}{{2,80}}?"
_STOP = r"and|but|because|since|so|when|while|though|although|after|before|instead|unless|if|as well|anyway|lately|too|now|last (?:week|month|year|spring|summer|fall|winter|night)|this (?:week|month|year|morning)|yesterday|recently|every (?:day|week|morning|evening|year)|in \d\d\d\d|very much|so much|a lot|the most|these days|at the moment|nowadays"
_END = rf"(?=[!?;,\x1f\n]|:(?!\d)|\.(?:\s|$)|$| (?:{_STOP})\b)"
_LIST = rf"(?:{_CHAR}{{2,40}}?(?:, {_CHAR}{{2,30}}?)*,? (?:and|or) {_CHAR}{{2,30}}?|{_REST})"
_SEVERAL = re.compile(r",? (?:and|or) |, ")
_FULL = r"(?=[!?\n\x1f]|\.(?:\s|$)|$)"
_LONG = r"[^!?\n]{3,150}?(?=[!?\n]|\.(?:\s|$)|$)"
_WHO = (
    r"wife|husband|partner|girlfriend|boyfriend|fianc[ée]e?|son|daughter|baby|brother|sister|mother|mom|mum|father|dad|"
    r"boss|manager|doctor|dentist|therapist|roommate|best friend|dog|puppy|cat|kitten|parrot|rabbit|hamster|horse|turtle"
)
_JOB = (
    r"(?:(?!(?:at|the|of|with|for|in|to|from|about)\b)[\w-]+ ){0,3}?(?:engineer|developer|teacher|nurse|doctor|lawyer|designer|student|writer|chef|cook|baker|"
    r"artist|accountant|researcher|scientist|manager|consultant|architect|pilot|driver|photographer|carpenter|"
    r"farmer|journalist|translator|interpreter|analyst|therapist|programmer|plumber|professor|lecturer|surgeon|"
    r"dentist|pharmacist|physicist|chemist|economist|mechanic|librarian|editor|author|actor|actress|singer|dancer|"
    r"painter|producer|waiter|waitress|cashier|secretary|officer|firefighter|paramedic|soldier|veterinarian|vet|"
    r"midwife|social worker|tailor|barber|hairdresser|florist|gardener|attorney|banker|broker|realtor|freelancer|"
    r"entrepreneur|intern|postdoc|barista|coach|instructor|tutor|principal|recruiter|courier|judge|copywriter|"
    r"\w+(?:ologist|ician|wright|ographer))"
)
_DIET = (
    r"vegetarian|vegan|pescatarian|colou?r-?blind|lactose[- ]intolerant|gluten[- ](?:free|intolerant)|diabetic|"
    r"c(?:o)?eliac|asthmatic|epileptic|deaf|pregnant|anemic|hard of hearing|visually impaired"
)
_ILLNESS = (
    r"(?:[\w-]+ ){0,2}?(?:diabetes|asthma|epilepsy|migraines?|arthritis|hypertension|high blood pressure|adhd|autism|"
    r"anxiety|depression|cancer|eczema|hay fever|[\w-]+ (?:disease|syndrome|disorder|intolerance|allergy|condition))"
)
_NATION = r"(?!(?-i:\w+(?:ish|ese|ean)|French|German|Dutch|Greek|Swiss|Italian|American|Canadian|Indian|Russian|Jewish|Catholic|Muslim)\b)"
_EVENT = r"(?:\w+ )?(?:flight|train|appointment|interview|exam|deadline|trip|surgery|meeting|launch|release|wedding|party|concert)"
_WHEN = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:jan|feb|mar|apr|may|june?|july?|aug|sep|oct|nov|dec)(?![a-z]*day)|tomorrow|today|tonight|next|this|in (?:an?|two|three|\d)"
_ANSWERING = (
    "use|answer|reply|respond|write|speak|talk|explain|give|show|include|add|format|address|call me|avoid|be|start|begin|end|cite|"
    "translate|summari[sz]e|ask|check|book|choose|pick|offer|suggest|recommend|remind|put|keep|list|tell|say|mention|round|convert|"
    "quote|link|confirm|propose|provide|assume|prefix|test|commit"
)
_STANDING = r"(?:(?!\b(?:this|the following) (?:link|file|page|command)\b)[^!?\n\x1f])"
_NOT_LIKED = (
    r"(?! ?(?:it|this|that|these|those|them|him|her|you|your|his|their|my|our|how|when|what|where|if|one|both|here|there|"
    r"to (?:know|see|ask|think|say|point)|to(?= *[.!,\x1f]|$)|the|being|having to|waiting|getting)\b)"
)
_LIKE = r"(?:like|love|adore|enjoy|prefer)"

_RULES: tuple[FactRule, ...] = (
    # Who the user is
    rule("name", rf"my (?:full |real |first |legal |actual )?name(?:[’']s| is){_ADVERB} (?P<value>{_NAME})", "name"),
    rule("name", rf"I(?:[’']?m| am) {_NATION}(?P<value>{_NAME})(?=,? (?:an?|the|from)\b|,? ?\x1f[, ]*(?:but |and )?(?:please |you can |just |so )?(?:everyone |everybody |people |friends |my friends )?calls? me)", "name"),
    rule("name", r"my name(?:[’']s| is) (?P<value>(?!not\b|on\b|in\b|the\b|an?\b|too\b|very\b|of\b|hard\b|being\b|still\b|also\b|\w+(?:ed|lly)\b)[a-z]{2,15})(?=[.!,\x1f]|$| and\b)", "name"),
    rule("name", rf"I(?:[’']?m| am) (?!(?-i:\w+(?:ian|can)\b)){_NATION}(?=(?-i:[A-Z][a-z]))(?P<value>{_NAME})(?=[.!,]? *$|[.!\x1f]| and\b| here\b| from\b| by the way\b)", "name"),
    rule("name", rf"this is (?P<value>{_NAME})(?= here\b| speaking\b)", "name"),
    rule("name", rf"(?:(?:you can|please|just|feel free to|I want you to|I[’']d like you to) )*call me (?P<value>{_NAME})", "nickname"),
    rule("name", rf"(?:everyone|everybody|people|(?:my |all my |most of my )?friends|most people|they all|my \w+)(?: just| usually| all)* calls? me (?P<value>{_NAME})", "nickname", of_anyone=True),
    rule("name", rf"(?:I(?: usually| mostly)? go by|my nickname(?:[’']s| is)|I(?:[’']?m| am) (?:better )?known as) (?P<value>{_NAME})", "nickname"),
    rule("home", rf"{_I} (?:live|living|reside|residing|based|settled)(?: (?:here|back|over|down|up|out|alone|together|happily|with my \w+))* (?:in|near|at) (?P<value>{_PLACE})", "home"),
    rule("home", rf"{_I} (?:moved|relocated|resettled)(?: (?:back|over|down|up|out|away|house|home|again))*(?: from {_PLACE})?(?: back| over)* (?:to|into) (?P<value>{_PLACE})", "home"),
    rule("home", rf"{_I} (?:live|living|based|moved)(?: back| over)* (?:in|to) {_LOWER}", "home"),
    rule("home", rf"{_I} ended up in (?P<value>{_PLACE})(?! (?:hospital|court|jail)\b)", "home"),
    rule("home", rf"my (?:new |current )*(?:home|apartment|flat|house|place) is (?:now )?in (?P<value>{_PLACE})", "home"),
    rule("home", rf"(?:my )?home is (?:now )?(?P<value>{_PLACE})", "home"),
    rule("home", rf"(?P<value>{_PLACE}) is (?:now )?(?:my|our) (?:new )?home\b", "home"),
    rule("home", rf"{_I} call (?P<value>{_PLACE}) home", "home"),
    rule("home", rf"(?:I|we)(?:[’']ve| have){_ADVERB} lived (?:here )?in (?P<value>{_PLACE})(?=[^\x1f]*\b(?:since|for|all my life|my whole life)\b)", "home"),
    rule("home", rf"(?:I|we)(?: do not| don[’']t|[’']?m not| am not|[’']re not| are not| no longer| used to|[’']ve never| have never| never)(?: actually| really| currently)* (?:live|living|lived) in (?P<value>{_PLACE})", denies=True),
    rule("home", rf"(?:I|we)(?:[’']ve| have)?{_ADVERB} moved (?:away from|out of) (?P<value>{_PLACE})", denies=True),
    rule("fact", rf"I was born(?: and (?:raised|grew up|bred))? in (?P<value>{_PLACE})", "birthplace"),
    rule("fact", rf"I (?:originally (?:come|am)|come originally) from (?P<value>{_PLACE})", "birthplace"),
    rule("fact", rf"I(?:[’']?m| am| come)(?: originally)? from (?P<value>{_PLACE})", "birthplace"),
    rule("fact", rf"(?:I was born in|I(?:[’']?m| am) (?:originally )?from) {_LOWER}", "birthplace"),
    rule("fact", r"I(?:[’']?m| am)(?: now)? (?P<value>\d{1,2})(?: years old| yo\b|-year-old)", "age"),
    rule("fact", r"I(?:[’']?m| am)(?: now| happily| recently| newly| already)* (?P<value>married|single|divorced|widowed|engaged|retired|left-handed)(?=[.!,;\x1f]|$| (?:and|but|with|to|since)\b)"),
    rule("fact", r"my (?:work |personal |private |new )*(?P<slot>e-?mail|phone|website|handle|username)(?: address| number)? is (?P<value>[^\s,;]*[\w\d](?:[ -]\d+)*)(?=[.,;!\x1f]|\s|$)"),
    rule("fact", rf"my home ?town is (?P<value>{_PLACE})", "birthplace"),
    rule("work", rf"{_I} (?:work|working|employed|interning|intern)(?: (?:part[- ]time|full[- ]time|remotely))?(?: at| for) (?P<value>{_ORG})", "employer"),
    rule("work", rf"{_I} (?:started at|started working (?:at|for)) (?P<value>{_ORG})", "employer"),
    rule("work", rf"{_I} (?:started|got|have|took|accepted|landed|found) (?:a|my) (?:new )?(?:job|position|role|internship) (?:at|with) (?P<value>{_ORG})", "employer"),
    rule("work", rf"my (?:new |current )?employer is (?P<value>{_ORG})", "employer"),
    rule("work", rf"(?:I|we)(?:[’']ve| have)?{_ADVERB} (?:left|quit|resigned from|no longer work (?:at|for)|don[’']t work (?:at|for)|do not work (?:at|for)|used to work (?:at|for)|stopped working (?:at|for)) (?P<value>{_ORG})", denies=True),
    rule("work", rf"{_I} (?:work|working) as (?:an? |the )?(?P<value>{_REST})(?= (?:in|at|for|with)\b|{_END[3:-1]})", "job"),
    rule("work", r"I(?:[’']?m| am)(?: now)?(?: an?| the)? (?P<value>ceo|cto|cfo|coo|(?:co-?)?founder|director|president|owner)(?= (?:of|at)\b)", "job"),
    rule("work", rf"my (?:job|profession|occupation) is (?:an? )?(?P<value>{_REST}){_END}", "job"),
    rule("work", rf"I(?:[’']?m| am|[’']ve been| have been){_ADVERB} an? (?P<value>{_JOB})\b(?! (?:of|at heart)|[’'])", "job"),
    rule("work", rf"I(?:[’']?m| am) {_NATION}{_NAME},? an? (?P<value>{_JOB})\b", "job"),
    rule("work", rf"I(?:[’']?m| am)(?: not| no longer) an? (?P<value>{_JOB})\b", denies=True),
    # People, pets, days
    rule("relation", rf"(?:my|our) (?P<slot>{_WHO})(?:[’']s name is| is called| is named|,? who is called| named| called|,)? (?!(?-i:I|Is|Was|Has)\b)(?P<value>{_NAME})", "name of", of_anyone=True),
    rule("relation", rf"(?:I|we)(?:[’']ve| have)?{_ADVERB} (?:have|got|adopted|bought|own) an? (?:[\w-]+ ){{0,2}}(?P<slot>{_WHO})(?:,)? (?:named|called|whose name is) (?P<value>{_NAME})", "name of"),
    rule("relation", rf"(?:I|we) have [^.!?;\x1f]{{3,40}} and an? (?:[\w-]+ )?(?P<slot>{_WHO}),? (?:named|called) (?P<value>{_NAME})", "name of"),
    rule("relation", rf"(?:my|our) (?:two |three |four )?(?P<slot>kids|children|sons|daughters|cats|dogs|parents|brothers|sisters|twins)(?:,| are| are called| are named| named| called) (?P<value>{_FIRST}(?:, {_FIRST})*,? and {_FIRST})", "names of"),
    rule("relation", r"(?:I|we)(?:[’']ve| have)?(?: got)? (?:have )?(?P<value>(?:two|three|four|five|six|\d+) (?:kids|children|sons|daughters|cats|dogs|siblings|brothers|sisters))\b"),
    rule("relation", rf"(?:I|we)(?: don[’']t| do not| no longer) have (?:an? |our |my )?(?P<value>{_WHO})\b", denies=True),
    rule("date", rf"(?:my|our) (?P<slot>birthday|anniversary|due date) (?:is|falls) (?:on |in )?(?P<value>{_REST}){_END}", "date of"),
    rule("date", r"I was born (?:on|in) (?P<value>(?:[\w,]+ ){0,3}?\d[\w,]*(?: \w+)??(?:,? \d{4})?)(?= in\b|,|[.!?;\n\x1f]|$)", "date of birthday"),
    rule("date", rf"(?:my|our|the) (?P<slot>{_EVENT})(?: (?:to|from|with|at|for) [\w. ]{{2,25}}?)?(?: is| has been| leaves| departs| starts| got| was(?= moved| rescheduled| postponed| pushed| brought))(?: now)?(?: (?:moved|rescheduled|postponed|pushed|brought forward|scheduled|due|set))?(?: (?:on|at|to|for|in))? (?P<value>(?=\d|[^,.;]{{0,12}}\b(?:{_WHEN})){_REST}){_END}", "date of", passes=True),
    rule("date", rf"(?:I|we)(?: have|[’']ve got)(?: got)? (?:an? |my |our )?(?P<slot>{_EVENT}) (?:on |at |scheduled for )?(?P<value>(?=\d|[^,.;]{{0,12}}\b(?:{_WHEN}))(?:on |at )?{_REST}){_END}", "date of", passes=True),
    # Preferences and health
    rule("preference", rf"my (?:all-time )?favou?rite (?P<slot>[\w ]{{2,30}}?) (?:is|are|has to be|would be) (?P<value>{_REST}){_END}", "favorite"),
    rule("preference", rf"(?:my (?:biggest |main |favorite |favourite )?(?:hobby|hobbies|passion) (?:is|are)) (?P<value>{_LIST}){_END}", several=_SEVERAL),
    rule("preference", rf"(?:I|we){_ADVERB} {_LIKE}{_NOT_LIKED} (?P<value>{_LIST}){_END}", several=_SEVERAL),
    rule("preference", rf"I(?:[’']d| would)(?: much| really)? (?:prefer|rather have){_NOT_LIKED} (?P<value>{_REST}){_END}"),
    rule("preference", rf"I(?:[’']?m| am){_ADVERB} (?:an? (?:big |huge )?fan of|(?:big )?into|fond of|crazy about|passionate about|keen on){_NOT_LIKED} (?P<value>{_LIST}){_END}", several=_SEVERAL),
    rule("preference", rf"I{_ADVERB} (?:hate|dislike|detest|loathe|(?:can[’']t|cannot) (?:stand|bear)|(?:don[’']t|do not)(?: really| particularly)? (?:like|enjoy|care for)){_NOT_LIKED} (?P<value>{_LIST})(?: any ?more| any longer| at all| much| very much| that much| a lot)?{_END}", prefix="not ", several=_SEVERAL),
    rule("preference", rf"I(?:[’']?m| am) not (?:an? (?:big )?fan of|(?:really )?into|fond of|keen on){_NOT_LIKED} (?P<value>{_REST}){_END}", prefix="not "),
    rule("preference", rf"I(?: do not| don[’']t| never| can[’']t| cannot)(?: really)? (?:eat|drink|smoke|wear) (?P<value>{_LIST})(?: any ?more| any longer| at all| much| very much| that much| a lot)?{_END}", prefix="no ", several=_SEVERAL),
    rule("preference", rf"I no longer (?:like|love|enjoy|eat|drink|play) (?P<value>{_REST}){_END}", denies=True),
    rule("preference", rf"I(?:[’']ve| have)?{_ADVERB} (?:stopped|quit|given up|gave up) (?:(?:eating|drinking|playing) )?(?P<value>{_REST}){_END}", denies=True),
    rule("preference", rf"I (?:take|drink|have) my (?P<slot>coffee|tea) (?P<value>{_REST}){_END}", "takes"),
    rule("fact", r"I(?: can)?(?: also)? (?P<value>(?:speak|play) (?!with|by|for|to|about|of|it|that|this|a lot)[\w ,]{3,40}?)" + _END),
    rule("health", rf"I(?:[’']?m| am){_ADVERB} allergic to (?!nothing\b|anything\b|everything\b|it\b|that\b|this\b|them\b|some\b|certain\b)(?P<value>{_LIST}){_END}", prefix="allergic to ", several=_SEVERAL),
    rule("health", rf"(?:I|we)(?:[’']?m|[’']re| am| are)(?: an?| now an?| now| strictly| both)*{_ADVERB} (?P<value>{_DIET})s?\b"),
    rule("health", rf"I{_ADVERB} (?:have|suffer from|was diagnosed with|[’']ve (?:got|been diagnosed with))(?: an?)? (?P<value>(?!an? |no |any |the |this |that |some ){_ILLNESS})\b"),
    rule("health", r"I(?: only)? (?:eat|keep) (?P<value>kosher|halal)\b"),
    rule("health", rf"I(?:[’']?m| am)(?: not| no longer) allergic to (?P<value>{_REST})(?: any ?more| after all| at all)?{_END}", denies=True, prefix="allergic to "),
    rule("health", rf"I(?:[’']?m| am)(?: not| no longer)(?: an?)? (?P<value>{_DIET})\b", denies=True),
    # Wishes, decisions, notes, open tasks
    rule("wish", rf"(?P<value>(?:always|never) (?:{_ANSWERING})\b{_STANDING}{{2,100}}?){_FULL}"),
    rule("wish", rf"(?:(?:please|from now on|in (?:the )?future|going forward)[, ]+)+(?P<value>(?:always|never) {_STANDING}{{3,100}}?){_FULL}"),
    rule("wish", r"(?:please[, ]+)?(?:from now on|in (?:the )?future|going forward|whenever you [\w ]{3,30})[, \x1f]+(?:please )?(?P<value>(?!I\b|we\b|my\b|you\b|it\b|the\b)[^!?\n\x1f]{3,100}?)" + _FULL),
    rule("wish", r"please (?P<value>(?:don[’']t|do not|only|stop) (?:us(?:e|ing)|call(?:ing)?|add(?:ing)?|includ(?:e|ing)|writ(?:e|ing)|answer(?:ing)?|reply(?:ing)?|respond(?:ing)?|explain(?:ing)?|apologi[sz](?:e|ing)|suggest(?:ing)?|recommend(?:ing)?) [^!?\n\x1f]{2,80}?)" + _FULL),
    rule("wish", rf"(?:please )?(?P<value>(?:{_ANSWERING})\b{_STANDING}{{2,80}}?),? from now on{_FULL}"),
    rule("wish", rf"please (?P<value>(?:keep|make) your (?:answers|replies|responses|explanations|messages)\b{_STANDING}{{2,60}}?){_FULL}"),
    rule("decision", r"(?:I|we)(?:[’']ve| have)?(?: just| now| finally)* (?:decided|agreed|settled) (?:to|on|that|against|not to) (?P<value>[^.!?\n]{3,150})"),
    rule("decision", r"(?:let[’']s|we[’']ll|we will|I[’']ll|I will)(?: just)? (?:go|stick) with (?P<value>[^.!?\n]{2,120})"),
    rule("decision", r"the decision is (?:to |that )?(?P<value>[^.!?\n]{3,150})"),
    rule("note", rf"(?:(?:please|also) )*(?:remember|keep in mind|don[’']t forget|do not forget|for the record)(?: that| this)?(?:[:,]|(?<=that)|(?<=this)|(?= (?:my|our|I|we|I[’']?m|the)\b)) ?(?P<value>(?! *(?:me\b|when\b|how\b|to\b|the time\b|you\b|your\b|it\b|this\b|if\b|us\b|just\b|my \w+[.!]?$)){_LONG})"),
    rule("task", rf"(?:(?:please|also) )*(?:remind me to|my next step is to|todo:|don[’']t let me forget to) ?(?P<value>{_LONG})"),
    rule("task", rf"(?:I|we) still (?:need|have|[’']ve got) to (?P<value>{_LONG})"),
    rule("task", rf"(?:I|we)(?:[’']ve got to| have to| need to| must) (?!(?:know|say|admit|go|ask|see)\b)(?P<value>{_LONG})", timed=True),
    rule("task", rf"(?:I|we)(?: don[’']t| do not| no longer)(?: need| have) to (?P<value>{_REST})(?: any ?more| any longer)?{_END}", denies=True),
)  # fmt: skip

_BEGIN = r"(?:I|we|my|our|you|your|he|she|it|they|his|her|their|its|this|that|these|those|there|the|who|which|please|call|(?:don[’']t|isn[’']t|aren[’']t|wouldn[’']t|can|could|do|does|did|is|are|will|would|should|may|what|which|where|when|how) (?:I|we|you|it|there|the|that|this|is|are|do|can|should|much|many)|remember|everyone|everybody|people|(?-i:[A-Z]\w+) (?:is|was|has|lives|works|likes|loves|said|says))\b(?![’']?s? (?:hague)\b)"
_VERBS = r"(?:live|work|love|hate|have|am|moved|need|prefer|speak|play|enjoy|was born|grew up|started|joined|left|can[’']t stand|don[’']t (?:like|eat|drink)|still (?:need|have) to)\b"
_TIME = r"(?:(?:these|those) days|at the moment|right now|(?:last|this|next) (?:week|weekend|month|year|spring|summer|fall|autumn|winter|\w+day)|in (?:\d{4}|(?-i:[A-Z])\w+)|since (?:\d{4}|(?-i:[A-Z])\w+|then|(?:the |last )(?:\w+ )?(?:spring|summer|fall|autumn|winter|week|month|year))|(?:\w+ ){1,3}ago|now|today|nowadays|on \w+day|(?:by|before) (?:next |this |the end of (?:the |this )?)?\w+(?=,? (?:I|we)\b))"

ENGLISH = Language(
    rules=_RULES,
    boundary=(
        rf"[;–—]| - |,? (?=(?:but|because|although|though|while|whereas|since (?:I|we|my)|so (?:I|we|my|please|keep|don)|unless|if|when|except)\b)"
        rf"|,? (?:and|or) (?=(?:{_TIME},? |\w+ly |also |now |then |still )*(?:{_BEGIN}|{_VERBS}))"
        rf"|, (?=(?:{_TIME},? |\w+ly |also |now |then |still )*(?:{_BEGIN}|{_VERBS}))"
    ),
    lead=(
        rf"[\s,;:–—.-]*(?:(?:{_TIME}|and|but|or|so|because|since|as|that|although|though|well|oh|yes|yeah|no|ok|okay|hi|hello|hey|hey there|hi there|hi everyone|"
        r"thanks|thank you|btw|fyi|also|plus|actually|honestly|anyway|anyways|both of|all of|by the way|for the record|"
        r"just so you know|as you know|in fact|to be honest|I think|I guess|I mean|I should (?:say|mention)(?: that)?|you know|"
        rf"just to let you know|for context|then|still(?= [a-z]+ I)|(?!only|family|italy|july|lily|emily|sally|molly|kelly|holly|billy|reply|apply|supply)\w{{3,}}ly|{_TIME})(?![’'\w])[,!:.]* *)*"
    ),
    material=(
        r"\b(?:translat\w+|proofread\w*|correct|summari[sz]\w+|rewrit\w+|rephras\w+|paraphras\w+|edit|polish|review|improve|fill (?:in|out)|"
        r"complete|shorten|analy[sz]e|classify|writ(?:e|ing)|draft\w*|compos\w+|generate|reply to|respond to|check|fix|explain|read|parse|extract|convert)\b"
        r"[^.!?\n]*(?::|\b(?:this|these|the following|below|my|an?|the) (?:\w+ ){0,2}(?:text|email|e-mail|letter|message|essay|paragraph|sentences?|bio|"
        r"post|story|poem|cv|résumé|resume|template|speech|review|transcript|dialog(?:ue)?|lyrics|song|form|profile|article|quote|json|log|conversation|note)\b)"
        r"|\b(?:this|the following) (?:sentence|phrase|text|paragraph|translation)\b[^.!\n]*\?"
        r"|\b(?:here(?:[’']s| is| are)|below is|this is|see|got|received)\b[^.!?\n]*\b(?:text|draft|email|letter|message|template|transcript|reply|review|story|post|example)\b[^.!?\n]*:"
    ),
    frame=r"^(?:(?:now|please|ok|so|let[’']s)[, ]+)*(?:imagine|pretend|suppose|supposing|assum(?:e|ing)|role-?play|play the role|act as|say(?: that)? I|let[’']s (?:say|pretend|imagine)|you are (?:now )?(?:an?|the)|picture this|hypothetically)\b|\bin (?:my|the|this) (?:story|novel|game|dream|book|screenplay|play|scenario)\b|\bmy character\b",
    jest=r"\b(?:just kidding|only kidding|i[’']?m kidding|kidding!|jk|just joking|i[’']?m joking|not really|(?:only|just) a joke)\b",
    opens=rf"(?:I|im|we|my|our|please|{_ANSWERING}|always|never|from now|in (?:the )?future|going|whenever|call|just|you can|feel|let|the|todo|don[’']t|do not|remember|keep|also|for the record|home|this is|remind|my next|everyone|everybody|people|friends|all my|most|they all|(?-i:[A-Z][^\x1f]* is (?:now )?(?:my|our)))\b",
    unreal=(
        r"^(?:and |but |well, )?(?:(?:even |only |as )?if (?:I|we|my)\b|what if\b|were I\b)|\bif (?:I|we) (?:were|had|lived|worked|was|could)\b|\bas if\b|/s\s*$|\bsarcas|"
        r"^(?:oh|ah|wow)[, ]+(?:sure|great|right|yes|yeah|joy|wonderful|fantastic|how|I just)\b|^yeah,? (?:right|sure|because)\b|^(?:sure|right|great),? (?:I|because)\b|"
        r"\bI (?:just |simply |absolutely |really |so )+(?:love|adore|enjoy) (?:it when|how|when)\b|"
        r"^(?:he|she|they|someone|somebody|(?:my|our|the|a|an) [\w ]{2,30}|(?-i:[A-Z]\w+)) (?:just |always |also )?(?:say|says|said|told|tells|wrote|writes|asked|asks|claims?|claimed|think|thinks|believes?|texted|answered|replied|mentioned)\b|\bnot true that\b|\bnobody\b|\bno one\b"
    ),
    unsure=r"^(?:if|unless|whether|when I was|when we were)\b|\b(?:I|we|my|our)\b[^,]{0,20}?(?<!n[’']t )\b(?:might|(?-i:may)|could|would(?! (?:much |really )?(?:prefer|rather))|wish|hope to|hoping to|want to|wants to|plan to|planning to|thinking (?:of|about)|considering|going to|gonna|almost|nearly|probably|maybe|perhaps|dream of|(?:not|n[’']t) sure)\b|\b(?:maybe|perhaps|supposedly|apparently|allegedly)\b",
    asks=r"^(?:(?:so|and|but|ok|okay|hi|hello|hey|well|please|also)[,!]? )*(?:do|does|did|is|are|was|were|am|can|could|would|will|should|shall|may|might|have|has|had|what|who|whom|whose|which|where|when|why|how|isn[’']t|aren[’']t|don[’']t|doesn[’']t|won[’']t|can[’']t|any|if|remember)\b",
    passing=r"^(?!.*\b(?:moved|relocated)\b).*\b(?:until|till|temporarily|for (?:the|this) (?:summer|winter|week|weekend|month|season|semester)|for (?:a|the next) (?:few )?(?:days?|weeks?|months?)|this (?:week|weekend|month)|for a (?:fair|conference|visit)|on (?:vacation|holiday|a trip))\b",
    others=r"(?!)",
    own=r"(?:I|we|im)\b",
    ellipsis=_VERBS,
    subject="I ",
    negated="",
    contrast=r"(?:,(?: and| but)?| and|;| [-–—]) not (?:in |at |on |for |an? |the )?(?P<old>(?!really|yet|sure|only|just|so|very|too|that|much|because|to |for |even|at all|anymore|any more|like|my |your |his |her |their )[^,.;!?\n]{1,40}?)(?=[.!;\n]?\s*$)(?<!any more)(?<!anymore)(?<!at all)",
    correction=r"(?=[^.!?]{0,40}\b(?:sorry|no|nope|wait|oops|correction|scratch that|strike that|my mistake|I mean|I meant|rather|make that|actually|should be|typo)\b)(?:(?:oh|ah|sorry|no|nope|wait|hang on|hold on|oops|correction|scratch that|strike that|my mistake|I misspoke|actually|well|I mean|I meant(?: to say| to write)?|typo|or rather)[\s,.:;!–—-]+)+",
    restated=r"(?:(?:and |but )?(?:it|that|he|she|this)(?:[’']s| is| was| should be) |(?:his|her|its|the (?:right )?)name(?:[’']s| is) |make (?:that|it) |spelled |written |in |at |on |I meant |I mean |called )*(?:(?:actually|really|now|on|in|at|called) )*(?P<value>(?!spelled\b|written\b|I\b|we\b|my\b|it\b|that\b|this\b|you\b|the \w+ is\b|\w+ing\b|thanks?\b|never\b|sorry\b|please\b|what\b|how\b)[^\s,.;!?]+(?: [^\s,.;!?]+){0,3})[.!]?$",
    dislikes=("not ", "no "),
    vague=r"\b(?:it|them|him|her|you|your|this|that|these|those|there|here)\b",
)  # fmt: skip
