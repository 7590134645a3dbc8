// Enters Python functions with arrays of a firing, and writes what they return.
#include "functions.h"

#include <nanobind/stl/string.h>
#include <postern/guest.h>

#include <unordered_map>
#include <utility>
#include <vector>

#include "arrays.h"
#include "errors.h"
#include "interpreter.h"
#include "lent.h"
#include "listen.h"

namespace postern::python {
namespace {

/// What a function returned does not fit what the program declares.
struct BadResult {
  std::string text;
};

constexpr std::size_t most_parsed = 256;

/// The attributes of a text, parsed once; nobody may write to the dict or to its lists.
nb::object parsed(const char* text) {
  static auto* const known = new std::unordered_map<std::string, nb::object>;
  const auto found = known->find(text);
  if (found != known->end()) return found->second;
  // Other threads come here meanwhile, which a static made by Python would have wait with the lock.
  nb::object made = nb::module_::import_("postern._attributes").attr("parsed")(nb::str(text));
  if (known->size() >= most_parsed) known->clear();
  known->insert_or_assign(text, made);
  return made;
}

/// An attribute's value as a function may have it, who may write to a list.
nb::object own(nb::handle value) {
  if (!PyList_Check(value.ptr())) return nb::borrow(value);
  nb::object copied = nb::steal(PyList_GetSlice(value.ptr(), 0, PY_SSIZE_T_MAX));
  if (!copied.is_valid()) throw nb::python_error();
  return copied;
}

/// What postern.jax registers. The arrays that `function` gets are its own. `finish` makes a tuple
/// of results of what it returned; where that is `leaf`, an array or a scalar of NumPy's is the
/// result as it is. `fit` is asked for another array in place of one that does not fit.
struct Entry {
  nb::object function, finish;
  bool leaf = false;
  nb::object fit = nb::none();
};

/// A function, and what it wants.
struct Function final : Lent {
  Function(Entry e, bool copies, bool info)
      : entry(std::move(e)), wants_copies(copies), wants_info(info) {}
  Entry entry;
  bool wants_copies, wants_info;
};

/// What refuses JAX in functions that its programs wait for: the trace that `context` then has.
struct Guard {
  nb::object context, trace;
};
Guard& guard() {
  static auto* const set = new Guard;  // by postern.jax
  return *set;
}

/// JAX's trace of this thread is the guard's as long as this lives, where a program of JAX's waits
/// for the thread.
class Traced {
 public:
  Traced() : Traced(guard()) {
    if (before_.is_valid() && !set(guard_.trace)) throw nb::python_error();  // which sets it back
  }
  Traced(const Traced&) = delete;
  ~Traced() {
    if (!before_.is_valid() || set(before_)) return;
    // Ctrl-C is seen wherever Python is entered: it is to come where it can be told.
    const bool interrupted = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
    interrupted ? PyErr_Clear() : PyErr_WriteUnraisable(guard_.context.ptr());
    if (!set(before_)) PyErr_WriteUnraisable(guard_.context.ptr());
    if (interrupted) PyErr_SetInterrupt();
  }

 private:
  explicit Traced(const Guard& now) : guard_(now) {
    if (guard_.context.is_valid() && pn_guest_device() != -1)
      before_ = guard_.context.attr("trace");
  }
  bool set(nb::handle trace) const {
    static PyObject* const name = PyUnicode_InternFromString("set_trace");
    PyObject* const arguments[] = {guard_.context.ptr(), trace.ptr()};
    const nb::object none = nb::steal(PyObject_VectorcallMethod(name, arguments, 2, nullptr));
    return none.is_valid();
  }
  const Guard guard_;  // one of its own: another may be set meanwhile
  nb::object before_;
};

void take_result(const Entry& entry, const pn_firing& firing, std::size_t i, nb::handle value) {
  nb::object found;
  const pn_array& wanted = firing.results[i];
  if (write(wanted, value, found)) return;
  const nb::object& fit = entry.fit;
  if (!fit.is_none() && write(wanted, fit(found, dtype_of(wanted.dtype)), found)) return;
  nb::list dims;
  for (int axis = 0; axis < wanted.rank; ++axis) dims.append(wanted.dims[axis]);
  const nb::str told = nb::str("result {} must be {}{}, the function returned {}{}")
                           .format(i, dtype_of(wanted.dtype), dims, found.attr("dtype"),
                                   nb::list(found.attr("shape")));
  throw BadResult{told.c_str()};
}

/// Checks results, then writes them where the program reads them.
void take_results(const Entry& entry, const pn_firing& firing, const nb::object& returned) {
  const std::size_t count = firing.result_count;
  if (count == 0) return;
  const bool many = nb::isinstance<nb::tuple>(returned) || nb::isinstance<nb::list>(returned);
  if (count == 1 && !(many && nb::len(returned) == 1))
    return take_result(entry, firing, 0, returned);
  if (!many || nb::len(returned) != count) {
    const nb::str told = nb::str("the function must return {} results, it returned {}")
                             .format(count, returned.type().attr("__name__"));
    throw BadResult{told.c_str()};
  }
  for (std::size_t i = 0; i < count; ++i) take_result(entry, firing, i, nb::object(returned[i]));
}

/// What a function is called with.
struct Arguments {
  explicit Arguments(std::size_t most) { places.reserve(most + 1); }
  Arguments(const Arguments&) = delete;
  ~Arguments() {
    for (PyObject* const held : places) Py_XDECREF(held);
  }
  void add(nb::object value) { places.push_back(value.release().ptr()); }
  std::vector<PyObject*> places{nullptr};  // the first is the callee's own
};

/// The results.
nb::object called(const Function& f, const pn_firing& firing) {
  const nb::object attributes = parsed(firing.attributes);
  const std::size_t count = firing.operand_count;
  Arguments arguments(count + nb::len(attributes) + 1);
  for (std::size_t i = 0; i < count; ++i)
    arguments.add(f.wants_copies ? copy_of(firing.operands[i])
                                 : array_over(firing.operands[i], nb::handle(), false));
  nb::object names;
  if (f.wants_info || nb::len(attributes) > 0) {
    nb::list keys(attributes.attr("keys")());
    for (nb::handle value : attributes.attr("values")()) arguments.add(own(value));
    if (f.wants_info) {
      keys.append("info");
      arguments.add(nb::cast(info_of(firing)));
    }
    names = nb::tuple(keys);
  }
  const Traced traced;
  nb::object returned = nb::steal(
      call_python(f.entry.function.ptr(), arguments.places.data() + 1, count, names.ptr()));
  if (!returned.is_valid()) throw nb::python_error();
  if (!f.entry.finish.is_none() && !(f.entry.leaf && is_array_or_scalar(returned)))
    returned = f.entry.finish(returned);
  if (PyErr_CheckSignals() < 0) throw nb::python_error();  // native functions do not
  return returned;
}

int failed(const nb::python_error& error) {
  const nb::object text = nb::module_::import_("postern._errors").attr("text_of")(error.value());
  pn_fail_with(PyBytes_AS_STRING(text.ptr()), lend(nb::borrow(error.value())), give_back);
  return PN_THREW;
}

/// What the library calls.
int enter(void* user, const pn_firing* firing) {
  const Entered entered;
  if (!entered) {
    pn_fail("the Python interpreter has ended");
    return PN_CLOSED;
  }
  try {
    const auto& f = *static_cast<const Function*>(static_cast<Lent*>(user));
    take_results(f.entry, *firing, called(f, *firing));
    return PN_OK;
  } catch (const BadResult& e) {
    pn_fail(e.text.c_str());
    return PN_BAD_RESULT;
  } catch (const nb::python_error& e) {
    return failed(e);
  } catch (const std::exception& e) {
    pn_fail(e.what());
    return PN_INTERNAL;
  }
}

/// A capsule of C, and what it holds: the context belongs to it.
struct Capsule final : Lent {
  explicit Capsule(nb::object c)
      : capsule(std::move(c)),
        function(reinterpret_cast<pn_function>(PyCapsule_GetPointer(capsule.ptr(), c_capsule))),
        context(PyCapsule_GetContext(capsule.ptr())) {}
  static constexpr const char* c_capsule = "postern.pn_function";
  nb::object capsule;
  pn_function function;
  void* context;
};

int enter_capsule(void* user, const pn_firing* firing) {
  const auto& capsule = *static_cast<const Capsule*>(static_cast<Lent*>(user));
  return capsule.function(capsule.context, firing);
}

/// The C++ function that a capsule or a listener is; null for others.
const Callee* callee_of(nb::handle function) {
  constexpr const char* capsule = "postern.Callee";
  if (PyCapsule_IsValid(function.ptr(), capsule))
    return static_cast<const Callee*>(PyCapsule_GetPointer(function.ptr(), capsule));
  const Listener* listener = nullptr;
  return nb::try_cast(function, listener) && listener ? &listener->callee() : nullptr;
}

[[noreturn]] void refuse_function(nb::handle function) {
  const nb::str told = nb::str("a host function must be callable, got {!r}").format(function);
  PyErr_SetObject(PyExc_TypeError, told.ptr());
  throw nb::python_error();
}

void register_function(nb::handle name, nb::object function, bool replace, bool info) {
  drop_given_back();
  if (const Callee* const callee = callee_of(function)) {
    check(pn_register_callee(text_of(name).c_str(), callee, replace));
    return;
  }
  const std::string text = text_of(name);
  const ForC made = for_c(std::move(function), info);
  const int code = pn_register(text.c_str(), made.function, made.user, give_back, replace);
  if (code != PN_OK) give_back(made.user);
  check(code);
}

}  // namespace

ForC for_c(nb::object function, bool info) {
  if (PyCapsule_IsValid(function.ptr(), Capsule::c_capsule))
    return {enter_capsule, lend(std::make_unique<Capsule>(std::move(function)))};
  Entry entry{function, nb::none()};
  const bool copies = nb::try_cast(function, entry);
  if (!PyCallable_Check(entry.function.ptr())) refuse_function(function);
  return {enter, lend(std::make_unique<Function>(std::move(entry), copies, info))};
}

Info info_of(const pn_firing& firing) {
  return {firing.function, firing.site,
          firing.device,   firing.run,
          firing.element,  {firing.coordinates, firing.coordinates + firing.coordinate_count}};
}

nb::object attributes_of(const pn_firing& firing) {
  nb::dict out;
  for (const auto [name, value] : nb::cast<nb::dict>(parsed(firing.attributes)))
    out[name] = own(value);
  return out;
}

nb::list operands_of(const pn_firing& firing) {
  nb::list out;
  for (std::size_t i = 0; i < firing.operand_count; ++i)
    out.append(array_over(firing.operands[i], nb::handle(), false));
  return out;
}

void bind_functions(nb::module_& m) {
  nb::class_<Info>(m, "Info", "What a function of `with_info` is told of the firing.")
      .def_ro("function", &Info::function, "The registered name.")
      .def_ro("site", &Info::site, "The call's or tap's own name.")
      .def_ro("device", &Info::device)
      .def_ro("run", &Info::run)
      .def_ro("element", &Info::element, "Of the batch, where vmap fires for each; else -1.")
      .def_prop_ro(
          "coordinates",
          [](const Info& i) {
            nb::list out;
            for (const std::int64_t c : i.coordinates) out.append(c);
            return nb::tuple(out);
          },
          nb::for_getter(nb::sig("def coordinates(self, /) -> tuple[int, ...]")),
          "Where the device is on the mesh, by axis, inside of shard_map; else empty.")
      .def("__repr__", [](const Info& i) {
        return nb::str("Info(function={!r}, site={!r}, device={}, run={}, element={})")
            .format(i.function, i.site, i.device, i.run, i.element);
      });
  nb::class_<Entry>(
      m, "Entry",
      "For `register`: `function` gets arrays of its own, `finish` makes a tuple of results of "
      "what it returns (None: it is one; not of an array, where that is a `leaf`). "
      "`fit(array, dtype)` makes another of an array that does not fit.")
      .def(
          "__init__",
          [](Entry* self, nb::object function, nb::object finish, bool leaf, nb::object fit) {
            new (self) Entry{function, finish, leaf, fit};
          },
          nb::arg("function"), nb::arg("finish").none(), nb::arg("leaf"), nb::arg("fit").none());
  m.def(
      "guard",
      [](nb::object context, nb::object trace) {
        const Guard before = std::exchange(guard(), {context, trace});
        return nb::make_tuple(before.context.is_valid() ? before.context : nb::none(),
                              before.trace.is_valid() ? before.trace : nb::none());
      },
      nb::arg("context"), nb::arg("trace"),
      nb::sig("def guard(context: typing.Any, trace: typing.Any) -> tuple[typing.Any, typing.Any]"),
      "While a function runs that JAX waits for `context`'s trace is `trace`; gives the former.");
  m.def("register", &register_function, nb::arg("name").none(), nb::arg("function").none(),
        nb::arg("replace"), nb::arg("info"), nb::call_guard<Inside>());
  m.def(
      "unregister", [](nb::handle name) { check(pn_unregister(text_of(name).c_str())); },
      nb::arg("name").none());
}

}  // namespace postern::python
