"""The one place where errors of boto3 and botocore become ours.

no credentials, a broken profile or SSO login     Forbidden or UsageError, with the command that mends it
expired or unknown credentials                    Forbidden
a right is missing                                Forbidden, with the action and who lacks it
a policy of the repository says no                Forbidden, with whose policy it is
the region does not exist or does not answer      Unreachable
throttled or 5xx, after all attempts              BackendError
anything else                                     Refused
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from kfjob.errors import BackendError, Forbidden, KfjobError, Refused, Unreachable, UsageError

_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired")
_UNKNOWN = ("InvalidClientTokenId", "UnrecognizedClientException", "InvalidSignatureException", "SignatureDoesNotMatch")
_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AccessDeniedByResourcePolicyException")
_THROTTLED = ("Throttling", "ThrottlingException", "TooManyRequestsException", "RequestLimitExceeded")
_SERVER_FAULT = 500
_ACTION = re.compile(r"not authorized to perform: ([\w-]+:\w+)")
_WHO = re.compile(r"User: (\S+) is")


@contextlib.contextmanager
def translate_errors(action: str, what: str, *, profile: str | None, region: str) -> Iterator[None]:
    """Errors of botocore become ours within. `action` (`ecr:CreateRepository`) is what was asked for, `what` it is about."""
    try:
        import botocore.exceptions as b
    except ImportError as err:  # a slim image of kfjob
        raise UsageError("ECR needs boto3", hint="pip install boto3") from err
    try:
        yield
    except b.ClientError as err:
        raise _refused(err, action, what, profile=profile, region=region) from err
    except b.BotoCoreError as err:
        raise _before_asking(err, b, profile=profile, region=region) from err


@contextlib.contextmanager
def absent(*codes: str) -> Iterator[list[str]]:
    """Errors of these codes are an answer: the list is then not empty."""
    from botocore.exceptions import ClientError

    found: list[str] = []
    try:
        yield found
    except ClientError as err:
        if err.response.get("Error", {}).get("Code") not in codes:
            raise
        found.append(str(err))


def make_credentials_error(profile: str | None) -> KfjobError:
    """Nobody is logged in."""
    looked = f"profile `{profile}`" if profile else "the environment, the AWS configuration, and the role of this machine"
    hint = "`aws configure` or `aws sso login`; `aws sts get-caller-identity` shows who you are"
    return Forbidden("no AWS credentials were found", cause=f"looked in {looked}", hint=hint)


def parse_push_error(text: str, where: str) -> KfjobError | None:
    """What ECR's registry meant by a refusal of a push or pull, if its text is one of ECR's own; None: another registry's."""
    if not _ACTION.search(text):
        return None
    return _denied(text, "", where)


def _before_asking(err: Exception, b: Any, *, profile: str | None, region: str) -> KfjobError:  # noqa: PLR0911 - a table
    cause = str(err)
    option = f" --profile {profile}" if profile else ""
    match err:
        case b.ProfileNotFound():
            return UsageError(
                f"there is no AWS profile `{profile}`", hint="`aws configure list-profiles` shows those there are"
            )
        case b.NoCredentialsError():
            return make_credentials_error(profile)
        case b.PartialCredentialsError() | b.CredentialRetrievalError():
            return Forbidden("the AWS credentials are incomplete or cannot be had", cause=cause, hint="`aws configure`")
        case b.SSOError() | b.TokenRetrievalError() | b.SSOTokenLoadError() | b.UnauthorizedSSOTokenError():
            return Forbidden("the SSO login has ended", cause=cause, hint=f"`aws sso login{option}`")
        case b.NoRegionError():
            return UsageError("no AWS region is said anywhere", hint="`--region eu-west-1`, or `AWS_REGION`")
        case b.InvalidRegionError() | b.EndpointConnectionError() | b.EndpointVariantError() | b.UnknownEndpointError():
            hint = "check the region, and that the network (VPN, proxy, VPC endpoint) leads there"
            return Unreachable(f"AWS does not answer in region `{region}`", cause=cause, hint=hint)
        case b.HTTPClientError():
            return Unreachable("AWS does not answer", cause=cause, hint="check the network, VPN and proxy")
        case _:
            return Refused("the AWS configuration is not usable", cause=cause)


def _refused(err: Any, action: str, what: str, *, profile: str | None, region: str) -> KfjobError:  # noqa: PLR0911 - a table
    said = err.response.get("Error", {})
    code, message = str(said.get("Code", "")), str(said.get("Message", ""))
    status = int(err.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    cause = f"{code}: {message}" if message else code
    option = f" --profile {profile}" if profile else ""
    if code in _EXPIRED:
        return Forbidden("the AWS credentials have expired", cause=cause, hint=f"`aws sso login{option}`, or get new ones")
    if code in _UNKNOWN:
        return Forbidden(
            "AWS does not know these credentials", cause=cause, hint="`aws configure`; is the machine's clock right?"
        )
    if code == "OptInRequired":
        return Forbidden(f"region `{region}` is not enabled for this account", cause=cause)
    if code in _DENIED or _ACTION.search(message):
        return _denied(message, action, what)
    if code in _THROTTLED or status >= _SERVER_FAULT:
        title = f"AWS {'is being asked too often' if code in _THROTTLED else 'failed'} at `{action}`"
        return BackendError(title, cause=cause, hint="try again in a minute")
    if code == "RepositoryNotFoundException":
        hint = f"was it made in another region than `{region}`? `--region` says which"
        return Refused(f"there is no repository `{what}`", cause=message, hint=hint)
    return Refused(f"ECR refused `{action}` for `{what}`", cause=cause)


def _denied(message: str, action: str, what: str) -> KfjobError:
    found = _ACTION.search(message)
    action = found[1] if found else action
    who = _WHO.search(message)
    title = f"not allowed to `{action}`" + (f" at `{what}`" if what else "")
    hint = (
        f"ask for `{action}`"
        + (f" for `{who[1]}`" if who else "")
        + "; docs/guides/images.md has a policy with all that is needed"
    )
    if "resource-based policy" in message or "in a resource policy" in message:
        hint = f"the repository's own policy must allow `{action}`: `aws ecr get-repository-policy` shows it to its owner"
    return Forbidden(title, cause=message, hint=hint)
