"""client.py PLUGIN LIBPOSTERN: a client of PJRT's C API of its own, in ctypes alone, whose programs
call host functions by Postern's handler. Whoever has a client of PJRT in another language does as
much: one call registers the handler, one each function; limits, errors, queues are Postern's.
"""

import ctypes as c
import sys

WORD = c.c_size_t


def words(*values):
    """An argument struct: its size, no extension, then members of eight bytes each."""
    made = (WORD * (len(values) + 2))(0, 0, *(0 if v is None else v for v in values))
    made[0] = c.sizeof(made)
    return made


def at(pointer, index):
    return c.cast(pointer, c.POINTER(WORD))[index]


def text(data, size):
    return c.string_at(data, size).decode()


class Client:
    """What a program needs: compile, an array in, an array out. Indices are those of PJRT_Api."""

    def __init__(self, plugin):
        library = c.CDLL(plugin)
        library.GetPjrtApi.restype = WORD
        self.api = library.GetPjrtApi()
        self.call(3, words())  # PJRT_Plugin_Initialize
        self.client = self.call(10, words(*[0] * 6, None, 0, 0))[8]
        self.device = at(self.call(16, words(self.client, 0, 0))[3], 0)

    def call(self, index, args, function=None):
        # Behind size, extensions and the version's three words is the table.
        function = function or at(self.api, 5 + index)
        error = c.CFUNCTYPE(WORD, c.c_void_p)(function)(args)
        if error:
            told = words(error, 0, 0)
            c.CFUNCTYPE(None, c.c_void_p)(at(self.api, 6))(told)
            message = text(told[3], told[4])
            c.CFUNCTYPE(None, c.c_void_p)(at(self.api, 5))(words(error))
            raise RuntimeError(message)
        return args

    def register(self, name, handler, platform="Host"):
        extension = at(self.api, 1)
        while at(extension, 1) & 0xFFFFFFFF != 5:  # PJRT_Extension_Type_FFI
            extension = at(extension, 2)
        names = [c.create_string_buffer(n.encode()) for n in (name, platform)]
        target, of = map(c.addressof, names)
        args = (WORD * 7)(52, target, len(name), handler, of, len(platform), 0)
        self.call(0, args, at(extension, 5))  # register_handler

    def compile(self, stablehlo):
        code, kind = stablehlo.encode(), b"mlir"
        options = b"\x1a\x04\x20\x01\x28\x01"  # one replica of one partition
        keep = [c.create_string_buffer(b, len(b)) for b in (code, kind, options)]
        program = words(c.addressof(keep[0]), len(code), c.addressof(keep[1]), len(kind))
        place = [self.client, c.addressof(program), c.addressof(keep[2]), len(options), 0]
        return self.call(20, words(*place))[6]

    def run(self, executable, values):
        count = len(values)
        array, dims = (c.c_float * count)(*values), (c.c_int64 * 1)(count)
        of_array = [self.client, c.addressof(array), 11, c.addressof(dims), 1, 0, 0, 0, self.device]
        buffer = self.call(22, words(*of_array, 0, 0, 0, 0))[14]  # copied before it returns
        options = words(*[0] * 11, 0)
        inner, out = (WORD * 1)(buffer), (WORD * 1)(0)
        lists = [(WORD * 1)(c.addressof(x)) for x in (inner, out)]
        ended = (WORD * 1)(0)
        places = [c.addressof(x) for x in (options, lists[0], lists[1], ended)]
        self.call(55, words(executable, places[0], places[1], 1, 1, places[2], places[3], 0))
        self.call(8, words(ended[0]))  # PJRT_Event_Await
        result = (c.c_float * count)()
        copied = self.call(70, words(out[0], 0, c.addressof(result), c.sizeof(result), 0))[6]
        self.call(8, words(copied))
        return list(result)


PROGRAM = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = "stablehlo.custom_call"(%x) {call_target_name = "postern_guest", api_version = 4 : i32,
      has_side_effect = true, backend_config = {function = "demo.roots", name = "roots",
      file = "client.py", line = 1 : i64, kind = "call", timeout = 2000000000 : i64}}
      : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}"""


class Array(c.Structure):  # pn_array of postern/c.h
    _fields_ = [("dtype", c.c_int32), ("rank", c.c_int32), ("dims", WORD), ("data", WORD),
                ("bytes", WORD)]  # fmt: skip


class Firing(c.Structure):  # pn_firing, as far as it is needed
    _fields_ = [("function", c.c_char_p), ("site", c.c_char_p), ("attributes", c.c_char_p),
                ("device", c.c_int32), ("run", c.c_uint64), ("element", c.c_int64),
                ("operand_count", WORD), ("result_count", WORD),
                ("operands", c.POINTER(Array)), ("results", c.POINTER(Array))]  # fmt: skip


def serve_roots(postern):
    """Makes the function of PROGRAM known to Postern; what comes back must be kept."""
    pn = c.CDLL(postern)
    pn.pn_guest_handler.restype = WORD
    entry = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(Firing))

    @entry
    def roots(_, firing):
        taken, given = firing.contents.operands[0], firing.contents.results[0]
        values = (c.c_float * 3).from_address(taken.data)
        if min(values) < 0:
            pn.pn_fail(f"a root of {min(values)}".encode())
            return 100  # PN_THREW
        (c.c_float * 3).from_address(given.data)[:] = [v**0.5 for v in values]
        return 0

    pn.pn_register(b"demo.roots", roots, None, None, 0)
    return pn, roots


def main(plugin, postern):
    pn, kept = serve_roots(postern)
    client = Client(plugin)
    client.register("postern_guest", pn.pn_guest_handler())
    program = client.compile(PROGRAM)
    print(client.run(program, [1, 4, 9]))
    try:
        client.run(program, [1, -4, 9])
    except RuntimeError as e:
        print(e)


if __name__ == "__main__":
    main(*sys.argv[1:])
