// The class Tensor: from arrays of other libraries, and to them without a copy.
#include "tensor.h"

#include <dlpack/dlpack.h>
#include <nanobind/ndarray.h>

#include <vector>

#include "arrays.h"
#include "errors.h"
#include "handles.h"
#include "interpreter.h"
#include "lent.h"

namespace postern::python {
namespace {

/// Raises TypeError where a class of the user's has not called __init__ of Tensor. Takes the
/// interpreter's lock to be held.
const Tensor& tensor_of(nb::handle self) {
  const Tensor* tensor = nullptr;
  if (!nb::try_cast(self, tensor) || !tensor)
    throw nb::type_error(
        "postern: this Tensor has no value: __init__ of its class must call "
        "super().__init__(value)");
  return *tensor;
}

constexpr std::size_t lent_from = 4096;  // bytes; copying less costs less than lending

using AnyArray = nb::ndarray<nb::ro>;

/// An array of another library as the C interface takes it.
struct Foreign {
  DLManagedTensor managed{};
  void* lent = nullptr;
};

void end_foreign(DLManagedTensor* managed) {
  auto* const foreign = static_cast<Foreign*>(managed->manager_ctx);
  give_back(foreign->lent);
  delete foreign;
}

/// By DLPack or the buffer protocol, in whichever version the other side has.
Tensor from_foreign(const AnyArray& array) {
  auto* const kept = new AnyArray(array);
  auto foreign = std::make_unique<Foreign>();
  foreign->lent =
      lend(nb::capsule(kept, [](void* p) noexcept { delete static_cast<AnyArray*>(p); }));
  const nb::dlpack::dtype type = array.dtype();
  foreign->managed.dl_tensor = {const_cast<void*>(array.data()),
                                {static_cast<DLDeviceType>(array.device_type()), array.device_id()},
                                static_cast<int>(array.ndim()),
                                {type.code, type.bits, type.lanes},
                                const_cast<std::int64_t*>(array.shape_ptr()),
                                const_cast<std::int64_t*>(array.stride_ptr()),
                                0};
  foreign->managed.manager_ctx = foreign.get();
  foreign->managed.deleter = end_foreign;
  pn_tensor* made = nullptr;
  const int code = pn_tensor_from_dlpack(&foreign->managed, &made);
  if (code != PN_OK) give_back(foreign->lent);
  check(code);
  foreign.release();
  return {std::unique_ptr<pn_tensor, FreeTensor>(made)};
}

Tensor from_array(nb::handle value) {
  Described described(value);
  pn_tensor* made = nullptr;
  if (described.c().bytes < lent_from) {
    check(pn_tensor_copy(&described.c(), &made));
  } else {
    void* const lent = lend(described.array());
    const int code = pn_tensor_borrow(&described.c(), give_back, lent, &made);
    if (code != PN_OK) give_back(lent);
    check(code);
  }
  return {std::unique_ptr<pn_tensor, FreeTensor>(made)};
}

pn_array view_of(const Tensor& tensor) {
  pn_array view{};
  int code = PN_OK;
  {
    const Released others_run;
    code = pn_tensor_view(tensor.handle.get(), &view);
  }
  check(code);
  return view;
}

nb::object array_of(nb::handle self, nb::handle dtype, nb::handle copy) {
  const nb::object seen = numpy_of(self);
  const bool fits = dtype.is_none() || seen.attr("dtype").equal(dtype);
  if (fits && !copy.equal(nb::bool_(true))) return seen;
  if (copy.equal(nb::bool_(false))) {
    PyErr_SetString(PyExc_ValueError, "a tensor of another dtype cannot be had without a copy");
    throw nb::python_error();
  }
  return seen.attr("astype")(fits ? seen.attr("dtype") : nb::borrow(dtype));
}

/// An object with __dlpack__ and the buffer protocol, over the tensor's memory.
nb::object exchange_of(nb::handle self) {
  const Tensor& tensor = tensor_of(self);
  DLManagedTensor* managed = nullptr;
  int code = PN_OK;
  {
    const Released others_run;
    code = pn_tensor_to_dlpack(tensor.handle.get(), &managed);
  }
  check(code);
  const nb::capsule owner(managed, [](void* p) noexcept {
    auto* const m = static_cast<DLManagedTensor*>(p);
    m->deleter(m);
  });
  const DLTensor& t = managed->dl_tensor;
  const std::vector<std::size_t> shape(t.shape, t.shape + t.ndim);
  return nb::cast(nb::ndarray<nb::array_api, nb::ro>(t.data, shape.size(), shape.data(), owner,
                                                     nullptr,
                                                     {t.dtype.code, t.dtype.bits, t.dtype.lanes}));
}

nb::object dlpack_of(nb::handle self, nb::handle stream, nb::handle max_version,
                     nb::handle dl_device, nb::handle copy) {
  const nb::object wish = nb::borrow(copy);
  if (wish.equal(nb::bool_(true)))  // NumPy's copy, which the asker owns and may write to
    return array_of(self, nb::none(), copy)
        .attr("__dlpack__")(nb::arg("max_version") = max_version, nb::arg("dl_device") = dl_device);
  return exchange_of(self).attr("__dlpack__")(
      nb::arg("stream") = stream, nb::arg("max_version") = max_version,
      nb::arg("dl_device") = dl_device, nb::arg("copy") = copy);
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  try {
    return PyObject_GetBuffer(exchange_of(self).ptr(), view, flags);
  } catch (nb::python_error& e) {
    e.restore();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_BufferError, e.what());
  }
  view->obj = nullptr;
  return -1;
}

/// What NumPy's array of it says.
template <const char* name>
nb::object asked(nb::handle self) {
  return numpy_of(self).attr(name);
}
constexpr char shape[] = "shape", dtype[] = "dtype", ndim[] = "ndim", size[] = "size";

void bind_as_array(nb::class_<Tensor>& type) {
  type.def_prop_ro("shape", &asked<shape>, nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("dtype", &asked<dtype>, nb::sig("def dtype(self) -> numpy.dtype[typing.Any]"))
      .def_prop_ro("ndim", &asked<ndim>, nb::sig("def ndim(self) -> int"))
      .def_prop_ro("size", &asked<size>, nb::sig("def size(self) -> int"))
      .def("__len__", [](nb::handle self) { return nb::len(numpy_of(self)); })
      .def(
          "__getitem__",
          [](nb::handle self, nb::handle index) { return nb::object(numpy_of(self)[index]); },
          nb::arg("index"), nb::sig("def __getitem__(self, index: typing.Any, /) -> typing.Any"),
          "As NumPy's: a read-only view, or a copy.")
      .def(
          "__iter__", [](nb::handle self) { return nb::iter(numpy_of(self)); },
          nb::sig("def __iter__(self) -> typing.Iterator[typing.Any]"))
      .def("__float__",
           [](nb::handle self) {
             return nb::cast<double>(nb::float_(nb::object(numpy_of(self).attr("item")())));
           })
      .def(
          "__int__",
          [](nb::handle self) { return nb::int_(nb::object(numpy_of(self).attr("item")())); },
          nb::sig("def __int__(self) -> int"))
      .def(
          "tolist", [](nb::handle self) { return numpy_of(self).attr("tolist")(); },
          nb::sig("def tolist(self) -> typing.Any"))
      .def("__repr__", [](nb::handle self) {
        const nb::object text = nb::repr(numpy_of(self)).attr("removeprefix")("array");
        return nb::str("Tensor{}").format(text);
      });
}

PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

}  // namespace

Tensor make_tensor(nb::handle value) {
  drop_given_back();
  AnyArray array;  // of one that has __dlpack__ and does not refuse; what is wrong else NumPy says
  const bool exchanged =
      !is_array(value) && nb::hasattr(value, "__dlpack__") && nb::try_cast(value, array);
  return exchanged ? from_foreign(array) : from_array(value);
}

nb::object numpy_of(nb::handle tensor) {
  return array_over(view_of(tensor_of(tensor)), tensor, false);
}

void bind_tensor(nb::module_& m) {
  nb::class_<Tensor> type(
      m, "Tensor", nb::type_slots(slots),
      "An array that the library holds, of anything that NumPy makes an array of, or "
      "that has __dlpack__. numpy.asarray shows its memory, read only; so do DLPack "
      "and memoryview. NumPy's arrays of 4096 bytes and more, and others that have __dlpack__, "
      "may be used in place: nobody may write to them while the tensor lives or a run goes on "
      "that got it; give `x.copy()` otherwise.");
  type.def(
          "__init__",
          [](Tensor* self, const nb::args& values) {
            if (values.size() != 1)
              throw nb::type_error(nb::str("postern.Tensor takes one value, {} were given")
                                       .format(values.size())
                                       .c_str());
            new (self) Tensor(make_tensor(values[0]));
          },
          nb::call_guard<Inside>(), nb::sig("def __init__(self, value: typing.Any) -> None"))
      .def("__array__", &array_of, nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none(),
           nb::call_guard<Inside>(),
           nb::sig("def __array__(self, dtype: typing.Any = None, copy: bool | None = None) -> "
                   "numpy.typing.NDArray[typing.Any]"))
      .def("__dlpack__", &dlpack_of, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
           nb::arg("copy") = nb::none(), nb::call_guard<Inside>(),
           nb::sig("def __dlpack__(self, *, stream: int | None = None, "
                   "max_version: tuple[int, int] | None = None, "
                   "dl_device: tuple[int, int] | None = None, "
                   "copy: bool | None = None) -> typing.Any"))
      .def(
          "__dlpack_device__", [](const Tensor&) { return nb::make_tuple(1, 0); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"));
  bind_as_array(type);
  bind_handle(type);
  // The last: what stands below it in the stub would take `numpy` for it.
  type.def(
      "numpy", [](nb::handle self) { return numpy_of(self); }, nb::call_guard<Inside>(),
      nb::sig("def numpy(self) -> numpy.typing.NDArray[typing.Any]"),
      "The elements as a read-only array, which keeps the tensor alive. Waits for them.");
}

}  // namespace postern::python
