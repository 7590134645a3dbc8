// The C interface: programs, tensors, functions.
//
// Every function that can fail runs inside of guarded(), which turns whatever is thrown into a
// code and keeps the text for the thread that called; nothing is thrown through C. Handles are
// objects of ours that the caller frees; a null one is refused by name.
#include "c/c_api.h"

#include <set>

#include "core/check.h"
#include "core/site_spec.h"
#include "host/bad_result.h"
#include "host/run_state.h"
#include "run/array.h"

using namespace postern;
using namespace postern::internal;
using c::guarded;

pn_program::pn_program(Loaded p)
    : program(std::move(p)),
      input_names(program.input_names()),
      output_names(program.output_names()),
      functions(program.required_functions()) {
  for (const Type& t : program.inputs()) inputs.push_back(to_string(t));
  for (const Type& t : program.outputs()) outputs.push_back(to_string(t));
  std::set<std::string> names;
  for (const SavedSite& s : program.sites())
    if (s.kind == word_of(SiteSpec::Kind::hook)) names.insert(s.name);
  hooks.assign(names.begin(), names.end());
}

static_assert(static_cast<int>(DType::f4e2m1fn) == PN_F4E2M1FN &&
              static_cast<int>(DType::f32) == PN_F32 && static_cast<int>(DType::u64) == PN_U64 &&
              static_cast<int>(DType::c128) == PN_C128);
static_assert(static_cast<int>(ErrorCode::unregistered) == PN_UNREGISTERED &&
              static_cast<int>(ErrorCode::data_loss) == PN_DATA_LOSS);

namespace postern::internal::c {

Failure& last_error() {
  thread_local Failure last;
  return last;
}
Failure& failure() {
  thread_local Failure last;
  return last;
}

std::shared_ptr<void> held(void* thing, void (*release)(void*)) {
  return {thing, [release](void* t) {
            if (release) release(t);
          }};
}

int set_last_error(int code, std::string_view text, std::shared_ptr<void> cause) noexcept {
  Failure& last = last_error();
  last.cause.reset();  // first: the user's function that releases it may fail in calls of its own
  last.cause = std::move(cause);
  try {
    last.text = text;
  } catch (const std::bad_alloc&) {
    last.text = "out of memory";  // which takes none
  }
  return code;
}

/// What a host function gave with its failure, out of which this error was made.
static std::shared_ptr<void> cause_of(const std::exception_ptr& error) {
  if (!error) return nullptr;
  try {
    std::rethrow_exception(error);
  } catch (const HostError& e) {
    return e.cause;
  } catch (const CallbackError& e) {
    return cause_of(e.cause());
  } catch (...) {
    return nullptr;
  }
}

int code_of(const std::exception_ptr& error) noexcept try {
  std::rethrow_exception(error);
} catch (const Error& e) {
  return set_last_error(static_cast<int>(e.code()), e.what(), cause_of(error));
} catch (const std::bad_alloc&) {
  return set_last_error(PN_RESOURCE_EXHAUSTED, "out of memory");
} catch (const std::exception&) {
  return set_last_error(PN_INTERNAL, host::describe(error));
} catch (...) {
  return set_last_error(PN_UNKNOWN, "an exception of an unknown type");
}

Firing::Firing(const std::string& function, const Attributes& attributes, const CallInfo& info,
               Operands operands, Results results)
    : site_(info.name), attributes_(to_json_text(attributes)) {
  auto add = [&](const auto& v) {
    arrays_.push_back({.dtype = static_cast<std::int32_t>(v.dtype()),
                       .rank = static_cast<std::int32_t>(v.dims().size()),
                       .dims = v.dims().data(),
                       .data = const_cast<void*>(static_cast<const void*>(v.data())),
                       .bytes = size_of(v.size()) * byte_width(v.dtype())});
  };
  for (const AnyView& v : operands) add(v);
  for (const AnyMutableView& v : results) add(v);
  view = {.function = function.c_str(),
          .site = site_.c_str(),
          .attributes = attributes_.c_str(),
          .device = info.device,
          .run = info.run,
          .element = info.element,
          .operand_count = operands.size(),
          .result_count = results.size(),
          .operands = arrays_.data(),
          .results = arrays_.data() + operands.size(),
          .asynchronous = host::nesting() && host::nesting()->delivery,
          .coordinate_count = info.coordinates.size(),
          .coordinates = info.coordinates.data()};
}

Callee callee_of(std::string name, pn_function function, std::shared_ptr<const User> user,
                 bool listens) {
  const auto enter = [name = std::move(name), function, held = std::move(user)](
                         const Attributes& attributes, const CallInfo& info, Operands operands,
                         Results results) {
    const Firing firing(name, attributes, info, operands, results);
    failure() = {};
    const int code = function(held->user, &firing.view);
    if (code == PN_OK) return;
    Failure why = std::exchange(failure(), {});  // from pn_fail, which the function may have called
    if (code == PN_BAD_RESULT) throw host::BadResult(why.text);
    if (why.text.empty()) why.text = fmt::format("the function returned code {}", code);
    throw HostError(code, std::move(why));
  };
  return callee_of(enter, listens);
}

Type type_of(const pn_array& array) {
  check(array.dtype >= 0 && array.dtype <= PN_F4E2M1FN,
        "an array's dtype must be a pn_dtype, got {}", array.dtype);
  check(array.rank >= 0 && array.rank <= max_rank && (array.rank == 0 || array.dims),
        "an array's rank must be from 0 to {}, with dims, got {}", max_rank, array.rank);
  Type type = make_type(static_cast<DType>(array.dtype), Dims(array.dims, array.dims + array.rank));
  if (array.bytes != type.byte_size())  // else nobody wants the type as text
    throw_type_error(fmt::format("an array of type {} has {} bytes, {} were given", to_string(type),
                                 type.byte_size(), array.bytes));
  check(array.data || array.bytes == 0, "an array's data is NULL");
  return type;
}

std::vector<Tensor> arguments_of(const pn_program& program, const pn_tensor* const* handles,
                                 std::size_t count) {
  // First: where the count does not fit, the list is meant for another program, and is not read.
  check(count == program.inputs.size(), "the saved program takes {} arguments, {} were given",
        program.inputs.size(), count);
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < count; ++i) {
    check(handles && handles[i], "argument {} is NULL", i);
    out.push_back(handles[i]->tensor);
  }
  return out;
}

namespace {

/// Makes handles of all tensors, or of none where there is no memory for that.
void give(const std::vector<Tensor>& from, pn_tensor** to) {
  std::vector<std::unique_ptr<pn_tensor>> made;
  for (const Tensor& t : from) made.push_back(std::unique_ptr<pn_tensor>(new pn_tensor{t}));
  for (std::size_t i = 0; i < made.size(); ++i) to[i] = made[i].release();
}

}  // namespace

void need(bool there, const char* what) { check(there, "{} is NULL", what); }

}  // namespace postern::internal::c

using c::give;
using c::need;

int pn_version(void) { return PN_C_VERSION; }
const char* pn_last_error(void) { return c::last_error().text.c_str(); }
void* pn_last_cause(void) { return c::last_error().cause.get(); }
void pn_clear_error(void) { c::last_error() = {}; }

const char* pn_dtype_name(int dtype) {
  if (dtype < 0 || dtype > PN_F4E2M1FN) return nullptr;
  return to_string(static_cast<DType>(dtype)).data();  // a literal's
}

int pn_configure(int cpu_devices, const char* plugin, const char* cache_dir) {
  const pn_options options{sizeof(pn_options), cpu_devices, plugin, cache_dir, 0};
  return pn_configure_with(&options);
}

int pn_tensor_copy(const pn_array* array, pn_tensor** out) {
  return guarded(array && out, "pn_tensor_copy: array or out",
                 [&] { *out = new pn_tensor{Tensor(c::type_of(*array), array->data)}; });
}

int pn_tensor_borrow(const pn_array* array, void (*release)(void*), void* user, pn_tensor** out) {
  return guarded(array && out, "pn_tensor_borrow: array or out", [&] {
    const Type type = c::type_of(*array);
    // The handle is there first: where there is no memory for it nothing is released.
    *out = new pn_tensor{Tensor::borrow(type, array->data, [release, user] {
      if (release) release(user);
    })};
  });
}

int pn_tensor_view(const pn_tensor* tensor, pn_array* out) {
  return guarded(tensor && out, "pn_tensor_view: tensor or out", [&] {
    const Type& type = tensor->tensor.type();
    tensor->tensor.block_until_ready();  // here, so that nobody waits for a run with the lock below
    tensor->looked([&] { tensor->bytes = run::host_view(tensor->tensor, tensor->keep); });
    *out = {.dtype = static_cast<std::int32_t>(type.dtype),
            .rank = static_cast<std::int32_t>(type.rank()),
            .dims = type.dims.data(),
            .data = const_cast<void*>(tensor->bytes),
            .bytes = type.byte_size()};
  });
}

void pn_tensor_free(pn_tensor* tensor) { delete tensor; }

int pn_load_file(const char* path, pn_program** out) { return pn_load_entry(path, nullptr, out); }
int pn_load_entry(const char* path, const char* entry, pn_program** out) {
  return guarded(path && out, "pn_load_file: path or out",
                 [&] { *out = new pn_program(load(path, {.entry = text_or(entry, "")})); });
}
int pn_load_text(const char* text, size_t size, pn_program** out) {
  return guarded(text && out, "pn_load_text: text or out", [&] {
    check(size <= PTRDIFF_MAX, "pn_load_text: no text has {} bytes", size);
    *out = new pn_program(load_text({text, size}));
  });
}
void pn_program_free(pn_program* program) { delete program; }
using Prog = pn_program;
size_t pn_program_inputs(const Prog* p) { return c::count(p, &Prog::inputs); }
size_t pn_program_outputs(const Prog* p) { return c::count(p, &Prog::outputs); }
const char* pn_program_input(const Prog* p, size_t i) { return c::at(p, &Prog::inputs, i); }
const char* pn_program_output(const Prog* p, size_t i) { return c::at(p, &Prog::outputs, i); }
const char* pn_program_input_name(const Prog* p, size_t i) {
  return c::at(p, &Prog::input_names, i);
}
const char* pn_program_output_name(const Prog* p, size_t i) {
  return c::at(p, &Prog::output_names, i);
}
const char* pn_program_function(const Prog* p, size_t i) { return c::at(p, &Prog::functions, i); }
const char* pn_program_hook(const Prog* p, size_t i) { return c::at(p, &Prog::hooks, i); }

int pn_run(const pn_program* program, const pn_tensor* const* arguments, size_t count,
           pn_tensor** results) {
  return guarded(program && (results || program->outputs.empty()), "pn_run: program or results",
                 [&] {
                   const std::vector<Tensor> given = c::arguments_of(*program, arguments, count);
                   const std::vector<Tensor> out = program->program.run(given, Place{});
                   for (const Tensor& t : out) t.block_until_ready();
                   give(out, results);
                 });
}

int pn_started_wait(pn_started* run, int64_t timeout_ns, pn_tensor** results) {
  return guarded(run != nullptr, "pn_started_wait: run", [&] {
    const auto limit = c::limit_of(timeout_ns);
    const RunStatus status = limit ? run->run.wait(*limit) : run->run.wait();
    if (status == RunStatus::running) return PN_EMPTY;
    if (status == RunStatus::stopped)
      throw Error(ErrorCode::cancelled, "the run was ended early by a host function");
    const std::vector<Tensor> out = run->run.result();
    need(results || out.empty(), "pn_started_wait: results");
    give(out, results);
    return PN_OK;
  });
}

int pn_started_cancel(pn_started* run) {
  return guarded(run != nullptr, "pn_started_cancel: run", [&] { run->run.cancel(); });
}
void pn_started_free(pn_started* run) { delete run; }

int pn_barrier(int64_t timeout_ns) {
  return guarded([&] {
    const auto limit = c::limit_of(timeout_ns);
    if (limit) return barrier(*limit) == 0 ? PN_OK : PN_EMPTY;
    barrier();
    return PN_OK;
  });
}

void pn_fail(const char* text) { pn_fail_with(text, nullptr, nullptr); }
void pn_fail_with(const char* text, void* cause, void (*release)(void*)) {
  try {
    c::failure() = {};
    c::failure().cause = c::held(cause, release);
    if (text) c::failure().text = text;
  } catch (const std::bad_alloc&) {
    c::failure().text = "out of memory";
  }
}

int pn_register(const char* name, pn_function function, void* user, void (*release)(void*),
                int replace) {
  return guarded(name && function, "pn_register: name or function", [&] {
    const auto held = std::make_shared<c::User>(user, release);
    register_function(name, c::callee_of(name, function, held), {.replace = replace != 0});
    held->is_ours = true;  // what was refused is still the caller's
  });
}

int pn_unregister(const char* name) {
  return guarded(name != nullptr, "pn_unregister: name", [&] {
    if (!unregister_function(name))
      throw Error(ErrorCode::not_found, fmt::format("no function is registered under '{}'", name));
  });
}
