"""NumPy arrays to the library and back, without copies where the memory allows."""

import ctypes
import functools

import numpy as np

from . import _library
from ._library import library

# By pn_dtype. NumPy lacks the others; ml_dtypes brings them.
_names = ("bool int2 int4 int8 int16 int32 int64 uint2 uint4 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 "
          "complex128 float8_e5m2 float8_e4m3fn float8_e4m3b11fnuz float8_e5m2fnuz float8_e4m3fnuz float8_e4m3 float8_e3m4 "
          "float8_e8m0fnu float4_e2m1fn").split()


@functools.cache
def dtype_of(code):
    """The NumPy dtype for a pn_dtype."""
    name = _names[code]
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes
        return np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError):
        raise TypeError(f"NumPy has no dtype {name}; the package ml_dtypes brings it") from None


def code_of(dtype):
    """The pn_dtype for a NumPy dtype."""
    if dtype.name not in _names or not dtype.isnative:
        raise TypeError(f"a program takes no arrays of dtype {dtype!r}")
    return _names.index(dtype.name)


class Described:
    """An array, made row-major, as a pn_array, which lives as long as this."""

    def __init__(self, value):
        array = self.array = np.asarray(value, order="C")
        self.dims = (ctypes.c_int64 * array.ndim)(*array.shape)
        self.struct = _library.Array(code_of(array.dtype), array.ndim, self.dims, array.ctypes.data, array.nbytes)


def seen(struct, writable=False, owner=None):
    """Memory that the library shows, as an array, which keeps `owner` alive."""
    dtype, size = dtype_of(struct.dtype), struct.bytes
    shape = tuple(struct.dims[:struct.rank]) if struct.rank else ()
    if not size:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * size).from_address(struct.data)
    memory.owner = owner
    array = np.ndarray(shape, dtype, memory)
    if not writable:
        array.flags.writeable = False
    return array


class Tensor(_library.Handle):
    """An array that the library holds. numpy.asarray(tensor) shows its memory, read only; so does DLPack."""
    _free = library.pn_tensor_free

    def numpy(self):
        """The elements as a read-only array, which keeps the tensor alive. Waits for them."""
        struct = _library.Array()
        _library.check(library.pn_tensor_view(self._handle, ctypes.byref(struct)))
        return seen(struct, owner=self)

    def __array__(self, dtype=None, copy=None):
        array = self.numpy()
        return array if dtype is None or array.dtype == dtype else array.astype(dtype)

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, stream=None, **_):
        pointer = _library.made(library.pn_tensor_to_dlpack, self._handle)
        return _new_capsule(pointer, b"dltensor", _forget_capsule)


_python = ctypes.pythonapi
_CapsuleEnd = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _CapsuleEnd)(("PyCapsule_New", _python))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _python))
_rename_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _python))
# In a capsule's destructor the object is half gone, so these take it as a bare pointer.
_is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _python))
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _python))
_used = b"used_dltensor"  # the capsule's name once somebody has taken what is in it


@_CapsuleEnd
def _forget_capsule(capsule):
    if _is_capsule(capsule, b"dltensor"):  # nobody took it
        place = ctypes.c_void_p()
        if library.pn_tensor_from_dlpack(_pointer_in(capsule, b"dltensor"), ctypes.byref(place)) == 0:
            library.pn_tensor_free(place)


def tensor(value):
    """A tensor of a NumPy array, a number, or an object with __dlpack__; row-major memory is lent, other is copied."""
    if isinstance(value, Tensor):
        return value
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        capsule = value.__dlpack__()
        made = Tensor(_library.made(library.pn_tensor_from_dlpack, _capsule_pointer(capsule, b"dltensor")))
        _rename_capsule(capsule, _used)
        return made
    described = Described(value)
    if described.array.nbytes < 4096:
        return Tensor(_library.made(library.pn_tensor_copy, ctypes.byref(described.struct)))
    with _library.lent(described.array) as (release, number):
        return Tensor(_library.made(library.pn_tensor_borrow, ctypes.byref(described.struct), release, number))
