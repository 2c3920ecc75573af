"""Rules for what Japanese speakers say about themselves; a particle shows where the word before it ends."""

from __future__ import annotations

from .rule import Rule, rule

_WHEN = "(?:先月|先週|先日|昨日|今日|今月|今週|今年|去年|昨年|来月|来週|来年|最近|現在|今|年|月|日|末|春|夏|秋|冬)*"
_PLACE = f"{_WHEN}(?P<value>[一-龥々ヶァ-ヺーA-Za-z]{{1,16}})"
_THING = "(?P<value>[^、。！？\\s「」]{1,30}?)"
_NAME = "(?P<value>[一-龥々ァ-ヺーぁ-んA-Za-z・]{1,16}?)"
_WHO = "妻|夫|彼女|彼氏|息子|娘|母|父|兄|姉|弟|妹|犬|猫|愛犬|愛猫|うさぎ|上司|同僚|友達"
_I = "(?:(?:私|僕|俺|わたし|ぼく|うち)[はもがの]?、?)?"

JAPANESE: tuple[Rule, ...] = (
    rule(
        "name",
        f"(?:私|僕|俺|わたし)の名前は{_NAME}(?:です|と(?:いいます|言います|申します)|だよ|だ|。|$)",
        "name",
    ),
    rule(
        "name",
        f"(?:^|、){_I}(?P<value>[一-龥々ァ-ヺーA-Za-z・]{{1,16}})と(?:申します|いいます|言います)",
        "name",
    ),
    rule(
        "home",
        f"{_PLACE}(?:市内|県内)?(?:に|へ)(?:引っ越し|引越し|移住し|転居し|移っ|移り)(?!たい|たく|そう)",
        "home",
    ),
    rule("home", f"{_PLACE}に(?:住んで(?!いません|いない|ません|ない)|暮らして(?!いません|いない))", "home"),
    rule("home", f"{_PLACE}(?:在住|暮らし)(?:です|だ|になり)", "home"),
    rule("home", f"もう{_PLACE}に(?:は)?住んで(?:い)?(?:ません|ない)", denies=True),
    rule(
        "work",
        f"{_WHEN}(?P<value>[一-龥々ァ-ヺーA-Za-z]{{2,20}})(?:で働いて|に勤めて|に就職し|に転職し|に入社し)",
        "employer",
    ),
    rule("work", f"(?:職業|仕事)は{_THING}(?:です|だ|をしてい)", "job"),
    rule(
        "work",
        f"{_I}(?P<value>[一-龥ァ-ヺー]{{2,12}}(?:師|員|者|士|家|エンジニア|デザイナー|プログラマー))(?:として|をしてい|です|だ。)",
        "job",
    ),
    rule(
        "relation", f"(?P<slot>{_WHO})(?:の名前)?は{_NAME}(?:です|と(?:いい|言い)ます|という名前)", "name of"
    ),
    rule("relation", f"(?:^|、){_NAME}という(?:名前の)?(?P<slot>{_WHO})", "name of"),
    rule("date", r"(?P<slot>誕生日|記念日|結婚記念日)は(?P<value>(?:\d{4}年)?\d{1,2}月\d{1,2}日)", "date of"),
    rule(
        "date",
        r"(?P<slot>締め切り|締切|面接|試験|予約|出発|フライト)は(?P<value>(?:\d{4}年)?(?:来月|来週)?\d{1,2}[月日][^、。]{0,8}?)(?:です|だ|。|$)",
        "date of",
    ),
    rule("preference", f"(?:一番)?好きな(?P<slot>[^はの、。]{{1,10}})は{_THING}(?:です|だ|。|$)", "favorite"),
    rule("preference", f"{_I}{_THING}が(?:大|とても|一番)?(?:好き|お気に入り)(?!では|じゃ|な|だった)"),
    rule("preference", f"{_I}{_THING}が(?:大)?(?:嫌い|苦手|駄目|だめ)", prefix="苦手: "),
    rule("preference", f"{_I}{_THING}(?:に|の)?アレルギー(?:が|です|なん|を)", prefix="アレルギー: "),
    rule("preference", f"{_I}{_THING}は(?:飲み|食べ|使い)(?:ません|ない)", prefix="なし: "),
    rule("preference", f"{_I}{_THING}の方が(?:好き|いい)"),
    rule("preference", f"もう{_THING}(?:は|が)(?:好きでは|好きじゃ)(?:ない|ありません)", denies=True),
    rule("preference", "(?P<value>(?:必ず|いつも|絶対に)[^。、]{2,40}?)(?:てください|で(?:お願い|ください))"),
    rule(
        "decision",
        f"(?:^|、){_I}(?P<value>[^。]{{3,60}}?)(?:ことに(?:し|決め|なり)(?:ました|た)|に決めました|に決めた)",
    ),
    rule(
        "note",
        "(?P<value>[^。]{3,80}?)(?:(?:という)?(?:こと|の)?を)?(?:覚えて(?:おいて|いて|ください|て)|忘れないで|メモして)",
    ),
    rule(
        "task",
        "(?P<value>[^。、]{3,60}?)(?:しなければ(?:なら|いけ)|しないと(?:いけ|だめ)|する必要が|しなきゃ)",
    ),
)
