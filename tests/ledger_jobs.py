"""Jobs for tests of the ledger."""

from dataclasses import dataclass

from bbrgym.benchmark.ledger import Rows


@dataclass(frozen=True)
class NumberedJob:
    """A number to square."""

    number: int
    version: str = "a"

    @property
    def name(self) -> str:
        """The number."""
        return str(self.number)

    @property
    def code(self) -> str:
        """The version of the code, and the number."""
        return f"{self.version}{self.number}"


def square(job: NumberedJob) -> Rows:
    """Return the square of a number, with its divisors; refuse a negative one."""
    if job.number < 0:
        raise ValueError("negative")
    return [{"square": job.number**2, "third": job.number / 3, "below": list(range(job.number)), "text": "a"}]
