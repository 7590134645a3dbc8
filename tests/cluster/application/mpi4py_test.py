"""mpi4py_test LIBRARY PROGRAM: mpi4py has begun MPI, and has messages of its own under way while a
saved program over the processes runs. Skipped where mpi4py, or a library to load, is missing."""
import ctypes
import sys

if ".so" not in sys.argv[1]:
    sys.exit("no mpi4py: this build of postern is no library that Python can load")
try:
    from mpi4py import MPI
except ImportError as error:
    sys.exit(f"no mpi4py: {error}")


class Array(ctypes.Structure):
    _fields_ = [
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
    ]


F32 = 15
postern = ctypes.CDLL(sys.argv[1])
postern.pn_last_error.restype = ctypes.c_char_p
world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()


def ok(code):
    if code:
        sys.exit(f"process {rank}: {postern.pn_last_error().decode()}")


def tensor(value):
    number = ctypes.c_float(value)
    array = Array(F32, 0, None, ctypes.cast(ctypes.byref(number), ctypes.c_void_p), 4)
    out = ctypes.c_void_p()
    ok(postern.pn_tensor_copy(ctypes.byref(array), ctypes.byref(out)))
    return out


def total(program, value):
    argument, result = tensor(value), ctypes.c_void_p()
    ok(
        postern.pn_run(
            program, (ctypes.c_void_p * 1)(argument), ctypes.c_size_t(1), ctypes.byref(result)
        )
    )
    array = Array()
    ok(postern.pn_tensor_view(result, ctypes.byref(array)))
    number = ctypes.cast(array.data, ctypes.POINTER(ctypes.c_float))[0]
    postern.pn_tensor_free(argument)
    postern.pn_tensor_free(result)
    return number


program = ctypes.c_void_p()
ok(postern.pn_load_file(sys.argv[2].encode(), ctypes.byref(program)))
for i in range(100):
    coming = world.irecv(source=(rank + size - 1) % size, tag=1)
    assert total(program, float(i)) == i * size
    going = world.isend(i + rank, dest=(rank + 1) % size, tag=1)
    assert coming.wait() == i + (rank + size - 1) % size
    going.wait()
assert world.allreduce(1) == size
if rank == 0:
    print(f"{size} processes of {MPI.Get_library_version().splitlines()[0]}")
