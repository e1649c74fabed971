"""Words by which people open, soften and close a request: what the extractive model takes off, and what it looks for.

Patterns ignore case and are meant for one clause: without line breaks, of bounded length.
"""

from __future__ import annotations

import re


def _any(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{alternative})" for alternative in alternatives), re.IGNORECASE)


_GAP = r"[\s,，、.。!！?？:：~…-]*"
_WE = r"(?:i|we)(?:['’]d| would)? (?:really )?"
_NOUNS = r"[\u3400-\u9fff\u30a1-\u30ff]{2}"  # before して: the verb is a noun with する, and the noun can stand alone

OPENER = _any(
    # English
    r"(?:hi|hello|hey|hiya|yo|greetings|good (?:morning|afternoon|evening|day)|dear)\b(?!\s+world)"
    rf"(?:\s+(?:there|all|everyone|team|qwen|again|guys|folks))?(?=[\s,.!:]|$){_GAP}",
    r"(?:(?:i['’]?m|i am)\s+)?(?:so |very )?(?:sorry|apologies|excuse me|pardon)\b"
    rf"(?:\s+(?:to|for|about|that|if|again|me)\b[^,.!?:;]{{0,60}}(?=[,.!?:;]|$))?{_GAP}(?:but\s+)?",
    rf"(?:thanks|thank you|thx|cheers)\b(?:\s+(?:so much|a lot|again|in advance|you))?{_GAP}",
    r"(?:please|pls|plz|kindly|just|now|so|ok|okay|well|alright|great|perfect|nice|cool|and|then|also|but|actually|fyi"
    r"|basically|again|first|second|next|finally|maybe|perhaps|hmm+|um+|btw|today)(?:[,:]\s*|\s+(?=\S))",
    r"(?:quick )?(?:question|task|todo|goal|idea|issue|bug|problem)\s?[:,]\s*",
    r"(?:can|could|would|will) (?:you|u|we|i)\b(?:\s+(?:please|pls|kindly|maybe|also|just|possibly))*\s*,?\s*",
    r"(?:would|do) you mind\s+",
    rf"{_WE}(?:want|like|need|love|wish|have)\b(?:\s+(?:you|us))?\s+to\b(?:\s+be able to\b)?\s*",
    rf"{_WE}(?:want|like|need|love|wish)\b(?:\s+(?:you|us))?\s+",
    r"(?:i['’]?m|i am|we['’]?re|we are) (?:trying|looking|going|hoping|planning|attempting|working|thinking)\b"
    r"(?:\s+(?:to|for|on|about|of))?\s+",
    r"(?:i|we) (?:keep (?:on )?)?(?:getting|get|see|seeing|have|got|found|noticed|receive)\s+",
    rf"what {_WE}(?:want|like|need)(?: is)?(?: for you)?(?: to)?\s+|is it possible to\s+",
    r"it would be (?:nice|great|good|cool) (?:if (?:you|we) (?:could|can)|to)\s+",
    r"(?:(?:your|some|any) )?(?:help|assist)\s+(?:(?:me|us)\b\s*)?(?:(?:to|with|in|out|here)\b\s*)*",
    r"let['’]?s\s+(?:work on\s+)?|let us\s+|(?:how|where) (?:do|can|could|should|would|to) (?:i|we|you)\s+|how to\s+",
    r"(?:i|we) (?:think|guess|believe)\s+|(?:my|our|the|a|an|there is|there['’]s|there are|that|that is)\s+",
    r"do you know (?:how to|how|if|whether|why)\s+|is there (?:a|any) way to\s+|any (?:way|idea how) to\s+",
    r"(?:need|want|require|looking for) (?:some |your )?help (?:with|on|to|in)\s+(?:an?\s+)?",
    r"for you to\s+|to be able to\s+|(?:your|the|my|our) (?:task|job|goal|aim|mission)(?: here)? (?:is|will be) to\s+",
    r"there (?:might|may|could|must|seems? to|appears? to) be\s+(?:an?\s+|some\s+)?",
    r"(?:(?:i['’]?m |i am )?not sure|i (?:don['’]?t|do not) know|no idea)\b[^,.!?]{0,60}?\bbut\s+",
    r"(?:when(?:ever)?|if|after|once) (?:i|we|you|users?) (?:click|press|tap)(?: on)?\s+",
    r"in (?:the|my|our|this) (?:file|module|class|component|page|app|project|repo|repository) [\w.-]{2,60},?\s+(?=\w)",
    r"(?:this|these|those)\s+(?!is|are|was|were|does|do|did|has|have|one|way)(?=\w+\s+\w)",
    r"what(?:['’]?s| is| are)\s+the\s+(?=\w+ (?:between|of|for|to|with|in)\b)",
    # Chinese
    rf"(?:你们?好|您好|嗨|哈喽|在吗|在么|早上好|下午好|晚上好|大家好)[啊呀哦]?{_GAP}|嗯+{_GAP}",
    rf"(?:实在)?(?:不好意思|抱歉|对不起|對不起)(?:又|再)?(?:打扰了?|麻烦了?)?{_GAP}|(?:又来)?打扰(?:一下|了)?{_GAP}",
    rf"(?:谢谢|多谢|感谢)(?:你|您)?了?{_GAP}",
    r"(?:麻烦|劳驾|拜托)(?:你|您|大家)?(?:了)?[\s，,]*|[请請](?:问|問)?(?!求)(?:你|您)?[\s，,]*",
    r"(?:能不能|能否|可不可以|可以|是否可以)(?=\S)|[帮幫](?!助)(?:忙|我们?|我們?|一下)*[\s，,]*|(?:给|替)我(?=[^们的])",
    r"(?:看一下|看一看|看看|看下|瞧瞧|查一下)[\s，,]*(?=\S)",
    r"我们?(?:现在|目前)?(?:很)?(?:想要?|希望|需要|打算|准备|要)(?:请?你|您)?",
    r"(?:希望|需要|想要?)(?:你|您)?(?=[^求])|我在想|我觉得|(?:怎么样?|如何|要怎麼|要怎么|怎麼)(?=\S)",
    r"(?:现在|目前|然后|另外|接下来|顺便|首先|其次|最后|还有|同时)[\s，,]*",
    # Japanese
    rf"(?:すみません|すいません|申し訳(?:ありません|ございません)(?:が)?|お疲れ様です){_GAP}",
    rf"(?:お世話になって(?:おり|い)ます|こんにちは|こんばんは|おはよう(?:ございます)?|はじめまして){_GAP}",
    rf"(?:ありがとう(?:ございます)?|恐れ入りますが|お手数ですが|ちょっと|よろしければ|もしよければ|どうか){_GAP}",
    # Spanish, Portuguese, Italian, French, German
    rf"¡?(?:hola|buenos días|buenas(?: tardes| noches)?|gracias|olá|bom dia|boa (?:tarde|noite)|obrigad[oa])\b{_GAP}",
    rf"(?:ciao|buongiorno|salut|bonjour|bonsoir|merci|hallo|guten (?:tag|morgen)|danke|moin)\b{_GAP}",
    r"(?:perdon[ae]?d?|disculpa|lo siento|desculpe|scusa|mi dispiace|pardon|désolée?|entschuldigung)\b"
    rf"(?: (?:la|por|le|il) [a-zà-ÿ ]{{0,30}}(?=[.,!]|$))?{_GAP}",
    rf"(?:por favor|per favore|s['’]il (?:te|vous) pla[iî]t|bitte){_GAP}",
    r"¿?(?:me )?(?:puedes|puede|podrías|podría|você pode|pode|poderia|puoi|potresti|peux-tu|pouvez-vous|kannst du"
    r"|können sie)\s+(?:(?:ayudarme (?:a|con)|me ajudar (?:a|com)|aiutarmi (?:a|con)|m['’]aider à|mir helfen,?)\s+)?",
    r"¿?(?:cómo (?:puedo|podría|se puede|hago para)|comment (?:puis-je|faire pour)|wie kann ich|com[eo] posso)\s+",
    r"(?:necesito|quiero|quisiera|me gustaría|preciso|quero|gostaria de|vorrei|voglio|ho bisogno di"
    r"|je (?:veux|voudrais)|j['’]aimerais|il faut|ich (?:möchte|will|brauche))\s+(?:que\s+|ayuda (?:con|para)\s+)?",
    r"ay[uú]dame\s+(?:a|con)\s+|(?:el|la|los|las|os|il|lo|gli|les|der|das|eine?n?|una?|une|uma?)\s+",
    # Russian, Korean
    rf"(?:привет|здравствуйте|добрый день|извините|простите|спасибо|пожалуйста){_GAP}",
    r"(?:можешь|можете|помоги(?:те)?(?: мне)?|(?:мне )?(?:нужно|надо)|я хочу|хочу)\s+|안녕(?:하세요)?[\s,.!]*",
    r"[¿¡\"'“‘(\[-]+",
)
"""Matches at the start of a clause."""

_THANKS = r"por favor|gracias|bitte|danke|merci|s['’]il (?:te|vous) pla[iî]t|пожалуйста|спасибо"

CLOSER = _any(
    rf"[\s,]+(?:please|pls|plz|thanks|thank you|thx|asap|ok|okay|right|now|again|for me|{_THANKS})$",
    r"[，,\s]*(?:谢谢|多谢)(?:你|您|了)*$|(?:可以[吗嗎]|行吗|好吗|[吗嗎呢吧啊呀])$",
    r"[をに]?(?:お願い(?:いた)?します|お願いできますか|手伝って(?:もらえ|いただけ)ますか|手伝って(?:ください|ほしい))$",
    r"[をに]?教えて(?:ください|もらえますか)$",
    rf"(?<={_NOUNS})して(?:ください|下さい|もらえますか|もらえませんか|いただけますか|ほしい(?:です)?|くれますか)?$",
    r"(?<=[てで])(?:ください|下さい|もらえますか|もらえませんか|いただけますか|いただけませんか|ほしい(?:です)?|くれますか)$",
    rf"(?<={_NOUNS})したい(?:です|と思います|と思っています|と考えています|のですが|んですが)?$",
    r"(?<=たい)(?:です|と思います|と思っています|と考えています|のですが|んですが)$",
    r"にしたいと(?:思い|思ってい|考えてい)ます$|(?:の(?:は|が)?)?(?:なぜ|どうして)(?:ですか|でしょうか)?$",
    r"(?:です|でしょう)か?$|(?:のです|んです)が$|ので$|(?<=す)が$",
    r"\s?(?:해|해서)?\s?(?:주세요|주실 수 있나요|부탁(?:드립니다|해요?))$",
)
"""Matches at the end of a clause."""

REQUEST = _any(
    r"\b(?:please|pls|plz|can you|could you|would you|help me|let['’]?s|how (?:do|can|to)|fix|add)\b",
    rf"\b{_WE}(?:want|like|need)\b",
    r"[请請](?!求)|[帮幫](?!助)|麻烦|希望|我们?想|需要|能不能|能否",
    r"ください|下さい|お願い|もらえ|いただけ|たい(?:です|と)|ほしい",
    r"\b(?:por favor|puedes|podrías|necesito|quiero|quisiera|me gustaría|preciso|quero|vorrei|puoi|bitte|kannst du)\b",
    r"\b(?:ich möchte|peux-tu|pouvez-vous|je voudrais|j['’]aimerais|пожалуйста|нужно|надо|хочу)\b|주세요|부탁",
)
"""Found in a sentence that asks for something."""

INNER_REQUEST = _any(
    r"\b(?:and|but) (?:want|need|would like)(?: to\b)?\s+",
    rf"\b{_WE}(?:want|like|need)\b(?: (?:you|us|is))?(?: for you)?(?: to\b)?\s+",
    r"我们?(?:希望|想要?|需要)",
)
"""The words after which the wish itself follows, in the middle of a clause."""

UNWANTED = _any(
    r"\b(?:do not|don['’]?t|never|without touching|leave .{1,30} alone|keep in mind|note that|remember)\b",
    r"不要|请勿|別|别(?!名|的)|注意|ただし|できません|\b(?:no|sin) (?:cambi|toc|modifi)\w*",
)
"""Found in a sentence that says what not to do."""

TASK = _any(
    r"(?:add|allow|automate|build|bump|change|check|clean|compare|configure|convert|create|debug|delete|deploy|design)\b",
    r"(?:document|drop|enable|explain|export|extract|find|fix|format|generate|get|handle|implement|import|improve)\b",
    r"(?:install|investigate|list|make|merge|migrate|move|optimi[sz]e|port|reduce|refactor|remove|rename|replace)\b",
    r"(?:review|rewrite|run|set ?up|ship|show|simplify|speed|split|support|test|track|translate|update|upgrade)\b",
    r"(?:use|validate|why|wire|write)\b",
    r"修复|修改|添加|增加|加|写|实现|重构|优化|翻译|改|迁移|升级|删除|排查|检查|调试|部署|配置|生成|创建|设计|分析|解释|整理",
    r"更新|替换|把|给|将|为什么|做(?![了过完])|开发|搭建",
    r"(?:arregl|añad|agreg|cre|corr|export|import|elimin|cambi|actualiz|refactoriz|corrig|adicion|remov|aggiung)\w*",
    r"(?:répar|ajout|supprim|behebe|füge|erstelle|исправ|добав|создай|удали)\w*",
)
"""Matches at the start of a clause that names a task."""

GENERIC = _any(
    r"(?:please )?(?:look|check|see|fix|do|make|try|take|tell|explain|review|debug|solve|handle|use|run)"
    r"(?: (?:into|at|out|for|me|it|this|that|them|why|what|how|a look|safe|work|again|is|happens?|wrong|better|faster"
    r"|to|over|the|code|diff|file|here|please|and|then|fix|solve|implement|check|review))*",
    r"what (?:does|do|did) (?:this|that|it|the)(?: (?:code|function|script|file|line|command))? (?:do|mean)",
    r"not sure\b.{0,60}|(?:erkläre?|zeige?) mir|expl[ií]came|explique[sz]?-moi|spiegami",
    r"was (?:dieser|der|das|dieses) \w{2,20} (?:macht|tut)",
    r"(?:implement|do|follow|build|complete) (?:the|this)(?: (?:following|attached|given))?"
    r"(?: (?:spec|specification|task|plan|ticket|issue|instructions|steps|requirements|below|above))*",
    r"here(?:['’]s| is| are)\b.*|(?:it|this|that)(?:['’]s| is| was| does| did)?(?: \w+){0,2}",
    r"(?:any|some) (?:idea|ideas|help|thoughts)\b.*|what(?:['’]s| is) (?:wrong|this|that|happening|going on)\b.*",
    r"(?:one more|another|one last|a quick|quick|next|last) (?:thing|question|one|issue|request|task)",
    r"(?:see|look) (?:below|above)|what do you think|(?:act as|you are|pretend|imagine)\b.*|my name is\b.*|name is \w+",
    r"(?:帮忙|看|查|检查|排查|定位|解决|处理|修复|分析|解释|优化|重构|修改|改|测试|试|运行)?(?:一?下)?[这那]?(?:段|个|些|里|边)?(?:代码|问题|错误|报错|文件|情况|原因)?",
    r"[这那]个?(?:报错|错误|问题|bug)(?:要?怎么|如何)?(?:解决|处理|修复|修|办|回事)?",
    r"(?:怎么办|怎么回事|什么情况|为什么|有问题|谢谢.*|有一个.{0,6}问题.*)",
    r"(?:この|その)?(?:原因|これ|それ|エラー|コード)?(?:を)?(?:調べ|教え|見|確認|修正|直し?)て?(?:修正|対応)?",
    r"(?:no|y|pero|porque|que) .*|ayuda|ayúdame|ajuda|aiuto|hilfe|aide",
)
"""All of a clause that could stand in any session."""

TRIVIAL = _any(
    r"hi|hello|hey|yo|test|ping|ok|okay|k|yes|yep|yeah|y|no|nope|sure|go|go on|go ahead|continue|proceed|next|done",
    r"wait|thanks|thank you|thx|great|perfect|nice|cool|good|lgtm|retry|try again|again|help|help me|help me please",
    r"(?:who|what) are you|what can you do|how are you",
    r"stop|same|please help(?: me)?|please|undo|what|why|hmm+|do it|sounds good|looks good",
    r"(?:你好|您好|在吗|嗨|好|好的|可以|是|是的|对|继续|谢谢|不|不是|行|嗯+|帮我|帮帮我|帮忙|救命|请帮忙|下一步)[啊呀吗了]?",
    r"重试|再来|请继续|はい|いいえ|続けて(?:ください)?|お願いします|ありがとう(?:ございます)?|こんにちは",
    r"助けて(?:ください)?|手伝って(?:ください)?",
    r"sí|si|vale|hola|gracias|continúa|sigue|adelante|ayuda|ayúdame|oui|non|merci|bonjour|ja|nein|danke|hallo|hilfe",
    r"sim|não|да|нет|спасибо|привет|помоги(?:те)?|продолжай|네|아니요|계속|안녕(?:하세요)?|도와주세요",
)
"""All of a message that names nothing."""

_FUNCTION_WORDS = """
    a an the of to in on at by for with from into onto over under and or but nor so as than that which who whose
    when while if because since until after before between per via is are was were be been being am do does did has
    have had can could should would will may might must it its this these those my our your their his her i we you
    they not very just only also about without within during through across against like where how why what there
    then up off out de del la el los las un una unos unas en con por para que y o u al su sus mi se lo le sin sobre
    como cuando si es son no más muy este esta desde hasta entre pero porque ya ser está do da dos das os as um uma
    em na nas nos com e ou ao à seu sua sem quando é são não du des les une dans avec par pour qui et au aux son sa
    ses ne pas ce cette sur comme est sont der die das den dem ein eine einen einem einer und oder im mit von vom zu
    zum zur für auf bei nach über unter als wenn weil dass ist sind nicht auch an am aus di della dei delle il i gli
    nel nella per che alla su come non и в во на с со к по от до из об за при не что как это
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Words at which a title that was cut must not end, in lower case."""

_NO_BORDERS = """
    a an the my our your their his her its it this these those very not more más no ne pas nicht não non un una el
    la los las os as il lo gli le les der die das den dem ein eine is are was were be been being does did has have
    had can could should would will may might must do am i we you they
"""
BORDERS = (FUNCTION_WORDS | {"instead", "using", "rather", "except"}) - frozenset(_NO_BORDERS.split())
"""Words that open a phrase of their own: a long clause can be cut before them."""

_HANGING_WORDS = """
    unable able trying going used based due related instead according such using whether each every any all both some
    makes instead rather except already still even
"""
NEVER_LAST_CUT = FUNCTION_WORDS | frozenset(_HANGING_WORDS.split())
"""Words at which a title that was cut does not end."""

NEVER_LAST = FUNCTION_WORDS & frozenset(
    (
        "of",
        "the",
        "a",
        "an",
        "and",
        "or",
        "to",
        "with",
        "for",
        "by",
        "at",
        "from",
        "than",
        "as",
        "if",
        "because",
        "y",
        "und",
    )
)
"""Words at which no title ends, cut or not."""

CHINESE_BORDER = _any(
    r"并且|而且|以及|或者|但是|因为|所以|然后|同时|如果|从而|用来|按照|根据|通过|之后|以后|之前|的时候|為什麼|为什么",
    r"怎么|是否|会不会|总是|经常|可以|能够|要(?=支持|能|可以|保证|有|把|让)|并(?![发行列集])|和(?![谐平解])|与(?![会其])",
    r"[把被](?!子)|的(?![确士])",
)
"""Words before which a Chinese clause can be cut without cutting a word."""
JAPANESE_BORDER = re.compile(
    r"(?<=[をがはにでとのもへやただる])(?=[\u3400-\u9fff\u30a1-\u30faA-Za-z0-9])"
    r"|(?<=して|って|いて)(?=[\u3400-\u9fff\u30a1-\u30fa])"
)
"""The places after a particle or verb ending where a new Japanese phrase begins."""
HANGING = re.compile(
    r"(?:[的了着和与或并且把被在]|之后|以后|之前|[をがはにでとのもへや]|から|まで|より|して|し|ため(?:に)?|せいで|ので|けど)+$"
)
"""What a Chinese or Japanese clause cannot end on where it was cut."""
