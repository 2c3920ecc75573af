"""Words that keep a conversation going and say nothing: greetings, thanks, agreement, "please continue".

A message of such words alone asks nothing, and a turn of such words answers nothing. They are listed for
English, Japanese and Chinese; what is left of a text without them decides whether it has content.
"""

# ruff: noqa: E501 - a line is a family of phrases

from __future__ import annotations

import re
from functools import cache
from unicodedata import normalize

from .terms import terms

_ENGLISH_WORDS = """
ok okay okey okie kk thanks thank thx ty cheers please pls plz yes yeah yep yup yea ya aye sure nope nah right
alright fine good great nice cool awesome perfect excellent wonderful fantastic amazing lovely brilliant super
splendid superb neat hi hello hey hiya greetings bye goodbye cya hmm hm mm mhm uh um oh ah aha wow yay hooray ha
haha hehe lol lmao rofl sorry apologies pardon welcome understood gotcha noted agreed agree exactly indeed
interesting impressive funny clever smart useful helpful easy clear simple strange weird odd surprising exciting
inspiring delightful beautiful incredible unbelievable crazy terrible true false lucky possible impossible sad bad
nevermind whoa phew oops ouch yikes hurray congrats congratulations finally obviously basically honestly literally
seriously probably possibly likely hopefully unfortunately fortunately luckily frankly almost nearly quite pretty
absolutely definitely certainly totally again yet thing things stuff correct really actually maybe perhaps confirm confirmed u appreciate appreciated proceed
continue much well let let's lets glad anyway done ready
"""

_ENGLISH_QUESTIONS = r"""
how(?: a|'|’)re you(?: doing)?(?: today)?
how(?: i|'|’)s (?:it going|everything|life)
what(?: i|'|’)s up
what else
"""

_ENGLISH_PHRASES = r"""
(?:go|carry|move|keep) (?:ahead|on|going)
(?:happy|merry) (?:new year|birthday|holidays|christmas)
(?:good|have an? (?:good|nice|great|lovely|wonderful)|happy) (?:morning|afternoon|evening|night|day|one|weekend|week|time)
nice to (?:meet|see|hear from) you
(?:see|talk to|speak to|catch) (?:you|ya)(?: all)?(?: later| soon| then| tomorrow| again| next time)?
(?:until|till) (?:next time|later|then|tomorrow)
take care
thanks?(?: you)? .{0,40}\b(?:help|time|patience|support|assistance|advice|information|info|everything|that|this|it|explanation|clarification|answers?|repl(?:y|ies)|responses?|updates?|details|feedback|suggestions?|tips?|recommendations?|effort|reminder|heads up)(?: today| again| so far)?
(?:that|this|it|which)(?:'s| is| was)?(?: (?:really|also|all|certainly|does|did|will))? (?:helps?|helped|matters?|counts?|happens?|depends)
uh[ -]?huh|mm[ -]?hm+|un[ -]?huh
(?:good|nice|great|glad|happy|sorry) to (?:know|hear|see)(?: (?:it|that|this))?
fair (?:enough|point)
let me (?:think|see|check|try|know|have a look|look)(?: (?:about|at|into))?(?: (?:it|that|this))?
tell me more|say (?:no )?more|what(?:'s| is) next
i (?:think|believe|guess|suppose|hope|mean|feel)
(?:looking|look) forward to (?:it|that|this)
(?:(?:this|that|it|which|all|these|those)(?:'s| is| was| are)?|sounds?|looks?|seems?|feels?) (?:(?:like|all|very|really|so|just) )*(?:sounds?|looks?|seems?|works?|worked|makes? sense|fine|good|great|okay|ok|perfect|right|helpful|useful|it|all|everything|enough|plan|a plan|a good (?:idea|plan))(?: (?:to|for|with|by) (?:me|us|now|today))?
(?:very|so|really|most) (?:helpful|useful|kind)(?: of you)?
for (?:now|today|me)
makes? (?:perfect |total )?sense
keep it up
take your time
(?:i(?:'|’)?m |we(?:'|’)?re )?all (?:set|good|done|clear)
(?:exactly |just )?what i (?:need|needed|want|wanted|meant|thought)
i(?:'|’)?ll (?:wait|try|see|check|do (?:it|that)|be (?:back|fine|ok|okay)|think about it|let you know)(?: it| that)?
i (?:do not|don(?:'|’)?t) (?:know|care|mind|think so|understand)
(?:i have )?no idea
not sure
(?:let(?:'|’)?s|let us|please|just|yes|you (?:can|may)) (?:do|try|start|begin|go|go with|use|take)(?: (?:it|that|this|so|then|those|them|both))?
go (?:for|with) (?:it|that|this)
do (?:it|that|this|so)
i (?:see|know|understand|agree|guess(?: so)?|think so|hope so|suppose so|get it|got it|got that|like (?:it|that))
got (?:it|that|you|ya)
(?:no|not a|without any) (?:problem|worries|rush|hurry|doubt|need|thing)
never ?mind
(?:just )?(?:a|one) (?:moment|second|sec|minute)
(?:nothing|anything|everything) (?:else|more)
whatever(?: you (?:say|think|want|like|prefer))?
up to you
as you (?:like|wish|say)
(?:my )?pleasure
of course
(?:for|to be) sure
you(?:'|’)?(?: a)?re (?:right|kind|great|the best)
(?:well|nicely) (?:done|said|put)
(?:good|great|nice|excellent|wonderful|fantastic|amazing|awesome|brilliant|bad|sad|happy|funny) (?:job|work|idea|point|call|question|news|stuff|luck|plan|choice|advice|suggestion|answer|story|to)
(?:thank|bless) god
me (?:too|neither)
same here
(?:very|so) much
a (?:lot|bunch|million|ton)
"""

_JAPANESE = r"""
(?:どうも|本当に|誠に|大変|とても|いつも)
(?:ありがと|有難|有り難)[うー]?(?:ござい(?:ます|ました))?(?:ね|よ)?
感謝(?:です|します|しています|いたします|致します|申し上げます)?
(?:承知|了解|理解|納得|把握|拝承|確認)(?:し|いた|致)?(?:しま|しまし|ま|まし)?(?:した|です|だ|っす)?
(?:わか|分か|判)(?:りました|った|ります|る)(?:よ|ね)?
(?:かしこまり|畏まり|うけたまわり|承り)(?:まし|ま)(?:た|す)
はー?い|ええ|うん+|いいえ|いえ+|いや|ううん|ああ|あー|えー?っと|えっ|おお|わあ|わー|ほう|へえ|へー|ふーん|ふむ(?:ふむ)?|あら|まあ
そう(?:です|だ|なん(?:です|だ))?(?:か|ね|よ|な)*|その通り(?:です|だ)?(?:ね)?|おっしゃる通り(?:です)?
なるほど(?:です)?(?:ね)?
(?:どうぞ)?(?:よろしく|宜しく)
(?:で)?お(?:願い|ねがい)(?:し(?:ます|たい(?:です)?)|いたします|致します|できますか)?(?:ね)?
お(?:疲れ|つかれ)(?:様|さま)?(?:です|でした)?|ご苦労(?:様|さま)(?:です|でした)?
おはよう(?:ござい(?:ます|ました))?|こんにち[はわ]|こんばん[はわ]|おやすみ(?:なさい)?|さようなら|さよなら|ただいま|おかえり(?:なさい)?|いってきます|いってらっしゃい
はじめまして|初めまして|お久しぶり(?:です)?
(?:じゃ|では|それでは|それじゃ)[あー]?|また(?:明日|今度|後で|あとで|来週|次回|ね)*|バイバイ|お元気で|お大事に(?:なさってください)?
(?:とても|すごく|本当に)?(?:いい|良い|よい|よかった|良かった|よさそう)(?:です|だ|と思います)?(?:か|ね|よ|な)*
大丈夫(?:です|だ)?(?:か|ね|よ)*|結構(?:です)?|充分|十分(?:です)?
問題(?:は|が)?(?:ない|ありません|ございません|なし|なさそう)(?:です)?(?:ね|よ)?
助か(?:ります|りました|る|った)(?:よ|ね)?
(?:すみ|すい)ません(?:でした)?|ごめん(?:なさい|ね)?|申し訳(?:ない|ありません|ございません)(?:です|でした)?|失礼(?:し|いた|致)(?:します|しました|ます|ました)?
続け(?:て|る|よう|ましょう)|続き|進め(?:て|る|よう|ましょう)|やって|(?:そう)?して|それで
(?:いて|おいて)?(?:ください|下さい|頂戴|ちょうだい|いただけますか|くれますか|もらえますか)
どうぞ|どういたしまして|とんでもない(?:です)?|いえいえ
お?(?:返事|回答|連絡|説明|協力|対応|待たせ)(?:を|が|は)?(?:しました|いたしました|いただき)?(?:ました|ます)?
うー+ん|むむ|ふう|はあ|おや
(?:素晴らし|すばらし|素敵|面白|おもしろ|可愛|かわい|難し|易し|簡単|不思議|残念|意外|便利|凄|すご|さすが|完璧|最高|見事|やった|うれし|嬉し|楽し|ありがた)(?:い|かった|み|く)?(?:です|だ|な|ました)?(?:ね|よ)?
(?:オッケー|オーケー|おっけー|おけ|オケ|ラジャー|イエス|ノー|サンキュー|ナイス|グッド|ヤッター)(?:です)?
お世話(?:になり|になって|様)(?:ます|ました|おります|います|です)?
確か(?:に)?|もちろん(?:です)?|勿論(?:です)?|ぜひ|是非|賛成(?:です)?|同感(?:です)?|同意(?:します)?|異議なし
以上(?:です)?|特に|(?:は|も)?(?:ない|なし|ありません)(?:です)?|何でもない(?:です)?|別に
こちらこそ|お手数(?:を)?(?:お)?かけ(?:します|しました|して)?|本当(?:です)?(?:か|に)?|(?:お)?元気(?:です)?(?:か|よ)?|今日(?:は)?|ここまで(?:です|で)?
次(?:へ|に|は|を|の)?|もう(?:一度|一回|少し)|(?:やって|試して|考えて|検討して|見て|聞いて)み(?:ます|る|よう|ましょう)
助言|参考になり(?:ます|ました)|勉強になり(?:ます|ました)|がんば(?:って|ります|りましょう|れ)|頑張(?:って|ります|りましょう|れ)|応援して(?:います|る)
ちょっと|少々|お待ち(?:ください|下さい)?|待って(?:ね)?|笑|草|w+
"""

_CHINESE = r"""
对不起|抱歉|不好意思|打扰(?:了|一下)?|见谅
(?:我)?(?:同意|赞成|赞同|支持|确认|接受|答应|批准|认可|没意见)(?:了)?|好(?:主意|办法|想法|建议|消息|点子)
(?:非常|十分|太|真的?|真是|特别|很|好|多|万分|实在)?(?:感谢|谢谢|谢啦|谢了|谢|感激)(?:你|您|大家|你们)*(?:了|啦|啊|呀|哦)?
(?:您|你)?的?(?:帮助|帮忙|支持|解答|回答|建议|耐心|指导|服务|提醒|回复|答复|反馈|指教|配合|理解|关心|分享|说明|解释)
(?:我|都|完全|大概|已经)*(?:明白|懂|了解|清楚|知道|理解)(?:了)?(?:你|您)?的?意思(?:了)?|有(?:意思|趣|道理|帮助|用)|(?:真|好|很|太|挺)?(?:有趣|可爱|可惜|简单|奇怪|神奇|意外|方便|难|容易)(?:了|的|啊)?
好+(?:的+|吧|啊|呀|嘞|滴|哒|咯|了|呢|哦)*|[嗯恩唔哦噢喔哎诶欸唉呃额啊呀哇嘿嗨喂哟]+
(?:我|完全|都)?(?:明白|知道|了解|懂|清楚|晓得|理解)(?:了|啦|的)?
没(?:有)?(?:其他|别的|更多|什么)(?:的)?(?:问题|事|事情|要求|疑问)(?:了)?
没(?:有)?(?:问题|关系|事|什么|别的|其他|错|毛病|了)?(?:了|的)?
不(?:用|必|需要|客气|好意思|是|行|要|对|谢|错|麻烦|急|了|会|敢当|可以)(?:了|的|谢|客气|啊)?
(?:当然|完全|都|也|就)?(?:可以|行|成|中|对|是|要|有|能|好)(?:的|了|吧|啊|呀|吗|呢)*
(?:你|您|大家|各位)(?:们)?好(?:吗|呀|啊)?|(?:早|上午|中午|下午|晚)(?:上)?(?:好|安)|早|哈喽|嗨|在吗|在(?:的)?
再见|拜拜|(?:回头|明天|待会儿?|下次|改天|一会儿?)(?:见|聊|再聊|再说)|晚安|走了|我先走了|保重
(?:太|真|很|非常|挺|特别|这|那|实在)*(?:好|棒|不错|厉害|优秀|完美|赞|强|牛|妙|精彩|漂亮|给力|酷|贴心|有用|周到|有道理|开心|高兴)(?:了|的|啊|呀|极了)?
(?:请|麻烦)?(?:你|您)?(?:继续|接着|开始|往下|进行|执行|处理)(?:说|讲|做|写)?(?:吧|了|下去)?|请|麻烦(?:你|您)?(?:了)?|拜托(?:了|你了|您了)?
(?:那|就|先|按|照|都|还是)*(?:这样|那样|这么|那么|如此|这个|那个|你说的|您说的)(?:办|做|吧|定|了|啊|就好|来)*|听(?:你|您)的
(?:你|您)?辛苦(?:你|您|大家)?了?|好久不见|最近(?:还)?(?:好吗|怎么样)|(?:你|您)说(?:得|的)?(?:对|是|有道理)?
我?(?:再|先|去)*(?:想一?想|看一?看|试一?试|考虑(?:一下|考虑)?|了解一下)(?:吧|了)?
收到|(?:哈|呵|嘻|嘿|哼)+|笑死
确实|原来(?:如此|这样|是这样)?|怪不得|难怪|是吗|真的吗?|真的假的|当真|没错|果然|一定|必须的|随便|无所谓|随你|看(?:你|您)(?:的)?
(?:帮|帮了)(?:我|了)?(?:大)?忙(?:了)?|加油|恭喜(?:恭喜)?|祝(?:你|您)?(?:好|顺利|好运)|等(?:一下|等|会儿?|一等|我)|稍等(?:一下)?|稍后
就|都|也|那|暂时|目前|先|其他的?|别的|需要|说|吧|呢
"""


_ASKS = re.compile(r"\b(?:who|whom|whose|what|which|when|where|why|how)\b.*\?", re.IGNORECASE | re.DOTALL)

LONGEST = 120
"""The most characters of a text that is looked at; a longer one has content."""


def has_content(text: str) -> bool:
    """Return True if a text says or asks anything."""
    if len(text) > LONGEST:
        return True
    words, greetings, phrases, dense = _courtesies()
    plain = greetings.sub(" ", normalize("NFKC", text))
    if _ASKS.search(plain):
        return bool(terms(plain))  # "What did I agree to?"
    if not plain.isascii():
        plain = dense.sub(" ", plain)
    return any(term not in words for term in terms(phrases.sub(" ", plain)))


@cache
def _courtesies() -> tuple[frozenset[str], re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    return (
        frozenset(terms(_ENGLISH_WORDS)),
        re.compile(rf"\b(?:{_joined(_ENGLISH_QUESTIONS)})\b", re.IGNORECASE),
        re.compile(rf"\b(?:{_joined(_ENGLISH_PHRASES)})\b", re.IGNORECASE),
        re.compile(f"{_joined(_JAPANESE)}|{_joined(_CHINESE)}"),
    )


def _joined(lines: str) -> str:
    return "|".join(f"(?:{line})" for line in lines.strip().splitlines())
