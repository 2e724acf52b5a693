"""How close simulations are to this machine's kernel, as a study: `python -m studies linux`."""

from studies.linux.report import view as view
from studies.linux.runs import jobs as jobs
from studies.linux.runs import work as work
