"""What people write besides questions: what surrounds a question, and replies that ask nothing.

A preamble is everyday talk of about 120 words without a question, put before a question. A memory should
answer the question behind it as if it stood alone. For the messages without content it should find nothing,
since nothing was asked.
"""

from __future__ import annotations

PREAMBLES = (
    (
        "The kettle took forever this morning and I burned two slices of toast while I was looking for the "
        "jam. After that the bus was late, so I walked along the canal and counted the boats. There were "
        "eleven of them, most with flower pots on the roof. At the bakery the line went out of the door, "
        "and the man in front of me bought all the cinnamon rolls. Then it began to rain, of course, and my "
        "umbrella was at home next to the door. The office was cold because somebody had left a window open "
        "over the weekend. I made a large pot of tea, put on my second sweater, and sorted old letters "
        "until it was time for lunch. In the afternoon the sun came out again."
    ),
    (
        "Our neighbor has started to repair his fence, and the hammering goes on from breakfast to dinner. "
        "The children on the street think it is wonderful and bring him nails. Yesterday evening we finally "
        "cleaned the garage and found a box of records, two broken lamps and a tent that nobody remembers "
        "buying. I took the lamps to the recycling center, where the queue was very long. On the way back I "
        "bought a bag of oranges and a new broom. The supermarket has moved the flour to another shelf "
        "again. My sister sent pictures of her garden, which is full of pumpkins, and a recipe for soup. "
        "Tonight I want to watch the second half of that film about the lighthouse and go to bed early."
    ),
    (
        "It has been a long week. The printer at work stopped on Monday, and the technician said that a "
        "spare part would take ten days. So everybody goes to the copy shop around the corner, which smells "
        "of popcorn. On Wednesday we had a fire drill and stood in the parking lot for half an hour; "
        "somebody played the guitar. I have been reading a novel about a family that runs a hotel, and it "
        "is better than I expected. The weather report promised snow, but there was only fog. My phone is "
        "nearly full because I never delete pictures of food. This morning I finally bought winter boots, "
        "the brown ones with the thick soles, and a pair of gloves for my father. Now I am sitting in a "
        "café with a big cup of cocoa."
    ),
)

EMPTY = {
    "English": """
ok, thanks!
Okay.
Thank you so much!
Yes, please.
Yes, please proceed.
Sounds good to me.
Great, thanks a lot!
Perfect.
Sure, go ahead.
No, that's all.
No, thank you.
Got it.
I see.
Alright, let's do that.
That works for me.
Cool!
Hi there!
Hello, how are you?
Good morning!
Bye for now.
Awesome, thank you very much.
hmm
lol
Yep
Nope
You're welcome.
No problem at all.
Sorry about that.
Please continue.
Fine, whatever you say.
That is all, thanks for your help!
Well done, I appreciate it.
Exactly.
👍
""",
    "Japanese": """
ありがとうございます。
ありがとう！
承知しました。
了解です。
わかりました。
はい、お願いします。
はい。
いいえ、大丈夫です。
そうですね。
なるほど。
よろしくお願いします。
お疲れさまです。
おはようございます。
こんにちは。
こんばんは！
いいですね。
どうもありがとうございました。
助かります。
すみません。
ごめんなさい。
うん、それでいいよ。
かしこまりました。
そうしてください。
続けてください。
了解しました、ありがとうございます。
素晴らしい！
へえ、すごいですね。
じゃあ、それで。
結構です。
おやすみなさい。
では、また。
オッケー
問題ありません。
""",
    "Chinese": """
谢谢！
好的，谢谢。
好的。
嗯嗯
明白了。
知道了，多谢。
没问题。
可以，就这样吧。
不用了，谢谢你。
不客气。
你好！
早上好。
晚安。
再见！
是的。
对的。
太好了！
行，继续吧。
请继续。
辛苦了。
收到。
了解。
哈哈
真棒！
对不起。
没关系。
非常感谢您的帮助。
好吧，那就这样。
没有了，谢谢。
好主意。
我知道了。
拜拜
同意
""",
}
"""Messages that ask and tell nothing, by language: a hundred in all."""
