"""The image cannot be pulled, does not exist, or is built for another architecture."""

from kfjob.joblog.diagnose.rule import Rule, Subject

RULES = (
    Rule(
        id="pull-secret-expired",
        title="the registry token of the pull secret has expired, or has no pull permission",
        cause=(
            "an ECR token is valid for 12 hours, and so is a pull secret that contains one; ECR then answers 403 (without a "
            "token it answers 401)"
        ),
        remedy=(
            "create the secret again (`aws ecr get-login-password`), or better: let the node's role pull "
            "(AmazonEC2ContainerRegistryReadOnly) and remove the secret"
        ),
        subject=Subject.POD,
        pattern=r"[Tt]oken has expired|ExpiredToken|token.*expired|\.dkr\.ecr\.\S+?\.amazonaws\.com\S*.*403 Forbidden",
    ),
    Rule(
        id="image-wrong-architecture",
        title="the image is not built for the node's processor",
        cause="the image has no variant for this architecture (an arm64 laptop's image on amd64 nodes, or the reverse)",
        remedy="build for the nodes with `--platform linux/amd64` (arm64 for Graviton and GH200)",
        subject=Subject.POD,
        pattern=r"no match for platform|exec format error|no matching manifest",
    ),
    Rule(
        id="image-not-found",
        title="the image does not exist",
        cause="the registry has no such repository or tag",
        remedy="check {image}; `kfjob push-image` pushes an image and prints its digest",
        subject=Subject.POD,
        pattern=r"(?:ErrImagePull|ImagePullBackOff).*(?:not found|NotFound|manifest unknown|name unknown)|ErrImageNeverPull",
    ),
    Rule(
        id="pull-denied",
        title="the registry denies access to the image",
        cause="it needs credentials that the node does not have, or the repository does not exist and the registry hides that",
        remedy="set a pull secret (`image_pull_secrets`), or let the node's role pull; check the account and region in {image}",
        subject=Subject.POD,
        pattern=r"(?:ErrImagePull|ImagePullBackOff|pull).*(?:denied|nauthorized|authorization failed|no basic auth|401"
        r"|403 Forbidden)",
    ),
    Rule(
        id="image-name-invalid",
        title="the image name is invalid",
        cause="{image} cannot be parsed: it contains capital letters, spaces or an empty part",
        remedy="write it as `registry/repository:tag`",
        subject=Subject.POD,
        pattern=r"InvalidImageName",
    ),
    Rule(
        id="registry-unreachable",
        title="the node cannot reach the registry",
        cause="the registry's name does not resolve, or nothing answers there",
        remedy="check the registry in {image}, and the nodes' route to it (NAT, VPC endpoints for ECR and S3)",
        subject=Subject.POD,
        pattern=r"(?:ErrImagePull|ImagePullBackOff).*(?:no such host|i/o timeout|connection refused|TLS|x509|dial tcp"
        r"|server misbehaving)",
    ),
    Rule(
        id="image-pull",
        title="the image cannot be pulled",
        cause="the kubelet's message gives the reason",
        remedy="`kubectl describe pod {pod}` shows the whole message",
        subject=Subject.POD,
        pattern=r"ErrImagePull|ImagePullBackOff|RegistryUnavailable",
    ),
)
