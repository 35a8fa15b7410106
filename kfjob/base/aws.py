"""Open sessions of boto3, and translate its errors and those of botocore.

no credentials, or AWS does not accept them     Forbidden, with the command that gets new ones
a missing right                                 Forbidden, with the action, the user and where to ask
AWS does not answer                             Unreachable
throttled or 5xx, after all attempts            BackendError
anything else                                   Refused
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from kfjob.base.errors import BackendError, Forbidden, KfjobError, Refused, Unreachable, UsageError

_NOT_ACCEPTED = (
    *("ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidClientTokenId", "UnrecognizedClientException"),
    "InvalidAccessKeyId",
    *("InvalidSignatureException", "SignatureDoesNotMatch", "OptInRequired"),
)
_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AccessDeniedByResourcePolicyException")
_THROTTLED = ("Throttling", "ThrottlingException", "TooManyRequestsException", "RequestLimitExceeded")
_SERVER_ERROR = 500
_ACTION = re.compile(r"not authorized to perform: ([\w-]+:\w+)")
_USER = re.compile(r"User: (\S+) is")
_GUIDES = {"s3": "unattended"}
"""The guide with the policy for a service; that of the others is about images."""


def open_session(*, profile: str | None = None, region: str | None = None) -> Any:
    """Return a session of boto3, which alone does not read `AWS_REGION`."""
    import boto3

    return boto3.Session(profile_name=profile, region_name=region or os.environ.get("AWS_REGION") or None)


@contextlib.contextmanager
def translate_errors(action: str, resource: str, *, profile: str | None, region: str) -> Iterator[None]:
    """Raise errors of botocore in the block as a KfjobError; `action` is the AWS action (`ecr:CreateRepository`)."""
    try:
        import botocore.exceptions as b
    except ImportError as err:  # a slim image of kfjob
        raise UsageError("AWS needs boto3", hint="run `pip install boto3`") from err
    try:
        yield
    except b.ClientError as err:
        raise _translate_response(err, action, resource, profile=profile) from err
    except b.BotoCoreError as err:
        if "header value" in str(err):  # the message quotes the key
            hint = "write the key without a line end: `printf %s KEY`, not `echo KEY`"
            raise Forbidden("an AWS key has a character that no key has, such as a line end", hint=hint) from None
        raise _translate_client_error(err, b, profile=profile, region=region) from err


def call_or_none(call: Callable[[], dict[str, Any]], *codes: str) -> dict[str, Any] | None:
    """Return the response of an AWS call; None if AWS responds with one of these error codes."""
    from botocore.exceptions import ClientError

    try:
        return call()
    except ClientError as err:
        if err.response.get("Error", {}).get("Code") not in codes:
            raise
        return None


def make_credentials_error(profile: str | None) -> KfjobError:
    """Return the error for missing AWS credentials."""
    searched = f"profile `{profile}`" if profile else "the environment, the AWS configuration and the role of this machine"
    hint = "`aws configure` or `aws sso login`; `aws sts get-caller-identity` shows your identity"
    return Forbidden("no AWS credentials were found", cause=f"searched {searched}", hint=hint)


def parse_push_error(text: str, repository: str) -> KfjobError | None:
    """Return the error that ECR means by its refusal of a push or pull; None if the text is not ECR's."""
    if not _ACTION.search(text):
        return None
    return _make_denied_error(text, "", repository)


def _translate_client_error(err: Exception, b: Any, *, profile: str | None, region: str) -> KfjobError:
    option = f" --profile {profile}" if profile else ""
    match err:
        case b.ProfileNotFound():
            hint = "`aws configure list-profiles` lists the profiles"
            return UsageError(f"AWS profile `{profile}` does not exist", hint=hint)
        case b.NoCredentialsError():
            return make_credentials_error(profile)
        case b.PartialCredentialsError() | b.CredentialRetrievalError() | b.SSOError() | b.TokenRetrievalError():
            hint = f"`aws sso login{option}`, or `aws configure`"
            return Forbidden("the AWS credentials cannot be used", cause=str(err), hint=hint)
        case b.InvalidRegionError() | b.ConnectionError() | b.HTTPClientError() | b.UnknownEndpointError():
            hint = "check the name of the region, and the network (VPN, proxy, VPC endpoint)"
            return Unreachable(f"AWS does not answer{f' in region `{region}`' if region else ''}", cause=str(err), hint=hint)
        case b.IncompleteReadError():
            return Unreachable("an answer of AWS is not complete", cause=str(err), hint="try again")
        case _:
            return Refused("the AWS configuration is invalid", cause=str(err))


def _translate_response(err: Any, action: str, resource: str, *, profile: str | None) -> KfjobError:
    error = err.response.get("Error", {})
    code, message = str(error.get("Code", "")), str(error.get("Message", ""))
    status = int(err.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    cause = f"{code}: {message}" if message else code
    option = f" --profile {profile}" if profile else ""
    if code in _NOT_ACCEPTED:
        hint = f"`aws sso login{option}` or `aws configure`; check the machine's clock too"
        return Forbidden("AWS does not accept these credentials", cause=cause, hint=hint)
    if code in _DENIED or _ACTION.search(message):
        return _make_denied_error(message, action, resource)
    if code in _THROTTLED or status >= _SERVER_ERROR:
        return BackendError(f"AWS failed at `{action}`", cause=cause, hint="try again in a minute")
    return Refused(f"{action.partition(':')[0].upper()} refused `{action}` for `{resource}`", cause=cause)


def _make_denied_error(message: str, action: str, resource: str) -> KfjobError:
    match = _ACTION.search(message)
    action = match[1] if match else action
    user = _USER.search(message)
    title = f"not allowed to `{action}`" + (f" at `{resource}`" if resource else "")
    subject = f" for `{user[1]}`" if user else ""
    guide = _GUIDES.get(action.partition(":")[0], "images")
    hint = f"ask for `{action}`{subject}; docs/guides/{guide}.md has a policy with all rights that kfjob needs"
    if guide == "images" and ("resource-based policy" in message or "in a resource policy" in message):
        hint = f"the repository's own policy must allow `{action}`; its owner sees it with `aws ecr get-repository-policy`"
    return Forbidden(title, cause=message, hint=hint)
