"""with_pypjrt.py PLUGIN LIBPOSTERN: what client.py does, with pypjrt from PyPI as the client of
PJRT. Its own handlers are functions of Python that get the bare call frame; registered as below,
Postern's takes their place: typed errors, limits of time, queues, listeners, the live page.
"""

import ctypes as c
import sys

import pypjrt
from client import PROGRAM, serve_roots


def register(plugin, name, handler, platform="Host"):
    """pypjrt.ffi.register does so for functions of Python; this handler is native."""
    names = [c.create_string_buffer(n.encode()) for n in (name, platform)]
    target, of = (c.cast(n, c.c_void_p) for n in names)
    args = plugin.args(
        "PJRT_FFI_Register_Handler_Args",
        target_name=target,
        target_name_size=len(name),
        handler=handler,
        platform_name=of,
        platform_name_size=len(platform),
    )
    of_table = plugin.require_extension("FFI").address + 40  # register_handler
    entry = c.cast(of_table, c.POINTER(c.c_void_p))[0]
    if c.CFUNCTYPE(c.c_void_p, c.c_void_p)(entry)(c.byref(args)):
        raise RuntimeError(f"the plug-in takes no handler {name!r}")


def main(path, postern):
    pn, kept = serve_roots(postern)
    plugin = pypjrt.Plugin(path)
    register(plugin, "postern_guest", pn.pn_guest_handler())
    with pypjrt.Client.create(plugin) as client, client.devices() as devices:
        program = client.compile(PROGRAM)

        def run(values):
            given = (c.c_float * len(values))(*values)
            taken = (c.c_float * len(values))()
            (result,) = program(client.buffer_from_host(given, 11, [len(values)], devices[0]))
            result.to_host(taken)
            return list(taken)

        print(run([1, 4, 9]))
        try:
            run([1, -4, 9])
        except pypjrt.errors.PjrtError as e:
            print(f"{type(e).__name__}: {e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
