"""Reads the findings of a group, and checks what holds for all of them."""

from collections.abc import AsyncIterator

from plimsoll_cli.doctor.finding import Finding, Verdict


async def found(checks: AsyncIterator[Finding]) -> list[Finding]:
    """All findings of a group. Each but an `ok` has a remedy, and no secret stands in any."""
    findings = [finding async for finding in checks]
    for one in findings:
        assert one.verdict is Verdict.OK or one.remedy, one
        assert "secret" not in one.text + one.remedy, one
    return findings


def of(findings: list[Finding], check: str) -> Finding:
    """The only finding of a check."""
    [one] = [each for each in findings if each.check == check]
    return one


def verdicts(findings: list[Finding]) -> dict[str, str]:
    """The verdict of each check; a check with several has the last."""
    return {one.check: one.verdict.value for one in findings}
