"""gradcheck.py TESTS LIBRARY: torch's own gradcheck and gradgradcheck of a model
that holds a program of Postern.

TESTS writes the model; this process loads it with LIBRARY, postern::torch.
"""

import os
import subprocess
import sys
import tempfile


def main():
    try:
        import torch
    except ImportError:
        sys.exit(print("no Python package of torch: scripts/bootstrap --torch gets it"))
    tests, library = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "model.pt")
        subprocess.run(
            [tests, "--gtest_brief=1", "--gtest_filter=TorchScripted.IsWrittenForPython"],
            env={**os.environ, "POSTERN_TORCH_WRITE": file},
            check=True,
        )
        torch.classes.load_library(library)
        model = torch.jit.load(file)
    torch.manual_seed(1)
    x = torch.randn(2, 3, dtype=torch.double, requires_grad=True)
    expected = 2 * torch.tanh(x @ model.w).sum(dim=1)
    assert torch.allclose(model(x), expected)
    assert torch.autograd.gradcheck(model, (x,))
    assert torch.autograd.gradgradcheck(model, (x,))
    w = torch.randn(3, 2, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(model.layer, (x, w))
    assert torch.autograd.gradgradcheck(model.layer, (x, w))
    print("gradcheck and gradgradcheck pass")


main()
