"""A corpus of personal data and secrets, and of texts that only look like them; all of it is made up.

`POSITIVE`: texts by kind, each with the part that may not pass. `NEGATIVE`: texts that hold nothing to mask.
"""

# ruff: noqa: E501 (lists of values)

_EMAILS = """jo.doe@example.com jo+news@mail.example.co.uk JO_DOE@EXAMPLE.ORG o'brien@example.ie x@y.io 4711@firma.de
first.last@sub.dept.example.edu jörg@müller.de jörg.müßig@straße.example zoë@café.fr josé.muñoz@correo.es łukasz@poczta.pl
δοκιμή@παράδειγμα.δοκιμή почта@пример.рф 用户@例子.广告 ユーザー@例え.テスト 사용자@예시.한국 संपर्क@डाटामेल.भारत بريد@مثال.إختبار wang@例子.cn
åsa@exämple.se a.b-c_d@ex-ample.museum name%40example.com jane＠example.com support@acme.corp root@db01.internal anna@xn--mller-kva.de
jo(at)example.com jo[at]example[dot]com 'x.y@z.travel""".replace("'x", "x").split()
_PHONES = """+49 (0)30 1234 567|+49 30 12345678|+49 171 1234567|+4917112345678|0171 1234567|0171/1234567|030 1234567|(030) 1234567|089-12345678
|+33 6 12 34 56 78|+33612345678|06 12 34 56 78|06.12.34.56.78|0612345678|01 42 68 53 00|0142685300|0033 6 12 34 56 78|09-87-65-43-21
|555-123-4567|(555) 123-4567|(212)555-0187|212.555.0187|212 555 0187|2125550187|5551234567|4155552671|+1 415 555 2671|+14155552671|1-800-555-0199|+1 (415) 555-2671|1 415 555 2671
|020 7946 0958|(020) 7946 0958|07700 900123|07700900123|+44 20 7946 0958|+44 (0)20 7946 0958|+447700900123|0161 496 0000
|+91 98765 43210|98765 43210|9876543210|+39 06 6982 1234|+39 347 123 4567|+34 612 345 678|612 34 56 78|+31 6 12345678|06-12345678|+41 44 668 18 00|044 668 18 00
|+43 1 5125 0000|+46 8 123 456 78|+358 9 1234567|+45 32 12 34 56|+47 22 12 34 56|+48 22 123 45 67|+420 222 123 456|+351 912 345 678|+55 11 91234-5678|+52 55 1234 5678
|+86 138 0013 8000|+81 3-1234-5678|03-1234-5678|090-1234-5678|+82 2-312-3456|+61 2 9876 5432|(02) 9876 5432|0412 345 678|+64 9 123 4567|+27 11 123 4567|+972 3-123-4567|+90 212 123 45 67|+971 4 123 4567|+7 495 123-45-67|+380 44 123 4567""".replace(
    "\n", ""
).split("|")
_CARDS = """4242 4242 4242 4242|4242424242424242|4242-4242-4242-4242|5555 5555 5555 4444|5555555555554444|5105105105105100|4111111111111111|4012888888881881
|378282246310005|3782 822463 10005|3714-496353-98431|371449635398431|378734493671000|6011111111111117|6011 0009 9013 9424|3530111333300000|30569309025904|2223003122003222|1234 5678 9012 3456|4000.0566.5566.5556""".replace(
    "\n", ""
).split("|")
_IPS = """203.0.113.77 192.168.1.17 10.20.30.40 8.8.8.8 172.16.254.1 198.51.100.4 2001:db8::1 2001:0db8:85a3:0000:0000:8a2e:0370:7334 fe80::1 fe80::1ff:fe23:4567:890a
fe80::1%eth0 2001:db8:85a3::8a2e:370:7334 ::ffff:192.0.2.128 fd12:3456:789a::1 2a02:8109:9a40::b3c 64:ff9b::192.0.2.33 ff02::1 2001:db8:0:0:1:0:0:1 2606:4700:4700::1111 2001:db8::7
00:1b:44:11:3a:b7 00-1B-44-11-3A-B7""".split()
_TOKENS = """ghp_16C7e42F292c6912E7710c838347Ae178B4a ghs_16C7e42F292c6912E7710c838347Ae178B4a gho_9aB8c7D6e5F4g3H2i1J0k9L8m7N6o5P4q3R2 ghu_9aB8c7D6e5F4g3H2i1J0k9L8m7N6o5P4q3R2
github_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJ glpat-9sXyZ1aBcD2eFgH3iJkL AIzaSyDaGmWKa4JsXZ-HjGw7ISLn_3namBGewQe
npm_1a2B3c4D5e6F7g8H9i0J1k2L3m4N5o6P7q8R pypi-AgEIcHlwaS5vcmcCJDdhYjM0NTY3LTg5YWItY2RlZi0wMTIzLTQ1Njc4OWFiY2RlZgACKlszLCJmYWtlIl0 hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH
sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2 sk-ant-api03-a1B2c3D4e5F6g7H8i9J0k1L2m3N4 sk_live_4eC39HqLyjWDarjtT1zdp7dc sk_test_4eC39HqLyjWDarjtT1zdp7dc pk_live_TYooMQauvdEDq54NiTphI7jx rk_live_4eC39HqLyjWDarjtT1zdp7dc whsec_5f4dcc3b5aa765d61d8327deb882cf99
xoxb-2314567890-2314567890123-aBcDeFgHiJkLmNoPqRsTuVwX xoxp-1234567890-1234567890-1234567890-abcdef1234 xapp-1-A0123456789-1234567890123-abcdef0123456789 AKIAIOSFODNN7EXAMPLE ASIAIOSFODNN7EXAMPLE
wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY je7MtGbClwBF/2Zp9Utk/h3yCo8nvbEXAMPLEKEY q1W2e3R4t5Y6u7I8o9P0a1S2d3F4g5H6j7K8l9Z0
eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U 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
dckr_pat_a1B2c3D4e5F6g7H8i9J0k1L2m3N dop_v1_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef shpat_0123456789abcdef0123456789abcdef hvs.CAESIJ0a1B2c3D4e5F6g7H8i9J0k1L2
ya29.a0AfH6SMBx1y2z3A4b5C6d7E8f9 5f4dcc3b5aa765d61d8327deb882cf99 0123456789abcdef0123456789abcdef01234567 123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1 ATATT3xFfGF0a1B2c3D4e5F6g7H8i9J0k1L2
xkeysib-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef-a1B2c3D4e5F6g7H8 lin_api_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6 gsk_a1B2c3D4e5F6g7H8i9J0k1L2m3N4 r8_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s""".split()
_ASSIGNED = """password=hunter2secret|Password: Tr0ub4dor&3|api_key = a1b2c3d4e5f6|apikey: 9f8e7d6c5b4a|secret=s3cr3tvalue|client_secret: "Qk9fX2x1cGl0ZXI5"|passwd: l3tm31n!
|Authorization: Bearer abcdef1234567890abcdef|Authorization: Basic dXNlcjpwYXNzd29yZA==|bearer eyA1b2c3d4e5f6g7h8i9|postgres://admin:s3cretpw@db.example.com/app|https://jo:p4ssword@example.com/
|aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY|my password is sunshine42|access_token=0a1b2c3d4e5f|auth_token: 77aa88bb99cc""".replace(
    "\n", ""
).split("|")
_SECRET_OF_ASSIGNED = """hunter2secret Tr0ub4dor&3 a1b2c3d4e5f6 9f8e7d6c5b4a s3cr3tvalue Qk9fX2x1cGl0ZXI5 l3tm31n abcdef1234567890abcdef dXNlcjpwYXNzd29yZA eyA1b2c3d4e5f6g7h8i9
s3cretpw p4ssword wJalrXUtnFEMI/K7MDENG sunshine42 0a1b2c3d4e5f 77aa88bb99cc""".split()

_CONTEXTS = {
    "email": ("mail to {} bounces", "{}", "who is <{}>, and why?"),
    "phone": ("please ring back on {}", "{} is not reachable", "customer {}, second attempt"),
    "card": ("payment with {} declined", "{}"),
    "ip": ("blocked {} again", "login from {}, unknown device", "ping {}"),
    "token": ("is {} still valid?", "{}", "error with key {} since monday"),
}
_VALUES = {"email": _EMAILS, "phone": _PHONES, "card": _CARDS, "ip": _IPS, "token": _TOKENS}

POSITIVE: list[tuple[str, str]] = [
    (context.format(value), value)
    for kind, values in _VALUES.items()
    for value in values
    for context in _CONTEXTS[kind]
] + list(zip(_ASSIGNED, _SECRET_OF_ASSIGNED, strict=True))
"""Texts, and the part of each that has to go."""

_PLAIN = """error 404 on version 2.10.1 since 2026-03-01|upgrade from 1.2.3 to 1.2.4|v10.0.19041.1 build|version 4.8.0.1 released|section 1.2.3.4 of the manual|node 18.17.0 vs 20.5.1|react@18.2.0|@angular/core@12.0.1|icon@2x.png|lodash@4.17.21 vulnerable
|git@github.com:acme/app.git|@media (max-width: 600px)|@Override annotation|what does @ mean in python|getty@tty1.service failed|std::vector<int>::iterator|a::b::c in rust|std::string::npos|Foo::Bar::baz|use crate::net::tcp
|12:30:45 to 13:00:00|2026-03-01T10:00:00Z|2026-03-01 10:00:00.123|01/02/2023|1.2.2023|31.12.2025 23:59|03-04-2021|2019-2020|1999 2000 2001|years 1990-2005
|127.0.0.1:8080 refused|localhost:3000|bind to 0.0.0.0|netmask 255.255.255.0|connect to ::1|http://example.com/a/b?c=1|https://docs.example.com/guide/setup-your-first-project-in-ten-minutes|chmod 755|port 5432|exit code 137
|100 000 rows|1,000,000 documents|1 000 000 users|3.141592653589793|2.718281828459045|0.020037401 score|1e-5 learning rate|lr 0.0001|4.842669730920234|28.79286289215088
|2147483647 overflow|max int 4294967295|1700000000 as a date|epoch 1609459200|unix time 1672531199000|order 4502938475|ticket id 7788990011|isbn 978-3-16-148410-0|ISBN 0306406152|sku 8734659921
|rfc 2616|pep 8|iso 27001|RAL 9010|model 5550123|size 32 x 34|1920x1080 screen|2 x 4 x 8 lumber|60 watt bulb|12v 7ah battery
|uuid 550e8400-e29b-41d4-a716-446655440000|550e8400-e29b-41d4-a716-446655440000|CLIENT-9a9968ac-664b-42d7-9a9e-96f412b5ab49|commit a1b2c3d|abc1234 does not build|TextEncoderForSequenceClassification|sentence-transformers/all-MiniLM-L6-v2|BAAI/bge-small-en-v1.5|org.springframework.boot.autoconfigure|com.example.service.InvoiceServiceImpl
|src/main/java/com/example/App.java|kubernetes.io/ingress.class|PYTHONUNBUFFERED=1|MAX_CONNECTIONS_PER_HOST|very_long_snake_case_function_name|this-is-a-long-kebab-case-slug|Single-Pole/3-Way/Multi-Location|https://www.example.org/wiki/Cosine_similarity|Donaudampfschifffahrtsgesellschaft|internationalization-and-localization
|how do I reset my password|forgot password link|password: required|what is an api key|api_key: string|token: <your token>|password=$PASSWORD|secret: ${SECRET}|bearer authentication explained|basic authentication in nginx
|bearer token vs session cookie|token limit of gpt|max_tokens=1024|token_count: 12|secret manager pricing|private key format|public key infrastructure|client secret rotation|access token expired|auth token missing
|add a phone number field|phone number validation regex|call centre software|fax machine|contact form 7|text me when done|mobile first design|dial plan|tel uri scheme|sms gateway
|credit card declined|card number format|visa or mastercard|amex accepted|16 digit card number|4 digit pin|cvv 3 digits|iban or bic|bank transfer takes 3 days|invoice 2024-0017
|IPv6 support|ip address geolocation|dns 53 udp|mac address format|subnet /24|cidr block|ping timeout 1000|tcp 443 open|vlan 100|bgp as path
|E = mc2|a:b:c:d|1:2:3|16:9 aspect ratio|10:1 odds|ratio 3:2:1|Matthew 5:3-12|matrix 3x3|f(x) = x^2|50% off
|5 to 10 days|24/7 support|9-5 job|1-2-3 steps|A4 paper|B2B sales|H2O|covid-19|catch-22|7-eleven
|size 7.5-9|$1,234.56|€ 99.99|100 km/h|3.5 mm jack|-40 C|98.6 F|1/2 inch pipe|5/8 in. x 10 ft.|24 in. W x 36 in. H
|96 V|#42|#1234567|issue #98765432|bug 1234567|PR 123456|line 1234567 of the log|offset 12345678|row 10000000|id=1234567
|sha256 checksum|md5 vs sha1|base64 encode|hex colour #ff00aa|0xdeadbeef|0x7fff5fbff8c0|utf-8|latin-1|x86_64|amd64
|win32|k8s|i18n|l10n|a11y|h264|mp3|jpeg2000|log4j2|s3 bucket
|gpt-4o-mini-2024-07-18|claude-3-5-sonnet-20241022|llama-3.1-8b-instruct|text-embedding-3-large|Qwen3-Embedding-8B|ubuntu-22.04-x86_64|python-3.11.7-amd64.exe|nginx:1.25.3-alpine|postgres:16.1|redis:7.2.4
|what is bm25|how to bake bread|wie lange dauert der versand|où est ma commande|cómo cambiar la contraseña|как сменить пароль|如何重置密码|パスワードを変更|비밀번호 변경|पासवर्ड बदलें
|cosine of 45 degrees|population 1 417 492 000|65536 colours|256 512 shards|8388608 bytes|16777216|1048576 bytes|33554432|99999|1234567
|00123|000000|1111111111|0000000000|9999999999|12 34 56|1 2 3 4 5 6 7 8 9|2, 4, 8, 16, 32, 64, 128|10 20 30 40 50|5 10 15 20 25
|2024|20240131|2024-01|202401311200|20240131T120000|Q3 2025|FY2024/25|week 42|2024-W05|day 365
|latitude 52.5200 longitude 13.4050|52.520008, 13.404954|-33.8688, 151.2093|40.7128° N|1.0.0-beta.2|1.2.3+build.5|^4.17.21|~> 2.0|>=3.9,<4|3.10 or 3.11""".replace(
    "\n", ""
).split("|")
_ASKING = ("{}", "why {}")
NEGATIVE: list[str] = [context.format(text) for text in _PLAIN for context in _ASKING]
"""Texts that hold nothing to mask."""
