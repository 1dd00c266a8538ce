"""Settings that several sections share: type, bounds and description, each declared once."""

from typing import Annotated

from pydantic import Field, JsonValue

from darklode.schemas.section import Bound, NoRow, Rate, Section, Share

# A model behind an OpenAI-compatible server
ApiKeyEnv = Annotated[
    NoRow[str],
    Field(description="Environment variable that holds the server's API key. Empty: send no key."),
]
Timeout = Annotated[NoRow[float], Field(gt=0, description="Seconds until a request counts as failed.")]
RetryTimeout = Annotated[NoRow[float], Field(gt=0, description="Seconds of failed retries after which the run stops.")]
MaxConcurrency = Annotated[
    NoRow[int],
    Field(gt=0, description="Maximum number of concurrent requests; reduced automatically while the server throttles."),
]
SpendingLimit = Annotated[
    NoRow[float | None],
    Field(ge=0, description="Stop before spending exceeds this amount. Needs the prices. null: no limit."),
]
ExtraBody = Annotated[
    dict[str, JsonValue],
    Field(
        description="Fields added to every request body, such as max_tokens or chat_template_kwargs. A null value "
        "removes one of Darklode's fields."
    ),
]

ServerUrl = (
    "URL of the OpenAI-compatible server, such as http://127.0.0.1:8000/v1, without user name, password or key. For "
    "the judge also several (a list, or separated by commas): replicas of one model."
)

# A model on this machine
ModelName = "Model name, as the server or the kind takes it."
Device = "auto (a GPU if there is one, models use all GPUs; else the CPU), cpu or cuda; for models also cuda:N."
ModelPath = (
    "Model name on the Hugging Face hub, a local folder, or package:NAME for an installed Python package. fastembed: a "
    "name in its list, or a local folder."
)
Revision = Annotated[
    str | None,
    Field(description="Commit or tag on the hub. null: the revision in the local cache, else the newest."),
]
TruncateDim = Annotated[
    int | None,
    Field(gt=0, description="Keep only the first N dimensions of each vector (Matryoshka models). null: all."),
]
QueryPrompt = Annotated[str, Field(description="Text put before every query.")]
DocumentPrompt = Annotated[str, Field(description="Text put before every chunk.")]
BatchSize = "Texts or pairs per forward pass; kind openai: maximum number of texts per request."


class LocalModelSection(Section):
    """How a model of the Hugging Face hub, or of a folder, runs on this machine."""

    revision: Revision = None
    max_seq_length: int | None = Field(
        None, gt=0, description="Truncate inputs to this many tokens. null: the model's own limit."
    )
    device: NoRow[str] = Field("auto", description=Device)
    batch_size: NoRow[int] = Field(32, gt=0, description=BatchSize)


class OnnxModelSection(Section):
    """How fastembed runs an ONNX model on this machine."""

    revision: Revision = None
    batch_size: NoRow[int] = Field(32, gt=0, description=BatchSize)


# Training positives and mined negatives
NumNegatives = Annotated[int, Field(gt=0, description="Hard negatives per positive (DevRev-Search, A.4: 16).")]
RelativeMargin = Annotated[
    Share,
    Field(
        description="A mined negative must score below s⁺ − |s⁺|·margin, where s⁺ is the positive's score; higher "
        "ones are probably unlabelled positives."
    ),
]
AllowSameDocumentNegatives = Annotated[
    bool, Field(description="Allow chunks of a document that contains a positive of the query as its negatives.")
]

# Training runs
MaxStepsDescription = (
    "Maximum training steps. The checkpoint that is best on held-out queries is kept. null, for `adapt` only: 1,000 "
    "for heads and laws; for lora, top_n and full five epochs, at least 300 and at most 5,000."
)
MaxSteps = Annotated[int, Field(gt=0, description=MaxStepsDescription)]
LearningRates = Annotated[
    Bound[tuple[Rate, ...]],
    Field(
        description="Learning rates to try one after the other; the one that is best on held-out queries is kept. "
        "Empty, for `adapt` only: 3e-5, 1e-4 and 3e-4 for heads, 3e-4 for lora, 3e-5 for full, 5e-6, 1e-5 and 3e-5 for "
        "top_n. "
        "Papers: DevRev-Search 5e-6; ScalingNote, Table 7, 3e-6 for both towers."
    ),
]
TrainBatchSize = Annotated[
    int,
    Field(
        gt=0,
        description="Queries per step (`dual`: triplets, over all processes; `reranker`: pairs). ScalingNote: 480 for "
        "both towers, 40,000 for distillation.",
    ),
]
ReportTo = Annotated[
    NoRow[tuple[str, ...]],
    Field(description="Trackers of the training (transformers' report_to): tensorboard, wandb, mlflow. Empty: none."),
]
EvalQueries = Annotated[
    int,
    Field(
        gt=0,
        description="Maximum number of held-out queries for the evaluation during training. `distill` holds out as "
        "many again for its final report, and at most a tenth of all queries each.",
    ),
]

# Reading of input files
InputFormat = "File format. auto: by file extension, or by the files in the folder (ubi if there are ubi_events)."
Statement = Annotated[
    NoRow[str],  # its rows decide, which are compared as files
    Field(description="SQL that selects the rows of a database, if its address names no table."),
]
MaskPersonalData = Annotated[
    bool,
    Field(description="Mask e-mail addresses, phone and card numbers, IP and MAC addresses, and tokens in queries."),
]

# Prompts
PromptName = (
    "Prompt: a name in prompts/judge (judge), prompts/generate (generate) or prompts/towers (dual), or a folder with "
    "the same files. `dual` uses it for decoder models only."
)
