"""Rules for what Chinese speakers say about themselves."""

from __future__ import annotations

from .rule import Rule, rule

_PLACE = "(?P<value>[\u4e00-\u9fffA-Za-z·]{1,12}?)"
_PLACE_END = "(?=了|住|来|去|工作|生活|定居|，|。|！|,|\\.|、|；|$|已经|的|因为|和|跟|，)"
_THING = "(?P<value>[^，。！？、；\\s]{1,24}?)"
_THING_END = "(?=，|。|！|、|；|\\s|$|了。|了，)"
_NAME = "(?P<value>[\u4e00-\u9fffA-Za-z·]{1,12}?)"
_WHO = (
    "妻子|老婆|太太|丈夫|老公|女朋友|男朋友|儿子|女儿|妈妈|爸爸|母亲|父亲|哥哥|姐姐|弟弟|妹妹|"
    "狗|小狗|猫|小猫|猫咪|狗狗|兔子|老板|同事|朋友"
)
_JOB = "[\u4e00-\u9fff]{0,7}(?:师|员|生|家|工|护士|博士|教授|司机|记者|学者|作者|编辑|歌手|农民|警察|经理|秘书|会计)"

CHINESE: tuple[Rule, ...] = (
    rule("name", f"我(?:的名字)?(?:叫做?|的名字是){_NAME}{_THING_END}", "name"),
    rule("name", f"(?:请|可以)?叫我{_NAME}(?:就好|就行|吧|即可){{0,1}}{_THING_END}", "name"),
    rule("home", f"(?:搬家?|迁|移居)(?:到|去|来|至|往)了?{_PLACE}{_PLACE_END}", "home"),
    rule(
        "home",
        f"(?:我|我们|我家)(?:现在|目前|如今|一直|已经)?(?:就)?(?:住在|定居在?|居住在|生活在){_PLACE}{_PLACE_END}",
        "home",
    ),
    rule("home", f"我(?:们)?(?:已经)?不(?:再)?住在{_PLACE}{_PLACE_END}", denies=True),
    rule(
        "work", "我(?:现在|目前)?在(?P<value>[\u4e00-\u9fffA-Za-z]{2,16}?)(?:工作|上班|任职|当)", "employer"
    ),
    rule(
        "work",
        f"我(?:(?:现在|目前)?(?:叫|住在|来自|今年)[^，。！？]{{1,16}}，)?(?:现在|目前)?(?:是|当)(?:一名|一个|一位|名|个)?(?P<value>{_JOB})(?=，|。|！|,|$)",
        "job",
    ),
    rule("work", f"我的(?:工作|职业)是{_THING}{_THING_END}", "job"),
    rule(
        "relation", f"我(?:的|家的|家)?(?P<slot>{_WHO})(?:的名字)?(?:叫做?|是){_NAME}{_THING_END}", "name of"
    ),
    rule(
        "relation",
        f"(?:养了|有)一?[只条个](?:[\u4e00-\u9fff]{{0,4}})?(?P<slot>狗|猫|兔子)[，,]?(?:名字)?叫{_NAME}{_THING_END}",
        "name of",
    ),
    rule(
        "date",
        r"我?(?:的)?(?P<slot>生日|纪念日|结婚纪念日)(?:是|在)(?P<value>(?:\d{4}年)?\d{1,2}月\d{1,2}[日号]?)",
        "date of",
    ),
    rule(
        "date",
        r"(?P<slot>截止日期|面试|考试|航班|会议|预约)(?:是|在|定在|改到)(?P<value>(?:\d{4}年)?(?:下个?月|下周)?\d{0,2}[月日号周星期][^，。]{0,8})",
        "date of",
    ),
    rule("preference", f"我最(?:喜欢|爱)的(?P<slot>[^是，。]{{1,8}})是{_THING}{_THING_END}", "favorite"),
    rule(
        "preference",
        f"我(?:一直|也|还|特别|非常|很|真的|最|更)*(?:喜欢|爱吃|爱喝|爱看|爱听|偏爱|热爱)(?!的){_THING}{_THING_END}",
    ),
    rule(
        "preference",
        f"我(?:一直|也|特别|非常|很|真的)*(?:不喜欢|讨厌|受不了|不爱吃|不爱喝){_THING}{_THING_END}",
        prefix="不喜欢",
    ),
    rule("preference", f"我(?:从)?不(?:吃|喝|抽){_THING}{_THING_END}", prefix="不吃或不喝"),
    rule("preference", "我对(?P<value>[^，。！？、；\\s]{1,16}?)过敏", prefix="过敏: "),
    rule("preference", f"我(?:已经)?不再(?:喜欢|爱吃|爱喝){_THING}{_THING_END}", denies=True),
    rule("preference", "请(?P<value>(?:总是|一直|每次都|不要|别|务必)[^，。！？]{2,40})"),
    rule(
        "decision",
        "(?:我|我们|大家)(?:已经|最后|最终|刚刚)?(?:决定|商定|说好)(?:了|要)?(?P<value>[^。！？]{2,60})",
    ),
    rule("decision", "(?:那|就)(?:用|选|按)(?P<value>[^，。！？]{2,30})(?:吧|了)"),
    rule(
        "note",
        "(?:请|要)?(?:记住|记得|别忘了|不要忘记|帮我记一下|记一下)[，,：: ]?(?P<value>[^。！？]{3,80})",
    ),
    rule("task", "我(?:还|还是)?(?:得|需要|必须|还要)(?P<value>[^，。！？]{3,40})"),
)
