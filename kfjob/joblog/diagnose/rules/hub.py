"""The Hugging Face hub refuses a token, does not have a repository, or is not reachable."""

from kfjob.joblog.diagnose.rule import Role, Rule

RULES = (
    Rule(
        id="hub-token-scope",
        title="the hub's token may not read gated repositories",
        cause="it is a fine-grained token, which reads gated repositories only with a permission of its own",
        remedy=(
            "enable access to public gated repositories in the token's settings (huggingface.co/settings/tokens), or use a "
            "token with the role read"
        ),
        pattern=r"gated repositories in your fine-grained token|fine-grained token settings",
    ),
    Rule(
        id="hub-gated",
        title="the account of the hub's token has no access to a gated repository (HTTP 403)",
        cause="the account has not accepted the repository's terms, or its authors have not granted the request yet",
        remedy="open the repository's page with the account of `HF_TOKEN`, accept the terms and wait until access is granted",
        pattern=r"not in the authorized list|is awaiting a review|[Gg]ated ?[Rr]epo[\s\S]*?403 Client Error"
        r"|403 Client Error[\s\S]*?gated repo",
        unless=("fine-grained token",),
    ),
    Rule(
        id="hub-token-invalid",
        title="the hub does not accept the token (HTTP 401)",
        cause="`HF_TOKEN` is wrong, expired or revoked, is cut off, or has quotes or a line end around it",
        remedy="create a new token (huggingface.co/settings/tokens), and pass it as a secret without quotes",
        local_remedy="create a new token (huggingface.co/settings/tokens), and set `HF_TOKEN` without quotes",
        pattern=r"Invalid user token|Invalid credentials in Authorization|401 Client Error: Unauthorized for url: \S+/whoami",
    ),
    Rule(
        id="hub-auth",
        title="the hub refuses access",
        cause="the repository is gated or private, and the request had no token, or that of an account without access",
        remedy="accept the terms on the repository's page, and pass the token as a secret (`HF_TOKEN` from a secret)",
        local_remedy="accept the terms on the repository's page, and set `HF_TOKEN`",
        # without a token, the hub also answers 401 for a repository that does not exist
        pattern=r"access(?:ing)? (?:a )?gated repo|is a gated dataset on the Hub|GatedRepoError|401 Client Error",
        unless=("RepositoryNotFoundError",),
        role=Role.SUSPECT,  # a rule above may know more from another paragraph of the same answer
    ),
    Rule(
        id="hub-forbidden",
        title="the hub's token has no right for this (HTTP 403)",
        cause="the token is valid, but it has only the role read, or its account is no member of the organisation",
        remedy="use a token with the role write, of an account that may write to the namespace, or another repository name",
        pattern=r"(?:huggingface|HfHub)[\s\S]*?403 (?:Forbidden|Client Error)"
        r"|403 (?:Forbidden|Client Error)[\s\S]*?(?:huggingface\.co|hf\.co)",
        unless=("gated",),
    ),
    Rule(
        id="dataset-not-found",
        futile_after=2,
        title="data set `{name}` cannot be found",
        cause="the hub has no such data set, or this token has no access to it",
        remedy="check the name; a private data set needs `HF_TOKEN`; a folder must exist inside the container",
        local_remedy="check the name; a private data set needs `HF_TOKEN`; a folder must exist on this machine",
        unless=("is a gated dataset",),
        pattern=r"(?:DatasetNotFoundError.*)?Dataset '(?P<name>[^']*)' doesn't exist on the Hub|DatasetNotFoundError"
        r"|Couldn't find (?:a dataset script|any data file) at (?P<name2>\S+?)\.?(?:\s|$)",
    ),
    Rule(
        id="model-not-found",
        futile_after=2,
        title="`{name}` is neither a folder nor a model on the hub",
        cause="the name is misspelt, the repository is private, or the folder does not exist",
        remedy="check the name; a path must exist inside the container; a private repository needs `HF_TOKEN`",
        local_remedy="check the name; a path must exist on this machine; a private repository needs `HF_TOKEN`",
        pattern=r"(?P<name>\S+) is not a local folder and is not a valid model identifier"
        r"|Repository Not Found for url: https?://[^/\s]+/(?:api/(?:model|dataset)s/|datasets/)?"
        r"(?:(?P<name4>[^/\s]+)/(?:resolve|revision)/|(?P<name5>[^/\s]+(?:/[^/\s]*[^/\s.])?))"
        r"|(?P<name2>\S+) is not a local folder or a valid repository|RepositoryNotFoundError"
        r"|Repo id must be in the form .*: '(?P<name3>[^']*)'",
    ),
    Rule(
        id="hub-unreachable",
        title="the hub cannot be reached",
        cause="there is no route to the internet, or no DNS for it",
        remedy=(
            "give the pods internet access (NAT, or a proxy in `HTTPS_PROXY`), or put model and data on a volume and set "
            "`HF_HUB_OFFLINE=1`"
        ),
        local_remedy="check the network and `HTTPS_PROXY`, or download model and data first and set `HF_HUB_OFFLINE=1`",
        pattern=r"[Ww]e couldn't connect to 'http|LocalEntryNotFoundError|OfflineModeIsEnabled"
        r"|(?:Max retries exceeded|Failed to resolve|Connection ?Error|Connection refused|name resolution"
        r"|timed out).*(?:huggingface|hf)\.co"
        r"|5\d\d Server Error[^\n]*(?:huggingface|hf)\.co"
        r"|(?:huggingface|hf)\.co.*(?:Max retries exceeded|Failed to resolve|name resolution|timed out)",
    ),
    Rule(
        id="hub-rate-limit",
        title="the hub rejects requests: too many at once",
        cause="every rank requests the same files from the hub",
        remedy="download once to a shared volume (`HF_HOME` on it), set `HF_TOKEN`, or let rank 0 download first",
        pattern=r"429 Client Error|Too Many Requests|HTTP Error 429 thrown",
    ),
)
