from torch import generation

__version__ = generation.FULL
from torch import _C as _C  # noqa: E402
from torch import autograd as autograd  # noqa: E402
from torch import cuda as cuda  # noqa: E402
from torch import version as version  # noqa: E402
