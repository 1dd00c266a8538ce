"""Tables of the probes of a judge: altered pairs with a known or unchanged label, and the rates of wrong replies."""

import pyarrow as pa

from darklode.schemas.table import CHUNK_ID, QUERY_ID, TENANT, Table, column

JUDGE_PROBES = Table(
    "judge_probes",
    ("kind", "tenant", "query_id", "chunk_id"),
    "altered pairs and the judge's replies to them; never part of verdicts, labels or triplets",
    pa.schema(
        [
            column("kind", pa.string(), "kind of probe, as in `judge_probe`"),
            column("variant", pa.string(), "how the pair was altered"),
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            column("query", pa.string(), "query as judged"),
            column("title", pa.string(), "title as judged; null for another tenant's chunk", null=True),
            column("heading", pa.string(), "heading as judged; null for another tenant's chunk", null=True),
            column("text", pa.string(), "text as judged; null for another tenant's chunk", null=True),
            column("unchanged_relevant", pa.bool_(), "label of the unchanged pair; null if unreadable", null=True),
            column("unchanged_probability", pa.float32(), "its probability, 0 to 1", null=True),
            column("relevant", pa.bool_(), "label of the altered pair; null if unreadable", null=True),
            column("probability", pa.float32(), "its probability, 0 to 1", null=True),
            column("outcome", pa.string(), "as expected, wrong, unreadable, or excluded (see `judge_probe`)"),
            column("raw_reply", pa.string(), "unparsed reply of the judge", null=True),
            column("error", pa.string(), "reason for a missing label", null=True),
        ]
    ),
)

JUDGE_PROBE = Table(
    "judge_probe",
    ("kind",),
    "share of wrong replies of the judge per kind of probe",
    pa.schema(
        [
            column("kind", pa.string(), "kind of probe"),
            column(
                "measure",
                pa.string(),
                "false positive rate: share called relevant; flip rate: share with another label than the unchanged "
                "pair",
            ),
            column("pairs", pa.int64(), "probes with a readable reply, the basis of the rate"),
            column("wrong", pa.int64(), "false positives, or flips, among them"),
            column("unreadable", pa.int64(), "probes without a readable label, of the altered or the unchanged pair"),
            column(
                "unanswered", pa.int64(), "probes that were not judged, because a limit or a failure stopped probing"
            ),
            column(
                "excluded", pa.int64(), "probes that can show nothing: the unchanged pair is already called relevant"
            ),
            column("rate", pa.float64(), "wrong / pairs; null without pairs, or with unanswered probes", null=True),
            column("low", pa.float64(), "lower end of its 95 % Wilson interval", null=True),
            column("high", pa.float64(), "upper end", null=True),
            column(
                "noise",
                pa.float64(),
                "flip rate of pairs that were judged twice unchanged, for comparison; null if unknown",
                null=True,
            ),
            column("skipped", pa.string(), "why the kind has no probes; null if it has", null=True),
            column("judge_ids", pa.list_(pa.string()), "judges that replied"),
        ]
    ),
)

PROBE_TABLES = (JUDGE_PROBE, JUDGE_PROBES)
