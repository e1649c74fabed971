"""What models say around, or instead of, a title or a recap: labels, introductions, refusals, greetings, questions.

All patterns match at the start of a line that is already free of controls and markdown, ignoring case, and take time
linear in the line.
"""

from __future__ import annotations

import re


def _any(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{alternative})" for alternative in alternatives), re.IGNORECASE)


_KIND = r"(?:(?:session|chat|conversation|suggested|proposed|possible|short|concise|generated|final|the|my)\s+){0,3}"

LABEL = _any(
    rf"{_KIND}(?:title|headline|topic|subject|summary|recap|(?:session|chat) name)(?: (?:suggestion|idea|option)s?)?"
    r"(?: ?\([^()]{0,30}\)| ?#?\d)?\s{0,3}[:：=]\s*",
    r"(?:\d{1,2}-word title|(?:final )?(?:answer|output|response|result)|option #?\d)\s{0,3}[:：]\s*",
    rf"{_KIND}title(?:\s*[–—]\s*|\s+-\s+)",
    r"(?:会话|對話|对话|聊天|建议的?|推荐的?)?(?:标题|標題|题目|題目|主题|主題|名称)(?:是|为|為)?\s*[:：]\s*",
    r"(?:会话|對話|对话)?(?:总结|總結|摘要|回顾|回顧)(?:是|为|為)?\s*[:：]\s*",
    r"(?:セッション|会話)?の?(?:タイトル|題名|件名|要約|まとめ)(?:は|案)?\s*[:：]\s*",
    r"(?:세션\s*)?(?:제목|요약)\s*[:：]\s*",
    r"(?:t[íi]tulo|titre|titel|titolo|tytuł|başlık|tiêu đề)(?: (?:de|da|della|der|du)(?: la)? \w{1,20})?\s*[:：]\s*",
    r"(?:resumen|résumé|resumo|riassunto|zusammenfassung)\s*[:：]\s*",
    r"(?:название|заголовок|тема|итог|العنوان|शीर्षक)\s*[:：]\s*",
    r"(?:tl;?dr|assistant|助手|アシスタント|※\s*recap)\s*[:：]\s*",
)
"""A label that stands before the text and is not part of it."""

BRACKETED_LABEL = _any(
    r"[\[(（【「『《〈〔]\s*"
    r"(?:(?:session\s+)?title|recap|summary|(?:会话)?标题|標題|题目|タイトル|제목)"
    r"\s*[\])）】」』》〉〕]\s*[:：]?\s*"
)
"""A label in brackets, such as 「标题」; brackets of other content stay."""

_YES = (
    r"sure(?: thing)?|certainly|of course|absolutely|okay|ok|alright|all right|great|got it|understood|no problem|done"
    r"|好的|当然(?:可以)?|當然|没问题|沒問題|可以|明白了?|はい|もちろん(?:です)?|承知しました|かしこまりました"
    r"|claro(?: que sí)?|por supuesto|bien sûr|d'accord|natürlich|gerne|certo|certamente"
    r"|конечно|хорошо|네|물론(?:이죠|입니다)?"
)

INTERJECTION = _any(rf"(?:{_YES})\s*[!！,，.。:：~]+\s*")
"""An agreeing word before the text proper."""

_SUITABLE = r"(?: (?:is|would be|could be))?(?: for (?:this|the|your) [a-z ]{1,30})?"

INTRODUCTION = _any(
    r"(?:here(?:['’]s| is| are)|this is|below is|based on)[^:：]{0,100}[:：]\s*",
    r"i(?:['’]d| would| will)? (?:suggest|propose|call|title|name)[^:：]{0,100}[:：]\s*",
    rf"(?:a|an|the|my|one)\b[^:：]{{0,40}}\b(?:title|recap|summary){_SUITABLE}\s*[:：]\s*",
    r"(?:a|an|the|my|one)\b[^:：\"“”]{0,40}\btitle\b[^:：\"“”]{0,40}\b(?:is|be)\s+(?=[\"“'`*«「])",
    r"(?:the|my|a good|a suitable)(?: [a-z]{3,12})? title (?:is|would be|could be)\s+(?-i:(?=[A-Z]))",
    r"(?:以下|这是|這是|根据|根據|建议|建議|我(?:建议|会)|こちら|次の(?:通り|とおり))[^:：]{0,60}[:：]\s*",
    r"(?:el|le|der|il|o) t[íi]t(?:ulo|re|el|olo)\b[^:：]{0,40}[:：]\s*",
    r"(?:aquí|te propongo|voici|je propose|hier ist|ich schlage|ecco|aqui está|вот|다음은|제목은)[^:：]{0,100}[:：]\s*",
)
"""A sentence that announces the text, up to and with its colon."""

ANNOUNCEMENT = _any(
    r"(?:here(?:['’]s| is| are)|this is|below is)\s.{0,80}\b(?:titles?|names?|recap|summary|suggestions?|options?)\b",
    r"(?:以下是|这是|這是).{0,30}(?:标题|標題|总结|總結|摘要|回顾|回顧)",
)
"""An announcement without a colon; the text, if any, stands on another line."""

_TALK = r"(?:conversation|session|chat|dialog|dialogue|discussion|transcript)"
_MATTER = r"(?:conversation|context|information|content|title|topic|recap|summary)"

REFUSAL = _any(
    r"i\s*(?:can(?:['’]?t|not)|don['’]?t|do not|could not|couldn['’]t)\b",
    r"i(?:['’]m| am) (?:so |very |really )?(?:sorry|unable|afraid|not able|an ai)\b",
    r"(?:sorry|apologies|my apologies|unfortunately)\b\s*(?:[,.!:;—-]|but\b|for\b|about\b|to\b|i\b|$)",
    r"as an? (?:ai|artificial|large|language|assistant)\b",
    r"(?:unable to|cannot|can['’]t) (?:help|assist|fulfil)\b",
    rf"(?:unable to|cannot|can['’]t) (?:generate|create|determine|provide) (?:an? |the )?{_MATTER}\b",
    rf"(?:there(?:['’]s| is| are) (?:no|not|nothing)|not enough|insufficient) (?:enough |clear )?{_MATTER}\b(?!-)",
    rf"no (?:clear |specific |meaningful |actual )?{_MATTER}\s*(?:$|[.,!(])",
    rf"no (?:clear |specific |meaningful |actual )?{_MATTER} (?:was |is |has been )?(?:provided|available|given)\b",
    r"please (?:provide|share|give|tell|let|specify|clarify|paste|send|upload|describe|note|wait|confirm)\b",
    r"(?:glad|happy) to (?:help|assist)\b|nice to meet\b|you['’]re welcome\b",
    r"(?:非常|很|十分)?(?:抱歉|对不起|對不起|不好意思)(?:[，,。！!、\s]|$|我)|我(?:无法|無法|不能|没有办法)",
    r"作为(?:一个|一名)?\s*(?:ai|人工智能|语言模型|助手|大)|作為(?:一個)?\s*(?:ai|人工智慧|語言模型)",
    r"请(?:您|你)?(?:提供|告诉|告知|说明|描述|分享|输入一|补充|稍等|问(?:您|你|有|需))",
    r"請(?:您|你)?(?:提供|告訴|告知|說明|描述|分享|問(?:您|你|有|需))",
    r"(?:无法|無法|不能)(?:生成|提供|确定|確定|总结|總結)(?:标题|標題|会话|对话|摘要|$)",
    r"申し訳|すみません|恐れ入りますが|私はai|ai(?:アシスタント)?として|お手伝いできません",
    r"lo siento|perdón|no puedo|como (?:modelo|ia|asistente|una ia)|disculpa",
    r"(?:je suis )?désolée?|je (?:ne |n')|en tant qu['’ ]",
    r"(?:es )?tut mir leid|entschuldigung[,.!]|ich kann (?:leider|nicht|ihnen|dir)|als (?:ki|sprachmodell|ai)\b",
    r"mi dispiace|non posso|in quanto|desculpe|não posso|sinto muito|como um modelo",
    r"извините|простите|к сожалению|я (?:не могу|искусственный|языковая)|как (?:ии|языковая|искусственный)",
    r"죄송|ai로서|przepraszam|üzgünüm|xin lỗi|عذرا",
)
"""The start of a refusal."""

ANSWER = _any(
    r"i(?:['’](?:m|ve|ll|d))?\s",  # no title speaks of itself
    r"we (?:can|cannot|can['’]t|need|will|have|should|are|were)\b|we['’](?:re|ve|ll)\b",
    r"(?:thinking|thought|reasoning)(?: process)?\s*(?:[:：]|\.{3}|…|$)|hmm+[,.…]|let['’]s (?:see|think)\b",
    r"(?:first|next|now|so),? (?:i(?!/)|we|let)\b|user (?:wants|asks|asked|is asking|needs)\b.{0,30}\btitle\b",
    r"it (?:seems|appears|looks)\b (?:that |like |as )?(?:if )?(?:the|there|you|your|this|we|i|no)\b",
    r"let me\b|feel free\b|thank you (?:for\b|so\b|[!,.])|thanks\b\s*(?:[!,.]|for\b)",
    r"the user (?:is|was|has|wants|want|asks|asked|needs|need|would|said|requests|requested|greeted|seems)\b",
    rf"(?:this|the) {_TALK} (?:is|was|covers|discuss|about|focus|contain|appears|seems|has|does|start|only|involve)",
    r"(?:user|human|用户|ユーザー)\s*[:：]",
    r"ignore (?:the|all|any|your|every|previous|prior)\b.{0,30}\b(?:above|instruct|prompt)",
    r"我(?!的|们的|們的)|[你您](?:想|需要|希望|能|可以|是否)|私は|저는|제가",
    r"je (?:suis|vais)|ich (?:kann|bin|habe|werde)|я могу",
)
"""The start of an answer to the user, or of a description of the conversation: right in a recap, not as a title."""

GREETING = _any(
    r"(?:hi|hey|hello|hiya|greetings|good (?:morning|afternoon|evening|day)|welcome(?: back)?)"
    r"(?:\s+(?:there|again|everyone|all))?\s*(?:[!,.~👋😊]|$)",
    r"(?:你|您)(?:们)?好(?:呀|啊|吗)?(?:[！!，,。.\s~👋😊]|$)|嗨[！!，,\s]|(?:早上|下午|晚上)好(?:[！!，,。\s]|$)",
    r"(?:こんにちは|こんばんは|おはよう(?:ございます)?|お疲れ様です)(?:[！!。、\s]|$)",
    r"¡?(?:hola|buenos días|buenas(?: tardes| noches)?)(?:[!,.\s]|$)",
    r"(?:bonjour|salut|bonsoir|hallo|guten (?:tag|morgen|abend)|ciao|buongiorno|olá|bom dia)(?:\s*[!,.]|$)",
    r"(?:здравствуйте|привет|добрый день)(?:\s*[!,.]|$)|안녕(?:하세요)?(?:[!.,\s]|$)|(?:cześć|merhaba)\s*[!,.]|مرحبا",
)
"""A greeting that is nothing but one; "Hello world in Rust" is none."""

QUESTION_BACK = _any(
    r"(?:can|could|would|will|do|did|are|have) you\b|(?:shall|should|may|can) (?:we|i)\b.{0,200}[?？]",
    r"(?:what|which|how)\b.{0,80}\byou\b|what (?:can|should|may) i\b|how (?:can|may|could) (?:we|i) (?:help|assist)",
    r"is there (?:anything|something)|anything else",
    r"请问(?:您|你|有|需)|需要我|要不要我|有什么|有什麼|还有什么|還有什麼",
    r"お手伝い(?:でき|し|が)|何を(?:お手伝い|しましょう|ご|お)|何か(?:お手伝い|ご)|どのような(?:ご|お)|どういった(?:ご|お)",
    r"¿?(?:en qué (?:puedo|te)|qué (?:te gustaría|necesitas|quieres|puedo)|cómo (?:puedo|te))\b",
    r"¿?(?:puedes|podrías|quieres|te gustaría|deseas)\b",
    r"comment puis-je|que puis-je|pouvez-vous|peux-tu|souhaitez-vous|voulez-vous|en quoi puis",
    r"(?:wie|was|womit) kann ich|(?:können|möchten) sie\b|(?:kannst|möchtest) du\b",
    r"(?:como|em que) posso|você (?:pode|quer|gostaria)|(?:come|in cosa) posso|(?:puoi|vuoi|vorresti)\b",
    r"чем (?:я )?могу|как я могу|можете ли|не могли бы|вы хотите|хотите(?:,| ли)",
    r"무엇을 도와|어떻게 도와|도와드릴",
)
"""A question put back to the user."""

_TOOL_TAG = r"[<\[][|｜]?\s*tool[_▁ ]?(?:calls?|use)\b"

TOOL_CALL = _any(
    rf"{_TOOL_TAG}[\s|｜>\]]{{0,6}}[{{\[<]",
    r"<\s*(?:function_calls?\s*>|function\s*=|invoke\s+name)",
)
"""A tool call that was written out as text; an answer that holds one anywhere is none."""

_OF_TOOL = r"(?:the )?(?:\w+_\w+|`\w+`|\w+ tool|tools?)\b"

NARRATION = _any(
    r"(?:now,? )?let me\b",
    rf"(?:now,? )?i(?:['’]ll| will| am going to|['’]m going to)(?: now| first)? (?:call|invoke|use) {_OF_TOOL}",
    rf"(?:now,? )?(?:i(?: am|['’]m)(?: now)? )?(?:calling|invoking) {_OF_TOOL}",
    _TOOL_TAG,
    r"\w{1,60}\(\s*\{",
    r"让我|讓我|我(?:先|现在|現在|将|將|来|來|会|會)?(?:调用|調用)",
)
"""The start of talk about what the model itself does next, or of a call of a tool."""

_SMALL = r"(?:user|casual|simple|initial|friendly|brief|basic|general|generic|opening|short|first|quick)"
_HELP = r"(?:help|assistance|support|inquiry|question|discussion|request)"

NO_TITLE = _any(
    r"(?:no |session |chat |your )?title(?: here)?|untitled(?: session| chat)?|(?:new )?(?:chat|session|conversation)",
    r"assistant|user|empty|none|null|nil|n/a|unknown|undefined|string|text|json|ok|okay|hello|hi|help(?: me)?",
    r"(?:会话|对话|无|無|新)?(?:标题|標題)|(?:新|未命名)?(?:会话|对话|聊天)|无题|無題|你好|タイトル|제목",
    r"sin título|sans titre|ohne titel|sem título|senza titolo|без названия",
    r"(?:conversation|session|chat) title",
    r"(?:coding|untitled|unnamed|empty|general|casual|generic) (?:session|chat|conversation)",
    r"no (?:title|topic|task|(?:specific|clear|particular|real|actual) \w{2,20})(?: \w{2,20}){0,3}",
    # What a session that began with a greeting is about; its next turn may tell more.
    rf"(?:{_SMALL} ){{0,3}}(?:greetings?|small talk|introduction)(?: (?:exchange|message|conversation|chat|only))?",
    rf"(?:{_SMALL} ){{1,3}}{_HELP}|(?:{_SMALL} ){{0,3}}(?:help|assistance|support) (?:request|offer|needed|offered)",
    r"(?:用户|日常|简单|初次|友好|初始)?(?:问候|打招呼|闲聊|寒暄)(?:语|交流|对话|开场)?",
    r"挨拶|あいさつ|인사|saludos?|salutations?|begrüßung|приветствие",
    # What gateways give in place of an answer.
    r"(?:error ?[:：] ?)?(?:internal server error|service unavailable|too many requests)",
    r"(?:error ?[:：] ?)?(?:rate limit (?:exceeded|reached)|insufficient (?:balance|quota|credits?))",
    r"(?:error ?[:：] ?)?(?:the )?(?:request (?:timed out|timeout)|model (?:is )?overloaded)",
    r"(?:something went wrong|an? (?:unexpected |unknown |internal )?error (?:has )?occurred|error)"
    r"(?:[.,!;]? (?:please )?try again(?: later)?)?",
)
"""All of a text, when it stands where a title should be and is none."""

PLACEHOLDER = _any(
    r"[\[<{«‹(⟦]\s*(?:redacted|masked|secret|hidden|private key|credential)\b[^\]>}»›)⟧\n]{0,60}[\]>}»›)⟧]",
    r"\*{4,}|[█•●]{3,}|\b(?-i:REDACTED)\b",
)
"""What stands where masking took a secret out; found anywhere, a text that repeats it is not used."""
