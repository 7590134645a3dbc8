// The classes Program and Run: loading, running, waiting so that Ctrl-C is seen.
#include "programs.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "arrays.h"
#include "errors.h"
#include "handles.h"
#include "interpreter.h"
#include "lent.h"
#include "run_options.h"
#include "tensor.h"

namespace postern::python {
namespace {

struct FreeProgram {
  void operator()(pn_program* program) const { pn_program_free(program); }
};
struct FreeStarted {
  void operator()(pn_started* run) const {
    const Released others_run;
    pn_started_free(run);
  }
};

struct Program {
  std::unique_ptr<pn_program, FreeProgram> handle;
  std::vector<std::string> inputs, outputs, functions, input_names, output_names;
  bool may_not_end = false;
  nb::object results = {};  // makes them of a list
};

/// A run under way. What it needs of its program stays when that goes.
struct Run {
  std::unique_ptr<pn_started, FreeStarted> handle;
  std::size_t outputs = 0;
  nb::object make_results;
  nb::object results = {};
};

std::vector<std::string> list_of(const char* (*entry)(const pn_program*, std::size_t),
                                 const pn_program* program) {
  std::vector<std::string> out;
  while (const char* const text = entry(program, out.size())) out.emplace_back(text);
  return out;
}

/// Tensors as C takes them, those made from arrays included, which live as long as this.
class Arguments {
 public:
  /// Those with a name go where the program has it, the others in order.
  Arguments(const Program& program, const nb::tuple& values, const nb::dict& named) {
    const std::vector<nb::object> all = in_order(program, values, named);
    handles_.reserve(all.size());
    made_.reserve(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Tensor* tensor = nullptr;
      if (!nb::try_cast(all[i], tensor) || !tensor)
        tensor = &made_.emplace_back(make_tensor(of_numbers(program, i, all[i])));
      handles_.push_back(tensor->handle.get());
    }
  }
  const pn_tensor* const* data() const { return handles_.data(); }
  std::size_t size() const { return handles_.size(); }

 private:
  /// Python's numbers, and lists of them, have no dtype: they get the program's.
  static nb::object of_numbers(const Program& program, std::size_t i, const nb::object& value) {
    PyObject* const v = value.ptr();
    const bool plain = PyLong_CheckExact(v) || PyFloat_CheckExact(v) || PyBool_Check(v) ||
                       PyComplex_CheckExact(v) || PyList_Check(v) || PyTuple_Check(v);
    if (!plain || i >= program.inputs.size()) return value;
    return nb::module_::import_("postern._values").attr("converted")(value, program.inputs[i]);
  }

  static std::vector<nb::object> in_order(const Program& program, const nb::tuple& values,
                                          const nb::dict& named) {
    std::vector<nb::object> out;
    if (named.size() > 0) out.resize(program.inputs.size());
    for (const auto& [key, value] : named) {
      const auto found = std::ranges::find(program.input_names, nb::cast<std::string>(key));
      if (found == program.input_names.end())
        throw nb::type_error(nb::str("the program has no input {!r}; it has {}")
                                 .format(key, nb::cast(program.input_names))
                                 .c_str());
      out[static_cast<std::size_t>(found - program.input_names.begin())] = nb::borrow(value);
    }
    std::size_t at = 0;
    for (const nb::handle value : values) {
      while (at < out.size() && out[at].is_valid()) ++at;
      if (at == out.size()) out.emplace_back();
      out[at++] = nb::borrow(value);
    }
    std::erase_if(out, [](const nb::object& o) { return !o.is_valid(); });  // too few: C says so
    return out;
  }

  std::vector<const pn_tensor*> handles_;
  std::vector<Tensor> made_;
};

/// Places for results, and what is then in them as Python's.
class Results {
 public:
  explicit Results(std::size_t count) : places_(count) {}
  pn_tensor** data() { return places_.data(); }
  /// A list of tensors.
  nb::list tensors() {
    nb::list out;
    for (pn_tensor* const place : places_)
      out.append(nb::cast(Tensor{std::unique_ptr<pn_tensor, FreeTensor>(place)}));
    return out;
  }

 private:
  std::vector<pn_tensor*> places_;
};

nb::object arrays_of(const nb::list& tensors, const nb::object& make_results) {
  nb::list out;
  for (const nb::handle tensor : tensors) out.append(numpy_of(tensor));
  return make_results(out);
}

Run start(const Program& program, const Arguments& arguments, RunOptions& options) {
  pn_started* started = nullptr;
  int code = PN_OK;
  {
    const Released others_run;
    code = pn_start_with(program.handle.get(), arguments.data(), arguments.size(), options.c(),
                         &started);
  }
  check(code);
  options.taken();
  return {std::unique_ptr<pn_started, FreeStarted>(started), program.outputs.size(),
          program.results};
}

/// Nothing while the run goes on.
nb::object ended(pn_started* run, std::size_t outputs, std::int64_t limit) {
  Results results(outputs);
  const int code = waited(
      [&](std::int64_t slice) { return pn_started_wait(run, slice, results.data()); }, limit);
  if (code == PN_EMPTY) return {};
  check(code);
  return results.tensors();
}

/// Many threads may wait for one run: all get the same arrays.
bool wait_for(Run& run, nb::handle timeout) {
  if (run.results.is_valid()) return true;
  const nb::object tensors = ended(run.handle.get(), run.outputs, nanoseconds(timeout));
  if (!tensors.is_valid()) return false;
  nb::object arrays = arrays_of(nb::list(tensors), run.make_results);
  if (!run.results.is_valid()) run.results = std::move(arrays);
  return true;
}

nb::object result_of(Run& run, nb::handle timeout) {
  if (wait_for(run, timeout)) return run.results;
  const nb::str told = nb::str("the run has not ended within {} s").format(timeout);
  raise_error(PN_TIMEOUT, told.c_str());
}

/// On a thread of the library, so that this one sees Ctrl-C. What a signal's handler raises ends
/// the run.
nb::list run_watched(const Program& program, const Arguments& arguments, RunOptions& options) {
  const Run run = start(program, arguments, options);
  pn_started* const started = run.handle.get();
  Results results(run.outputs);
  int code = PN_OK;
  try {
    code = waited(
        [&](std::int64_t slice) { return pn_started_wait(started, slice, results.data()); }, -1);
  } catch (const nb::python_error&) {
    pn_started_cancel(started);
    throw;
  }
  check(code);
  return results.tensors();
}

nb::list run_tensors(const Program& program, const nb::tuple& values, const nb::dict& named) {
  const Arguments arguments(program, values, named);
  // What calls nothing and has no loops ends by itself, sooner so.
  RunOptions none;
  if (program.may_not_end && on_main_thread()) return run_watched(program, arguments, none);
  Results results(program.outputs.size());
  int code = PN_OK;
  {
    const Released others_run;
    code = pn_run(program.handle.get(), arguments.data(), arguments.size(), results.data());
  }
  check(code);
  return results.tensors();
}

Program made_program(int code, pn_program* made) {
  check(code);
  Program program{std::unique_ptr<pn_program, FreeProgram>(made), {}, {}, {}, {}, {}};
  program.inputs = list_of(pn_program_input, made);
  program.outputs = list_of(pn_program_output, made);
  program.functions = list_of(pn_program_function, made);
  program.input_names = list_of(pn_program_input_name, made);
  program.output_names = list_of(pn_program_output_name, made);
  program.may_not_end = !program.functions.empty() || pn_program_loops(made) == 1;
  program.results = nb::module_::import_("functools")
                        .attr("partial")(nb::module_::import_("postern._values").attr("Results"),
                                         program.output_names);
  return program;
}

Program load(nb::handle path, nb::handle entry) {
  const std::string text = text_of(path), name = text_of(entry);
  pn_program* made = nullptr;
  int code = PN_OK;
  {
    const Released others_run;
    code = pn_load_entry(text.c_str(), name.c_str(), &made);
  }
  return made_program(code, made);
}

Program load_text(nb::handle text) {
  const nb::object seen = PyUnicode_Check(text.ptr())
                              ? nb::steal(PyUnicode_AsUTF8String(text.ptr()))
                              : nb::steal(PyMemoryView_FromObject(text.ptr()));
  if (!seen.is_valid()) throw nb::python_error();
  const nb::bytes bytes(seen);
  const char* const data = bytes.c_str();
  const std::size_t size = bytes.size();
  pn_program* made = nullptr;
  int code = PN_OK;
  {
    const Released others_run;
    code = pn_load_text(data, size, &made);
  }
  return made_program(code, made);
}

struct FreeNative {
  void operator()(pn_native* native) const { pn_native_free(native); }
};
struct Native {
  std::unique_ptr<pn_native, FreeNative> handle;
  std::vector<std::string> inputs, outputs;
};

std::vector<std::string> types_of(const char* (*entry)(const pn_native*, std::size_t),
                                  const pn_native* native) {
  std::vector<std::string> out;
  while (const char* const text = entry(native, out.size())) out.emplace_back(text);
  return out;
}

/// `bound`: a tensor or None for each argument; `types`: for each, or none.
Native native_of(const Program& program, int derivative, const nb::list& bound,
                 const nb::list& types) {
  std::vector<const pn_tensor*> tensors;
  for (const nb::handle b : bound)
    tensors.push_back(b.is_none() ? nullptr : nb::cast<const Tensor&>(b).handle.get());
  std::vector<std::string> held;
  for (const nb::handle type : types) held.push_back(text_of(type));
  std::vector<const char*> texts;
  for (const std::string& type : held) texts.push_back(type.c_str());
  const pn_native_options options{sizeof options, derivative, tensors.data(),
                                  texts.empty() ? nullptr : texts.data()};
  pn_native* made = nullptr;
  int code = PN_OK;
  {
    const Released others_run;
    code = pn_native_of(program.handle.get(), &options, &made);
  }
  check(code);
  return {std::unique_ptr<pn_native, FreeNative>(made), types_of(pn_native_input, made),
          types_of(pn_native_output, made)};
}

/// Arrays that fit, which the caller has checked.
void call_native(const Native& native, const nb::list& in, const nb::list& out) {
  std::vector<Described> arrays;
  std::vector<const void*> from;
  std::vector<void*> into;
  for (const nb::handle a : in) from.push_back(arrays.emplace_back(a).c().data);
  for (const nb::handle a : out) into.push_back(arrays.emplace_back(a).c().data);
  int code = PN_OK;
  {
    const Released others_run;
    code = pn_native_call(native.handle.get(), from.data(), into.data());
  }
  check(code);
}

void bind_native(nb::module_& m) {
  nb::class_<Native> type(m, "NativeProgram", "What postern.native calls.");
  type.def(
          "__init__",
          [](Native* self, const Program& program, int derivative, const nb::list& bound,
             const nb::list& types) {
            new (self) Native(native_of(program, derivative, bound, types));
          },
          nb::arg("program"), nb::arg("derivative"), nb::arg("bound"), nb::arg("types"),
          nb::call_guard<Inside>(),
          nb::sig("def __init__(self, program: Program, derivative: int, "
                  "bound: list[typing.Any], types: list[str]) -> None"))
      .def_ro("inputs", &Native::inputs)
      .def_ro("outputs", &Native::outputs)
      .def("call", &call_native, nb::arg("arguments"), nb::arg("out"), nb::call_guard<Inside>(),
           nb::sig("def call(self, arguments: list[typing.Any], out: list[typing.Any]) -> None"));
  bind_handle(type);
}

void bind_loading(nb::module_& m) {
  m.def("load", &load, nb::arg("path"), nb::arg("entry") = "", nb::call_guard<Inside>(),
        nb::sig("def load(path: typing.Any, entry: str = \"\") -> Program"));
  m.def("load_text", &load_text, nb::arg("text").none(), nb::call_guard<Inside>(),
        nb::sig("def load_text(text: typing.Any) -> Program"));
}

/// For postern._options.
void bind_runs_with_options(nb::module_& m, nb::class_<Program>& type) {
  type.def(
      "with_options",
      [](nb::handle self, const nb::kwargs& said) {
        return nb::module_::import_("postern._options").attr("Configured")(self, **said);
      },
      nb::sig("def with_options(self, *, device: int = 0, deadline: float | None = None, "
              "print: typing.Callable[[str], typing.Any] | None = None, "
              "hooks: typing.Mapping[str, typing.Callable[..., typing.Any]] | None = None, "
              "functions: typing.Mapping[str, typing.Callable[..., typing.Any]] | None = None"
              ") -> postern._options.Configured"),
      "The program, called, run and started as it is itself, whose runs are on that device,\n"
      "end after `deadline` seconds by a TimeoutError, give `print` the lines that they\n"
      "print, and have functions of their own: `hooks` in place of what listens to hooks,\n"
      "`functions` in place of those that are registered. Runs raise Error for a name\n"
      "that the program does not have.");
  m.def(
      "start_with",
      [](const Program& program, const nb::tuple& arguments, const nb::dict& named,
         const nb::tuple& said) {
        RunOptions options(said);
        return start(program, Arguments(program, arguments, named), options);
      },
      nb::arg("program"), nb::arg("arguments"), nb::arg("named"), nb::arg("options"),
      nb::call_guard<Inside>(),
      nb::sig("def start_with(program: Program, arguments: tuple[typing.Any, ...], "
              "named: dict[str, typing.Any], options: tuple[typing.Any, ...]) -> Run"));
  m.def(
      "run_with",
      [](const Program& program, const nb::tuple& arguments, const nb::dict& named,
         const nb::tuple& said, bool arrays) {
        RunOptions options(said);
        const nb::list made = run_watched(program, Arguments(program, arguments, named), options);
        return arrays ? arrays_of(made, program.results) : program.results(made);
      },
      nb::arg("program"), nb::arg("arguments"), nb::arg("named"), nb::arg("options"),
      nb::arg("arrays"), nb::call_guard<Inside>(),
      nb::sig("def run_with(program: Program, arguments: tuple[typing.Any, ...], "
              "named: dict[str, typing.Any], options: tuple[typing.Any, ...], "
              "arrays: bool) -> typing.Any"));
}

/// A class that nobody but the library makes objects of.
template <class T>
void refuse_making(nb::class_<T>& type, const char* made_by) {
  type.def(
      "__init__",
      [made_by](T*, const nb::args&, const nb::kwargs&) { throw nb::type_error(made_by); },
      nb::sig("def __init__(self, *_: typing.NoReturn) -> None"));
}

void bind_run(nb::module_& m) {
  nb::class_<Run> type(m, "Run", "A run under way, which Program.start makes; it can be awaited.");
  refuse_making(type, "postern: a Run is made by Program.start");
  type.def("wait", &wait_for, nb::arg("timeout") = nb::none(), nb::call_guard<Inside>(),
           nb::sig("def wait(self, timeout: float | None = None) -> bool"),
           "Whether the run has ended within so many seconds. Raises how it failed. Any number of\n"
           "threads may wait.")
      .def("result", &result_of, nb::arg("timeout") = nb::none(), nb::call_guard<Inside>(),
           nb::sig("def result(self, timeout: float | None = None) -> "
                   "postern._values.Results[numpy.typing.NDArray[typing.Any]]"),
           "The results, when they are there. Raises TimeoutError when they are not in time; the\n"
           "run goes on.")
      .def(
          "cancel", [](const Run& run) { check(pn_started_cancel(run.handle.get())); },
          "Asks the run to stop.")
      .def(
          "__await__",
          [](nb::handle self) {
            return nb::module_::import_("postern._signatures").attr("awaited")(self);
          },
          nb::sig("def __await__(self) -> typing.Generator[typing.Any, typing.Any, "
                  "list[numpy.typing.NDArray[typing.Any]]]"),
          "The results; a task that is cancelled cancels the run.");
  bind_handle(type);
}

void bind_calling(nb::class_<Program>& type) {
  type.def(
          "__call__",
          [](const Program& self, const nb::args& arguments, const nb::kwargs& named) {
            return arrays_of(run_tensors(self, arguments, named), self.results);
          },
          nb::call_guard<Inside>(),
          nb::sig("def __call__(self, *arguments: typing.Any, **named: typing.Any) -> "
                  "postern._values.Results[numpy.typing.NDArray[typing.Any]]"),
          "Runs, waits, and gives the results as a list of read-only arrays over the library's\n"
          "memory. Arguments may go by their names, and results be taken by theirs:\n"
          "`program(x)[\"loss\"]`.")
      .def(
          "run",
          [](const Program& self, const nb::args& arguments, const nb::kwargs& named) {
            return self.results(run_tensors(self, arguments, named));
          },
          nb::call_guard<Inside>(),
          nb::sig("def run(self, *arguments: typing.Any, **named: typing.Any) -> "
                  "postern._values.Results[Tensor]"),
          "The same with the results as tensors: for other programs, and for DLPack.")
      .def(
          "start",
          [](const Program& self, const nb::args& arguments, const nb::kwargs& named) {
            RunOptions none;
            return start(self, Arguments(self, arguments, named), none);
          },
          nb::call_guard<Inside>(),
          nb::sig("def start(self, *arguments: typing.Any, **named: typing.Any) -> Run"),
          "Starts a run on a thread of the library. NumPy's arrays of 4096 bytes and more, and\n"
          "others that have __dlpack__, may be used in place: nobody may write to them until the\n"
          "run has ended; give `x.copy()` otherwise.");
}

}  // namespace

void bind_programs(nb::module_& m) {
  bind_run(m);
  nb::class_<Program> type(m, "Program",
                           "A loaded program. `inputs` and `outputs` are types such as\n"
                           "\"f32[2,3]\", `input_names` and `output_names` what the file calls\n"
                           "them, `functions` the names that it calls.");
  refuse_making(type, "postern: a Program is made by postern.load");
  type.def_ro("inputs", &Program::inputs)
      .def_ro("outputs", &Program::outputs)
      .def_ro("functions", &Program::functions)
      .def_ro("input_names", &Program::input_names)
      .def_ro("output_names", &Program::output_names);
  bind_calling(type);
  type.def("__repr__", [](const Program& p) {
    const nb::str comma(", ");
    return nb::str("Program(({}) -> ({}), calls {})")
        .format(comma.attr("join")(p.inputs), comma.attr("join")(p.outputs), p.functions);
  });
  bind_handle(type);
  bind_native(m);
  bind_runs_with_options(m, type);
  bind_loading(m);
}

}  // namespace postern::python
