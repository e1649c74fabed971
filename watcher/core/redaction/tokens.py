"""The shapes of tokens that are recognised by themselves, without a name beside them.

Prefixes, lengths and alphabets are what the issuers document, or what public secret scanners list. Each alternative is
anchored to a literal and bounded or possessive, and starts at a token's left edge only, so that a search is linear in
its input.
"""

from __future__ import annotations

import re

_EDGE = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-F]{2}))"
"""The left edge of a token: no letter or digit before it, except the end of an escape (`\\n`, `%3D`)."""

_TOKENS = (
    # model providers: OpenAI, Anthropic, OpenRouter, DashScope, DeepSeek and others share `sk-`; the digit keeps out
    # hyphenated words such as CSS class names
    r"sk-(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{20,}+",
    r"sess-[A-Za-z0-9]{32,}+",
    r"gsk_[A-Za-z0-9]{40,}+",
    r"xai-[A-Za-z0-9]{60,}+",
    r"hf_[A-Za-z0-9]{30,}+",
    r"api_org_[A-Za-z]{34}",
    r"r8_[A-Za-z0-9]{37}",
    r"pplx-[A-Za-z0-9]{40,}+",
    r"nvapi-[\w-]{50,}+",
    r"tgp_v1_[\w-]{40,}+",
    # clouds
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    r"ABSK[A-Za-z0-9+/=]{100,}+",
    r"LTAI[A-Za-z0-9]{12,24}(?![A-Za-z0-9])",
    r"AKID[A-Za-z0-9]{32}(?![A-Za-z0-9])",
    r"AIza[\w-]{35}",
    r"GOCSPX-[\w-]{20,}+",
    r"ya29\.[\w.-]{20,}+",
    r"[\w~.-]{3}[0-9]Q~[\w~.-]{31,34}",
    r"do[opr]_v1_[0-9a-f]{64}",
    r"dapi[0-9a-f]{32}(?:-[0-9])?",
    r"dose[0-9a-f]{32}",
    r"HRKU-[\w-]{36,}+",
    r"fo1_[\w-]{40,}+",
    r"fm[12][ar]?_[A-Za-z0-9+/=]{60,}+",
    r"pul-[0-9a-f]{40}",
    r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{36,}+",
    r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,}+",
    r"hv[sbr]\.[\w-]{20,}+",
    r"s\.(?=[A-Za-z]{0,23}[0-9])[A-Za-z0-9]{24}(?![A-Za-z0-9])",
    r"tskey-[a-z]{2,10}-[\w-]{16,}+",
    r"pscale_(?:tkn|pw|oauth)_[\w.=-]{30,}+",
    r"sbp_[0-9a-f]{40}",
    r"nfp_[A-Za-z0-9]{36,}+",
    r"v1\.0-[0-9a-f]{24}-[0-9a-f]{146}",
    # forges and registries
    r"gh[opsur]_[A-Za-z0-9]{20,}+",
    r"github_pat_[A-Za-z0-9_]{22,}+",
    r"gl(?:pat|dt|rtr?|cbt|ptt|ft|imt|agent|oas|soat|ffct|wt)-[\w.-]{20,}+",
    r"GR1348941[\w-]{20,}+",
    r"npm_[A-Za-z0-9]{30,}+",
    r"pypi-Ag[\w-]{40,}+",
    r"dckr_[op]at_[\w-]{20,}+",
    r"AKCp[A-Za-z0-9]{60,}+",
    r"rubygems_[0-9a-f]{40,}+",
    r"cio[A-Za-z0-9]{32}(?![A-Za-z0-9])",
    r"oy2[a-z0-9]{43}(?![A-Za-z0-9])",
    r"CLOJARS_[0-9a-z]{60}",
    # services
    r"xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}+",
    r"xapp-[0-9]-[A-Za-z0-9-]{20,}+",
    r"[rs]k_(?:live|test|prod)_[0-9A-Za-z]{10,}+",
    r"whsec_[A-Za-z0-9+/=]{20,}+",
    r"SK[0-9a-f]{32}(?![A-Za-z0-9])",
    r"SG\.[\w-]{16,32}\.[\w-]{30,64}",
    r"[0-9a-f]{32}-us[0-9]{1,2}(?![A-Za-z0-9])",
    r"key-[0-9a-f]{32}(?![A-Za-z0-9])",
    r"[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,38}",
    r"sq0[a-z]{3}-[\w-]{22,}+",
    r"EAAA[\w-]{60}",
    r"shp(?:at|ca|pa|ss|tka)_[0-9a-fA-F]{32,}+",
    r"glsa_[A-Za-z0-9]{32}_[0-9A-Fa-f]{8}",
    r"glc_eyJ[A-Za-z0-9+/=]{30,}+",
    r"NR(?:AK|AA|II|RA|JS)-[A-Za-z0-9]{19,}+",
    r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}",
    r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}+",
    r"(?:secret|ntn)_[A-Za-z0-9]{43,}+",
    r"AGE-SECRET-KEY-1[0-9A-Z]{58}",
    r"sntry[su]_[A-Za-z0-9_+/=]{40,}+",
    r"AT(?:ATT|CTT|BB)3?[\w=-]{50,}+",
    r"figd_[\w-]{36,}+",
    r"ops_eyJ[A-Za-z0-9+/=]{100,}+",
    r"sl\.[\w-]{100,}+",
    r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}",
    r"EZ[AT]K[A-Za-z0-9]{54}",
    r"shippo_(?:live|test)_[0-9a-f]{40}",
    r"FLWSECK(?:_TEST)?-[0-9A-Za-z-]{12,}+",
    r"phx_[A-Za-z0-9]{40,}+",
    r"dd(?:api|app)_[A-Za-z0-9]{32,}+",
    r"base64:[A-Za-z0-9+/]{43}=",  # Laravel's application key
    # hashes of passwords: crypt, bcrypt, Argon2
    r"\$(?:1|5|6|y|7|apr1|2[abxy]|argon2(?:id|i|d))\$[./A-Za-z0-9$=,-]{20,}+",
    # JSON Web Tokens: a header and a claims part, both starting with the base64 of `{"`
    r"eyJ[\w-]{8,}+\.eyJ[\w-]{8,}+(?:\.[\w-]*+)?",
)

TOKEN = re.compile(_EDGE + "(?:" + "|".join(_TOKENS) + ")", re.ASCII)
"""A token of a known issuer; the whole match is secret."""

IN_CONTEXT = re.compile(
    r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<slack>[\w/+-]{20,}+)"
    r"|discord(?:app)?\.com/api/webhooks/[0-9]{6,24}/(?P<discord>[\w-]{20,}+)"
    # Telegram writes its token into the URL path right after `bot`
    r"|(?<![0-9])(?P<telegram>[0-9]{8,10}:AA[\w-]{33})"
    # signed URLs
    r"|[?&](?:sig|X-Amz-Signature|X-Amz-Security-Token|X-Goog-Signature|Signature)=(?P<signature>[^\s&\"'<>]{8,}+)"
    r"|[?&](?:key|code)=(?P<query>[\w.-]{24,}+)",
    re.ASCII,
)
"""Secrets that the text around them gives away; the named group that matched is secret."""
