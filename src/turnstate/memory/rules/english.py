"""Rules for what English speakers say about themselves."""

from __future__ import annotations

from .rule import Rule, rule

_I = r"\b(?:I|we)(?:'ve|'m|'re| have| am| are|'d)?"
_FILL = (
    r"(?: (?:been|just|finally|recently|actually|now|also|both|really|currently|already|officially|then))*"
)
_NAME = r"(?-i:[A-Z][\w'’-]+(?: [A-Z][\w'’-]+){0,2})"
_PLACE = r"(?:the )?(?-i:[A-Z][\w.'’-]+(?:[ -](?:de|la|el|of|on|am|upon|the|do|da) [A-Z][\w'’-]+|[ -][A-Z][\w'’-]+){0,3})"
_REST = r"[^.!?;,\n]{2,80}?"
_END = r"(?=[.!?;,\n]|$| (?:and|but|because|since|so|when|while|though|after|before|instead)\b)"
_WHO = (
    r"wife|husband|partner|girlfriend|boyfriend|fianc[ée]e?|son|daughter|baby|brother|sister|mother|mom|mum|father|dad|"
    r"boss|manager|doctor|dentist|therapist|roommate|best friend|dog|puppy|cat|kitten|parrot|rabbit|hamster|horse|turtle"
)
_NOT_PLACES = r"(?!(?-i:I|My|This|That|It|A|An|Next|Another)\b)"

ENGLISH: tuple[Rule, ...] = (
    # Who the user is
    rule("name", rf"\bmy name(?:'s| is){_FILL} (?P<value>{_NAME})", "name"),
    rule("name", rf"\b(?:you can |please |just )?call me (?P<value>{_NAME})", "name"),
    rule(
        "name",
        rf"^(?:hi|hello|hey)[,!. ]+(?:I'm|I am|this is) (?P<value>{_NAME})(?=[.!,]|$| and\b| here\b)",
        "name",
    ),
    rule(
        "home",
        rf"{_I}{_FILL} (?:moved|moving|relocated|relocating|settled|resettled|ended up|live|living|based|resided?)"
        rf"{_FILL}(?: (?:back|over|down|up|out|here|away))?(?: to| in| at| into| near)? ?(?:to |in )?{_NOT_PLACES}(?P<value>{_PLACE})",
        "home",
    ),
    rule(
        "home",
        rf"\bmy (?:new |current )?(?:home|apartment|flat|house|place) is (?:now )?in (?P<value>{_PLACE})",
        "home",
    ),
    rule("home", rf"\b(?P<value>{_PLACE}) is (?:my|our) (?:new )?home(?: now)?\b", "home"),
    rule(
        "home",
        rf"\b(?:I|we)(?: do not|'m not| am not| don't| no longer) (?:live|living) in (?P<value>{_PLACE})",
        denies=True,
    ),
    rule(
        "work",
        rf"{_I}{_FILL} (?:work|working|employed|started|starting)(?: at| for| with) (?P<value>{_PLACE})",
        "employer",
    ),
    rule(
        "work",
        rf"\b(?:started|got|have|took|accepted|landed|found) (?:a|my) (?:new )?(?:job|position|role) (?:at|with) (?P<value>{_PLACE})",
        "employer",
    ),
    rule("work", rf"{_I}{_FILL} (?:work|working|worked) as (?:an? |the )?(?P<value>{_REST}){_END}", "job"),
    rule("work", rf"\bmy (?:job|profession|occupation) is (?:an? )?(?P<value>{_REST}){_END}", "job"),
    rule(
        "work",
        r"\bI(?:'m| am) (?:now )?an? (?P<value>(?:\w+ ){0,2}(?:engineer|developer|teacher|nurse|doctor|lawyer|designer|"
        r"student|writer|chef|cook|artist|accountant|researcher|scientist|manager|consultant|architect|pilot|driver|"
        r"musician|photographer|electrician|carpenter|farmer|journalist|translator|analyst|therapist|programmer))\b",
        "job",
    ),
    # People, pets, days
    rule(
        "relation",
        rf"\b(?:my|our) (?P<slot>{_WHO})(?:'s name is| is called| is named|, who is called| named| called|,)? (?P<value>{_NAME})",
        "name of",
    ),
    rule(
        "relation",
        rf"\b(?:have|got|adopted|bought|own) an? (?:\w+ ){{0,2}}(?P<slot>{_WHO})(?:,)? (?:named|called|whose name is) (?P<value>{_NAME})",
        "name of",
    ),
    rule(
        "relation",
        r"\b(?:have|has|got) (?P<value>(?:\w+|\d+) (?:kids|children|sons|daughters|cats|dogs|siblings|brothers|sisters))\b",
    ),
    rule(
        "date",
        rf"\b(?:my|our) (?P<slot>birthday|anniversary|wedding|due date) (?:is|falls) (?:on |in )?(?P<value>{_REST}){_END}",
        "date of",
    ),
    rule("date", rf"\bI was born (?:on|in) (?P<value>{_REST}){_END}", "date of birthday"),
    rule(
        "date",
        rf"\b(?:my|our|the) (?P<slot>(?:\w+ )?(?:flight|appointment|interview|exam|deadline|trip|surgery|meeting|launch|release)) "
        rf"is (?:now )?(?:on|at|scheduled for|due(?: on)?|in) (?P<value>{_REST}){_END}",
        "date of",
    ),
    # Preferences
    rule(
        "preference",
        rf"\bmy (?:all-time )?favou?rite (?P<slot>[\w ]{{2,30}}?) (?:is|are|has to be) (?P<value>{_REST}){_END}",
        "favorite",
    ),
    rule(
        "preference",
        rf"\bI(?:'d)?(?: really| much| always| usually| generally)* prefer (?P<value>{_REST}){_END}",
    ),
    rule(
        "preference",
        rf"\bI(?: really| absolutely| just| also)* (?:like|love|adore|enjoy)(?! (?:it|that|this|them|him|her|you|how|your|to know|to see if)\b) (?P<value>{_REST}){_END}",
    ),
    rule(
        "preference",
        rf"\bI(?: really| absolutely)* (?:hate|dislike|detest|can't stand|cannot stand|don't like|do not like|don't enjoy)(?! (?:it|that|this|them|when)\b) (?P<value>{_REST}){_END}",
        prefix="not ",
    ),
    rule(
        "preference",
        rf"\bI(?: do not| don't| never| can't) (?:eat|drink|have|use) (?P<value>{_REST}){_END}",
        prefix="no ",
    ),
    rule(
        "preference",
        rf"\bI(?:'m| am)(?: severely| very| also)? allergic to (?P<value>{_REST}){_END}",
        prefix="allergic to ",
    ),
    rule(
        "preference",
        r"\bI(?:'m| am)(?: a| now a| now)? (?P<value>vegetarian|vegan|pescatarian|left-handed|colou?r-?blind|lactose intolerant|gluten[- ]free)\b",
    ),
    rule("preference", r"\b(?:please )(?P<value>(?:always|never|don't|do not) [^.!?\n]{3,100})"),
    rule("preference", rf"\bI (?:take|drink|have) my (?P<slot>coffee|tea) (?P<value>{_REST}){_END}", "takes"),
    rule(
        "preference",
        rf"\bI (?:no longer (?:like|love|enjoy)|don't (?:like|love|enjoy)) (?P<value>{_REST})(?: any ?more)?{_END}",
        denies=True,
    ),
    # Decisions, notes, open tasks
    rule(
        "decision",
        r"\b(?:I|we)(?:'ve| have)?(?: just| now| finally)* (?:decided|agreed|settled) (?:to|on|that|against) (?P<value>[^.!?\n]{3,150})",
    ),
    rule(
        "decision",
        r"\b(?:let's|we'll|we will|I'll|I will)(?: just)? (?:go|stick) with (?P<value>[^.!?\n]{2,120})",
    ),
    rule("decision", r"\bthe decision is (?:to |that )?(?P<value>[^.!?\n]{3,150})"),
    rule(
        "note",
        r"\b(?:please )?(?:remember|keep in mind|don't forget|do not forget|note|for the record,?)(?: that| this)?[:,]? (?P<value>(?!me\b|when\b|how\b|to\b|the time\b)[^.!?\n]{4,180})",
    ),
    rule(
        "task",
        r"\b(?:remind me to|I still (?:need|have) to|I (?:need|have) to(?= \w+ \w+)|my next step is to|todo:) ?(?P<value>[^.!?\n]{4,120})",
    ),
)
