"""schemathesis against the OpenAPI description, in this process: no request makes a 500 or an undocumented answer."""

from __future__ import annotations

import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of libraries that schemathesis loads


pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("default")]
EXAMPLES = 12
