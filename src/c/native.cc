// The C interface: programs as functions of the caller's memory.
#include <postern/native.h>
#include <postern/transforms.h>

#include <functional>

#include "c/c_api.h"
#include "core/check.h"
#include "core/lists.h"
#include "file/site_json.h"
#include "run/native.h"
#include "transform/walk.h"

using namespace postern;
using namespace postern::internal;
using c::guarded;

struct pn_native {
  explicit pn_native(Native n) : program(std::move(n)) {
    for (const Type& t : program.inputs()) inputs.push_back(to_string(t));
    for (const Type& t : program.outputs()) outputs.push_back(to_string(t));
  }
  Native program;
  std::vector<std::string> inputs, outputs;
};

namespace {

using Function = std::function<Tensors(const Tensors&)>;

/// Returns the tensors that have derivatives, and puts others in their places.
Tensors active_of(const Tensors& all) {
  Tensors out;
  for (const Tensor& t : all)
    if (is_differentiable(t.dtype())) out.push_back(t);
  return out;
}
Tensors with_active(Tensors all, const Tensors& active) {
  auto next = active.begin();
  for (Tensor& t : all)
    if (is_differentiable(t.dtype())) t = *next++;
  return all;
}

/// Returns the results of f, then the gradient of the first by each argument that has derivatives.
Tensors with_gradient(const Function& f, const Tensors& x) {
  const auto first_and_all = [&](const Tensors& active) {
    Tensors results = f(with_active(x, active));
    check(!results.empty(), "pn_native_of: a program without results has no gradient");
    Tensor first = results.front();
    return std::pair{std::move(first), std::move(results)};
  };
  auto [values, gradients] = value_and_grad(first_and_all)(active_of(x));
  return joined({values.second, gradients});
}

/// Returns the results of f, then the tangents of those that have one. `x`: so many arguments, then
/// a tangent for each of them that has derivatives.
Tensors with_tangents(const Function& f, const Tensors& x, std::size_t arguments) {
  const Tensors given = head(x, arguments), tangents = tail(x, arguments);
  const auto all = [&](const Tensors& active) { return f(with_active(given, active)); };
  const auto [y, dy] = jvp(all, active_of(given), tangents);
  Tensors both = y;
  for (std::size_t i = 0; i < y.size(); ++i)
    if (is_differentiable(y[i].dtype())) both.push_back(dy[i]);
  return both;
}

/// Returns the program, or a derivative of it, as a function of the arguments that are not bound,
/// which are traced (`free`); the bound ones are constants of it.
Native native_of(const Loaded& program, const pn_native_options& options) {
  std::vector<Type> types = program.inputs();  // but for those that the options give instead
  for (std::size_t i = 0; options.types && i < types.size(); ++i) {
    c::need(options.types[i] != nullptr, "pn_native_of: types");
    types[i] = file::parse_type(options.types[i]);
  }
  Tensors bound(types.size()), free;  // bound: empty where the argument is free
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (options.bound && options.bound[i])
      bound[i] = options.bound[i]->tensor;
    else
      free.push_back(abstract(types[i]));
  }
  if (options.derivative == PN_VALUE && free.size() == types.size()) return native(program, types);
  const Function value = [&](const Tensors& x) {
    Tensors all = bound;
    auto next = x.begin();
    for (Tensor& t : all)
      if (!t.has_value()) t = *next++;
    return program.run(all);
  };
  const std::size_t arguments = free.size();
  Function f = value;
  if (options.derivative == PN_VALUE_AND_GRADIENT)
    f = [&](const Tensors& x) { return with_gradient(value, x); };
  if (options.derivative == PN_JVP) {
    f = [&](const Tensors& x) { return with_tangents(value, x, arguments); };
    free = joined({free, active_of(free)});
  }
  return native(jit(f).lower(free));
}

/// Runs it, for both sides: C with its handle, C++ by Native::entry.
int call_native(const detail::NativeProgram& f, const void* const* in, void* const* out) noexcept {
  return guarded((in || f.inputs.empty()) && (out || f.outputs.empty()), "a function's in or out",
                 [&] { f.run(in, out); });
}

}  // namespace

int pn_native_of(const pn_program* program, const pn_native_options* options, pn_native** out) {
  return guarded(program && out, "pn_native_of: program or out", [&] {
    check(!options || options->size >= sizeof *options,
          "pn_native_of: options of {} bytes, expected {}", options ? options->size : 0,
          sizeof *options);
    pn_native_options given = {};
    if (options) given = *options;
    check(given.derivative >= PN_VALUE && given.derivative <= PN_JVP,
          "pn_native_of: there is no derivative {}", given.derivative);
    *out = new pn_native(native_of(program->program, given));
  });
}

void pn_native_free(pn_native* native) { delete native; }

using Nat = pn_native;
size_t pn_native_inputs(const Nat* n) { return c::count(n, &Nat::inputs); }
size_t pn_native_outputs(const Nat* n) { return c::count(n, &Nat::outputs); }
const char* pn_native_input(const Nat* n, size_t i) { return c::at(n, &Nat::inputs, i); }
const char* pn_native_output(const Nat* n, size_t i) { return c::at(n, &Nat::outputs, i); }

int pn_native_call(void* native, const void* const* in, void* const* out) {
  if (!native) return c::set_last_error(PN_INVALID_ARGUMENT, "pn_native_call: native is NULL");
  return call_native(*static_cast<pn_native*>(native)->program.internal(), in, out);
}

namespace postern {

Native::Entry Native::entry() const {
  return {[](void* self, const void* const* in, void* const* out) {
            return call_native(*static_cast<const detail::NativeProgram*>(self), in, out);
          },
          const_cast<detail::NativeProgram*>(program_.get())};
}

}  // namespace postern
