"""A search log whose queries have known intents: several wordings, polite ones, languages, numbers, shared words.

Two queries of one intent want the same documents; two of different intents share words (`reset password` and `plz
webhooks wont work` are both asked with "plz … wont work"; models differ by a number), so that a rule of association can
go wrong in the ways that real logs make it go wrong.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

TASKS = {
    "password": ["reset password", "forgot my password", "change password", "password reset link", "new password"],
    "webhook": ["webhooks not delivered", "webhook retries", "webhook not received", "webhook delivery fails"],
    "invoice": ["download invoice", "invoice pdf", "where are my invoices", "billing invoice download"],
    "vat": ["change vat number on invoice", "vat id on invoice", "wrong vat number invoice"],
    "company": ["change company name on invoice", "wrong company name invoice"],
    "card": ["update credit card", "change credit card", "replace credit card", "new credit card"],
    "trial": ["free trial without credit card", "start free trial", "extend free trial", "trial period length"],
    "rotate": ["rotate api key", "rotate api keys without downtime", "api key rotation", "replace api key"],
    "create": ["create api key", "new api key", "generate an api key", "where to create api key"],
    "limit": ["api rate limit", "rate limit error 429", "429 too many requests", "increase api rate limit"],
    "export": ["export audit log", "download audit log csv", "audit log export"],
    "retention": ["how long is the audit log kept", "audit log retention", "audit log retention days"],
    "letters": ["how long are dead letters kept", "dead letter retention", "dead letter queue retention"],
    "sso": ["set up single sign on", "saml single sign on", "sso with okta", "okta saml setup"],
    "twofactor": ["enable two factor login", "two factor codes lost", "lost phone two factor"],
    "move": ["move workspace to another region", "migrate workspace region", "change region of workspace"],
    "delete": ["delete workspace", "remove workspace for good", "close workspace"],
    "members": ["invite member to workspace", "add user to workspace", "invite team member"],
    "docker": ["docker compose self hosted", "self hosted install docker", "install with docker compose"],
    "upgrade": ["upgrade self hosted docker", "downtime during upgrade docker compose", "self hosted upgrade steps"],
    "certificate": ["portal certificate warning", "certificate expired portal", "tls certificate of portal"],
    "return": ["return an order", "send order back", "order return label", "return policy order"],
    "refund": ["refund not received", "when will refund arrive", "refund status order"],
    "track": ["track my order", "where is my order", "order tracking number"],
    "dress": ["red summer dress", "summer dress red cotton", "red cotton dress"],
    "shoes": ["red running shoes", "running shoes red women", "women running shoes red size"],
}
GERMAN = {
    "password": ["passwort zurücksetzen", "passwort vergessen", "neues passwort"],
    "invoice": ["rechnung herunterladen", "rechnung als pdf"],
    "card": ["kreditkarte ändern", "neue kreditkarte hinterlegen"],
    "members": ["mitglied einladen", "nutzer einladen"],
}
JAPANESE = {
    "password": ["パスワードをリセットする方法", "パスワードの変更"],
    "invoice": ["請求書のダウンロード", "請求書をダウンロードする方法"],
    "price": ["料金プランの比較", "料金プラン"],
    "card": ["クレジットカードの変更", "クレジットカードを変更する方法"],
}
POLITE = ["{}", "{}", "{}", "how to {}", "plz {}", "plz help {}", "{} wont work", "plz {} wont work", "hello {} thanks"]
POLITE_DE = ["{}", "wie kann ich ein {}", "bitte {}", "ich möchte ein {}"]
POLITE_JA = ["{}", "{}を教えてください", "{}について教えてください"]
PHONES = [
    "iphone 7",
    "iphone 8",
    "iphone 11",
    "iphone 12",
    "iphone x",
    "galaxy s10",
    "galaxy s20",
    "pixel 4",
    "pixel 6",
]
PARTS = {
    "case": ["{} case", "{} leather case", "case for {}", "{} case black"],
    "charger": ["{} charger", "fast charger {}", "{} charger cable"],
    "screen": ["{} screen repair", "broken screen {}", "{} screen replacement"],
}
ABOUT = {
    "password": "Reset a forgotten password with the link in the mail, or change the password under account",
    "webhook": "Webhook deliveries and retries: why an endpoint received nothing, how deliveries are repeated",
    "invoice": "Invoices lie under billing, where each invoice is a pdf to download",
    "vat": "The vat number on invoices is changed under billing details",
    "company": "The company name and address on invoices are changed under billing details",
    "card": "Update or replace the credit card under billing, payment methods",
    "trial": "The free trial lasts for fourteen days, needs no credit card, and can be extended once",
    "rotate": "Rotate api keys: make a second key, deploy it, then revoke the old one, without downtime",
    "create": "Create an api key under settings, developers; a new key is shown once",
    "limit": "Rate limits of the api: too many requests are answered with 429; ask for an increase of the limit",
    "export": "Export the audit log as csv and download it",
    "retention": "Retention: the audit log is kept for a year",
    "letters": "Dead letters are kept in their queue for thirty days, the retention can be changed",
    "sso": "Single sign on by saml with okta and others: set up the identity provider",
    "twofactor": "Two factor login: enable codes, and what to do where the phone is lost",
    "move": "Move a workspace to another region: what a migration takes",
    "delete": "Delete a workspace for good: what is removed, and when",
    "members": "Invite members to a team's workspace, add and remove users",
    "docker": "Install self hosted with docker compose: requirements and steps",
    "upgrade": "Upgrade self hosted: steps with docker compose, downtime during an upgrade",
    "certificate": "The portal's tls certificate: warnings, and what to do where it expired",
    "return": "Return an order: print the label and send it back; the policy for returns",
    "refund": "Refunds: when they arrive, their status, and what to do where one was not received",
    "track": "Track an order by its tracking number, and see where it is",
    "dress": "Red cotton dress for summer",
    "shoes": "Red running shoes for women in all sizes",
    "price": "Plans and prices compared",
}


@dataclass(frozen=True)
class Intents:
    """The log.

    Attributes:
        queries: a query's text, and its intent; in the order in which they are first asked.
        documents: doc_id, text and the intent that it answers.
    """

    queries: list[tuple[str, str]]
    documents: list[tuple[str, str, str]]


def intents(seed: int = 13) -> Intents:
    """The log of one seed: which polite form a wording is asked in, and the order."""
    chance = random.Random(seed)
    asked: dict[str, str] = {}
    for tasks, polite in ((TASKS, POLITE), (GERMAN, POLITE_DE), (JAPANESE, POLITE_JA)):
        for intent, wordings in tasks.items():
            for wording in wordings:
                for form in {"{}", *chance.sample(polite, 3)}:
                    asked.setdefault(form.format(wording), intent)
    for phone in PHONES:
        asked.setdefault(phone, phone)
        for part, wordings in PARTS.items():
            for wording in wordings:
                asked.setdefault(wording.format(phone), f"{phone} {part}")
    queries = sorted(asked.items())
    chance.shuffle(queries)
    return Intents(queries, list(_documents({intent for _, intent in queries})))


def _documents(wanted: set[str]) -> list[tuple[str, str, str]]:
    made = []
    for intent in sorted(wanted):
        about = ABOUT.get(intent) or f"{intent}: what fits, what it costs and how long it takes"
        made += [(f"{intent}-{n}", f"{about}. Page {'one two'.split()[n]} of the guide.", intent) for n in range(2)]
    return made
