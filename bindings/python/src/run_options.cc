// Options of a run: from Python's objects to pn_start_options.
#include "run_options.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "functions.h"
#include "interpreter.h"
#include "lent.h"

namespace postern::python {
namespace {

/// What a run prints goes to a Python function, which is to give each text to whoever shows it.
void print(void* user, const char* text, std::size_t size) {
  const Entered entered;
  if (!entered) return;
  const nb::object function = object_of(user);
  const nb::object shown =
      nb::steal(PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(size), "replace"));
  PyObject* arguments[] = {nullptr, shown.ptr()};
  const nb::object none = shown.is_valid()
                              ? nb::steal(call_python(function.ptr(), arguments + 1, 1, nullptr))
                              : nb::object();
  if (!none.is_valid()) PyErr_WriteUnraisable(function.ptr());
}

}  // namespace

RunOptions::RunOptions(const nb::tuple& said) : RunOptions() {
  drop_given_back();
  c_.device = nb::cast<std::int32_t>(said[0]);
  c_.deadline_ns = nb::cast<std::int64_t>(said[1]);
  const nb::list hooks(said[3]), functions(said[4]);
  names_.reserve(nb::len(hooks) + nb::len(functions));  // which are pointed at
  bind(hooks, hooks_);
  bind(functions, functions_);
  c_.hooks = hooks_.data();
  c_.hook_count = hooks_.size();
  c_.functions = functions_.data();
  c_.function_count = functions_.size();
  if (nb::object(said[2]).is_none()) return;
  c_.print = print;
  c_.user = lend(nb::object(said[2]));
  c_.release = give_back;
}

RunOptions::~RunOptions() {
  if (!kept_) return;
  if (c_.user) give_back(c_.user);
  for (const auto* list : {&hooks_, &functions_})
    for (const pn_binding& b : *list) give_back(b.user);
}

void RunOptions::bind(const nb::list& listed, std::vector<pn_binding>& into) {
  for (const nb::handle row : listed) {
    const auto [name, function, info] = nb::cast<std::tuple<nb::object, nb::object, bool>>(row);
    const ForC entered = for_c(function, info);
    into.push_back({names_.emplace_back(text_of(name)).c_str(), entered.function, nullptr,
                    entered.user, give_back});
  }
}

}  // namespace postern::python
