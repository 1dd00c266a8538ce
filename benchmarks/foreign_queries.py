"""Support queries in German, French and Spanish, made from sentences and things to ask about, and the sample's own.

Sentences are as people type them into a search field: whole questions, and two or three words. Every second row has no
accents and no capital letters, as on a keyboard of another country.
"""

from __future__ import annotations

import random
import unicodedata

SENTENCES = {
    "de": """
        wie kann ich {} ändern
        Wie lösche ich {}?
        wo finde ich {}
        {} funktioniert nicht mehr
        ich kann {} nicht mehr öffnen
        Warum wird {} nicht angezeigt?
        gibt es eine Möglichkeit, {} zu sperren
        {} einrichten
        {} wiederherstellen
        ist es möglich {} zu exportieren
        Fehlermeldung beim Speichern, {} fehlt
        seit gestern ist {} verschwunden
        kann man {} mit Kollegen teilen
        Was kostet {}?
        {} zurücksetzen ohne Anmeldung
    """,
    "fr": """
        comment modifier {}
        Comment supprimer {} ?
        où se trouve {}
        {} ne marche plus
        je ne peux plus ouvrir {}
        Pourquoi {} ne s'affiche pas ?
        est-il possible de bloquer {}
        configurer {}
        récupérer {}
        peut-on exporter {}
        message d'erreur à l'enregistrement, {} manque
        depuis hier {} a disparu
        partager {} avec mes collègues
        Combien coûte {} ?
        réinitialiser {} sans connexion
    """,
    "es": """
        cómo puedo cambiar {}
        ¿Cómo elimino {}?
        dónde está {}
        {} ya no funciona
        no puedo abrir {}
        ¿Por qué no aparece {}?
        es posible bloquear {}
        configurar {}
        recuperar {}
        se puede exportar {}
        mensaje de error al guardar, falta {}
        desde ayer {} ha desaparecido
        compartir {} con mis compañeros
        ¿Cuánto cuesta {}?
        restablecer {} sin iniciar sesión
    """,
}

THINGS = {
    "de": """
        mein Passwort, meinen Benutzernamen, die Rechnung, das Webhook-Ziel, den API-Schlüssel, meine E-Mail-Adresse,
        die Tabelle in Google Docs, mein Facebook-Konto, den Kalender, die Suchleiste, den Chatverlauf, das Abo,
        die Zustellung, den Posteingang, die Signatur, die Schriftart in Gmail, das Ticket, die Sprache, das Profilbild,
        die Benachrichtigung
    """,
    "fr": """
        mon mot de passe, mon nom d'utilisateur, la facture, la destination du webhook, la clé API, mon adresse e-mail,
        le tableau dans Google Docs, mon compte Facebook, le calendrier, la barre de recherche, l'historique du chat,
        l'abonnement, la livraison, la boîte de réception, la signature, la police dans Gmail, le ticket, la langue,
        la photo de profil, la notification
    """,
    "es": """
        mi contraseña, mi nombre de usuario, la factura, el destino del webhook, la clave API, mi correo electrónico,
        la tabla en Google Docs, mi cuenta de Facebook, el calendario, la barra de búsqueda, el historial del chat,
        la suscripción, la entrega, la bandeja de entrada, la firma, la letra en Gmail, el ticket, el idioma,
        la foto de perfil, la notificación
    """,
}

SAMPLE = {
    "de": "q0195 q0208 q0228 q0277 q0348 q0351 q0353 q0378 q0433 q0538 q0554 q0597 q0809 q0812",
    "es": "q0098 q0135 q0282 q0361 q0425 q0612 q0641 q0661",
    "fr": "q0003 q0013 q0114 q0245 q0267 q0317 q0332 q0375 q0506 q0561 q0638 q0782 q0805",
    "ja": "q0112 q0193 q0445 q0490 q0536 q0713 q0749",
    "pt": "q0144 q0265 q0279 q0586",
    "zh": "q0218 q0222 q0272 q0274 q0560 q0599",
}
"""The sample's queries that are not English, read by a person; a repeated text is named once."""


def foreign_queries(language: str) -> list[str]:
    """All sentences of `language` about all things, 300, in seeded random order; every second one without accents."""
    things = [thing.strip() for thing in THINGS[language].replace("\n", " ").split(",")]
    sentences = [line.strip() for line in SENTENCES[language].strip().splitlines()]
    texts = [sentence.format(thing) for sentence in sentences for thing in things]
    random.Random(language).shuffle(texts)
    return [plain(text) if number % 2 else text for number, text in enumerate(texts)]


def plain(text: str) -> str:
    """Without accents, capital letters and inverted marks; ß as ss."""
    bare = unicodedata.normalize("NFD", text.lower().replace("ß", "ss").replace("¿", ""))
    return "".join(letter for letter in bare if not unicodedata.combining(letter))
