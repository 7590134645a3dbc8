// NumPy's C interface is used here alone.
#include "arrays.h"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

#include <array>
#include <cstring>
#include <string_view>

namespace postern::python {
namespace {

constexpr std::array<const char*, PN_F4E2M1FN + 1> names = {"bool",
                                                            "int2",
                                                            "int4",
                                                            "int8",
                                                            "int16",
                                                            "int32",
                                                            "int64",
                                                            "uint2",
                                                            "uint4",
                                                            "uint8",
                                                            "uint16",
                                                            "uint32",
                                                            "uint64",
                                                            "float16",
                                                            "bfloat16",
                                                            "float32",
                                                            "float64",
                                                            "complex64",
                                                            "complex128",
                                                            "float8_e5m2",
                                                            "float8_e4m3fn",
                                                            "float8_e4m3b11fnuz",
                                                            "float8_e5m2fnuz",
                                                            "float8_e4m3fnuz",
                                                            "float8_e4m3",
                                                            "float8_e3m4",
                                                            "float8_e8m0fnu",
                                                            "float4_e2m1fn"};

PyArrayObject* as_array(nb::handle array) { return reinterpret_cast<PyArrayObject*>(array.ptr()); }

[[noreturn]] void raise_type_error(const nb::str& text) {
  PyErr_SetObject(PyExc_TypeError, text.ptr());
  throw nb::python_error();
}

nb::object find_dtype(const char* name) {
  const nb::object make = nb::module_::import_("numpy").attr("dtype");
  try {
    return make(name);
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_TypeError)) throw;
  }
  try {
    return make(nb::module_::import_("ml_dtypes").attr(name));
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_ImportError) && !e.matches(PyExc_AttributeError)) throw;
  }
  raise_type_error(nb::str("NumPy has no dtype {}; the package ml_dtypes brings it").format(name));
}

/// The dtypes that were asked for, kept for ever.
std::array<PyArray_Descr*, names.size()> dtypes{};

PyArray_Descr* dtype_at(int code) {
  if (code < 0 || static_cast<std::size_t>(code) >= names.size())
    raise_type_error(nb::str("there is no dtype with the number {}").format(code));
  PyArray_Descr*& known = dtypes[static_cast<std::size_t>(code)];
  if (!known)
    known = reinterpret_cast<PyArray_Descr*>(
        find_dtype(names[static_cast<std::size_t>(code)]).release().ptr());
  return known;
}

int code_of(PyArray_Descr* dtype) {
  for (std::size_t i = 0; i < dtypes.size(); ++i)
    if (dtypes[i] == dtype) return static_cast<int>(i);
  const nb::handle found(reinterpret_cast<PyObject*>(dtype));
  const nb::str name = nb::cast<nb::str>(found.attr("name"));
  for (std::size_t i = 0; i < names.size(); ++i)
    if (PyArray_ISNBO(dtype->byteorder) && std::string_view(name.c_str()) == names[i])
      return static_cast<int>(i);
  raise_type_error(nb::str("a program takes no arrays of dtype {!r}").format(found));
}

/// A reference to the dtype, which NumPy takes over.
PyArray_Descr* new_dtype(const pn_array& memory) {
  PyArray_Descr* const dtype = dtype_at(memory.dtype);
  Py_INCREF(dtype);
  return dtype;
}

const npy_intp* dims_of(const pn_array& memory) {
  static_assert(sizeof(npy_intp) == sizeof(std::int64_t));
  return reinterpret_cast<const npy_intp*>(memory.dims);
}

}  // namespace

void import_numpy() {
  if (_import_array() < 0) throw nb::python_error();
}

nb::object dtype_of(int code) { return nb::borrow(reinterpret_cast<PyObject*>(dtype_at(code))); }

nb::object array_over(const pn_array& memory, nb::handle owner, bool writable) {
  nb::object array =
      nb::steal(PyArray_NewFromDescr(&PyArray_Type, new_dtype(memory), memory.rank, dims_of(memory),
                                     nullptr, memory.bytes ? memory.data : nullptr,
                                     writable ? NPY_ARRAY_CARRAY : NPY_ARRAY_CARRAY_RO, nullptr));
  if (!array.is_valid()) throw nb::python_error();
  if (!memory.bytes && !writable) PyArray_CLEARFLAGS(as_array(array), NPY_ARRAY_WRITEABLE);
  if (owner.is_valid() && PyArray_SetBaseObject(as_array(array), owner.inc_ref().ptr()) < 0)
    throw nb::python_error();
  return array;
}

nb::object copy_of(const pn_array& memory) {
  nb::object array = nb::steal(PyArray_Empty(memory.rank, dims_of(memory), new_dtype(memory), 0));
  if (!array.is_valid()) throw nb::python_error();
  if (memory.bytes) std::memcpy(PyArray_DATA(as_array(array)), memory.data, memory.bytes);
  return array;
}

bool is_array(nb::handle value) { return PyArray_Check(value.ptr()); }
bool is_array_or_scalar(nb::handle value) {
  return is_array(value) || PyArray_IsScalar(value.ptr(), Generic);
}

Described::Described(nb::handle value) {
  array_ = nb::steal(PyArray_FROM_OF(value.ptr(), NPY_ARRAY_C_CONTIGUOUS));
  if (!array_.is_valid()) throw nb::python_error();
  PyArrayObject* const a = as_array(array_);
  c_ = {code_of(PyArray_DESCR(a)), PyArray_NDIM(a),
        reinterpret_cast<const std::int64_t*>(PyArray_DIMS(a)), PyArray_DATA(a),
        static_cast<std::size_t>(PyArray_NBYTES(a))};
}

namespace {

/// One of the dtype's own scalars, which needs no array around it.
bool write_scalar(const pn_array& to, PyArray_Descr* dtype, PyObject* v) {
  if (to.rank != 0 || PyTypeNum_ISUSERDEF(dtype->type_num)) return false;
  if (Py_TYPE(v) != dtype->typeobj) return false;
  PyArray_ScalarAsCtype(v, to.data);
  return true;
}

/// How much a number of the dtype may be, in the order of Python's bool, int, float and complex.
int kind_of(int dtype) {
  if (dtype == PN_PRED) return 0;
  if (dtype < PN_F16) return 1;
  return dtype == PN_C64 || dtype == PN_C128 ? 3 : 2;
}
int kind_of(PyObject* v) {
  if (PyBool_Check(v)) return 0;
  if (PyLong_CheckExact(v)) return 1;
  if (PyFloat_CheckExact(v)) return 2;
  return PyComplex_CheckExact(v) ? 3 : 4;
}

}  // namespace

bool write(const pn_array& to, nb::handle value, nb::object& found) {
  PyArray_Descr* const dtype = dtype_at(to.dtype);
  PyObject* const v = value.ptr();
  if (write_scalar(to, dtype, v)) return true;
  // A Python number has no dtype of its own, but a kind.
  const bool number = to.rank == 0 && kind_of(v) <= kind_of(to.dtype);
  if (is_array(value) && PyArray_IS_C_CONTIGUOUS(as_array(value)))
    found = nb::borrow(value);
  else
    found = nb::steal(number ? PyArray_FromAny(v, new_dtype(to), 0, 0, NPY_ARRAY_CARRAY_RO, nullptr)
                             : PyArray_FROM_OF(v, NPY_ARRAY_C_CONTIGUOUS));
  if (!found.is_valid()) throw nb::python_error();
  PyArrayObject* const a = as_array(found);
  if (number && kind_of(v) == 1 && kind_of(to.dtype) == 1) {  // NumPy 1 makes it another number
    const nb::object made = nb::steal(PyArray_GETITEM(a, PyArray_BYTES(a)));
    const int same = made.is_valid() ? PyObject_RichCompareBool(made.ptr(), v, Py_EQ) : -1;
    if (same == 0) PyErr_Format(PyExc_OverflowError, "%R does not fit into the result's dtype", v);
    if (same != 1) throw nb::python_error();
  }
  const bool fits = PyArray_NDIM(a) == to.rank && PyArray_EquivTypes(PyArray_DESCR(a), dtype) &&
                    PyArray_CompareLists(PyArray_DIMS(a), dims_of(to), to.rank);
  if (fits && to.bytes) std::memcpy(to.data, PyArray_DATA(a), to.bytes);
  return fits;
}

}  // namespace postern::python
