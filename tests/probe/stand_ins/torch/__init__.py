from torch import generation

__version__ = generation.FULL
from torch import _C as _C
from torch import autograd as autograd
from torch import cuda as cuda
from torch import version as version
