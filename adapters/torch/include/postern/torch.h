// Torch: functions and modules of libtorch as host functions of programs, with derivatives and
// batching, and programs as functions of torch. A library of its own, postern::torch, built where
// libtorch 1.13 is. Names of libtorch are written ::torch here; who uses both namespaces writes
// them out.
#pragma once
#include <ATen/core/Tensor.h>
#include <postern/detail/torch_erased.h>
#include <postern/file.h>
#include <postern/transforms.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace torch::jit {
struct Module;
}

namespace postern::torch {

// --- torch inside a program ---

/// What `call` may be told, beside what CallOptions has.
struct Options {
  std::string name = "torch";
  Effect effect = Effect::pure;
  std::chrono::nanoseconds timeout{0};
  /// None: torch's own vmap, once for the whole batch, and a loop over it where another thread is
  /// in a vmap of torch, or where that would lose a derivative. Else as CallOptions has it;
  /// expand_dims and broadcast_all then give the function the batch axes in front.
  std::optional<VmapMethod> vmap = {};
  std::chrono::nanoseconds warn_after{0};
  int device = -1;
  /// How many graphs of calls that wait for their derivative are kept, for each call in the
  /// source. Of one that is no longer kept the function runs again.
  std::size_t kept = 256;
};

/// A function of torch: a callable that takes at::Tensors, or one list of them, a module
/// (torch::nn::Linear, AnyModule, a shared_ptr, ...) or a scripted one (torch::jit::Module).
/// Returns a tensor, a list, or a tuple of them. A callable that returns void takes the operands
/// and then the results, which it fills; it has no derivative.
class Function {
 public:
  template <class F>
  requires(!std::is_same_v<std::decay_t<F>, Function> &&
           !std::is_same_v<std::decay_t<F>, ::torch::jit::Module> &&
           !std::is_convertible_v<F, std::shared_ptr<const detail::Erased>>)
      Function(F&& f, Place place = Place::current())
      : erased_(detail::erase(std::forward<F>(f))), place_(place) {}
  POSTERN_API Function(const ::torch::jit::Module& module, Place place = Place::current());
  explicit Function(std::shared_ptr<const detail::Erased> erased, Place place)
      : erased_(std::move(erased)), place_(place) {}

  const std::shared_ptr<const detail::Erased>& erased() const { return erased_; }
  const Place& place() const { return place_; }

 private:
  std::shared_ptr<const detail::Erased> erased_;
  Place place_;
};

namespace detail {
using postern::detail::as_tree;
POSTERN_API std::vector<Tensor> call(const Options& options, const std::vector<Type>& out,
                                     const Function& fn, const std::vector<Tensor>& operands);
POSTERN_API std::vector<Parameter> parameters_of(const ::torch::jit::Module& module);
template <class M>
std::vector<Parameter> parameters_of(const M& module) {
  std::vector<Parameter> all;
  const auto add = [&](const auto& named) {
    for (const auto& p : named) all.push_back({p.key(), p.value()});
  };
  if constexpr (requires { module->named_parameters(); })
    add(module->named_parameters());
  else if constexpr (requires { module.ptr(); })  // AnyModule
    add(module.ptr()->named_parameters());
  else
    add(module.named_parameters());
  return all;
}
POSTERN_API Function bound(const Function& fn, std::vector<Parameter> parameters);
POSTERN_API std::map<std::string, Tensor> values_of(const std::vector<Parameter>& parameters);
POSTERN_API void store(const std::vector<Parameter>& all,
                       const std::map<std::string, Tensor>& values);
}  // namespace detail

/// Calls a function of torch each time the program runs, on the program's own memory: operands are
/// tensors over it, results are copied into it once, or filled by a function that returns void.
/// The function must not write to its operands (CallbackError) nor keep what it is given.
///
/// Derivatives are torch's: its autograd in reverse mode, its forward mode where the function has
/// one and twice its autograd where not, to any order and mixed. In reverse mode the function runs
/// once: its graph is kept until the derivative is taken. A function none of whose results depends
/// on a float operand, as far as autograd can see, is an error there, as in torch. Parameters of a
/// module are constants, unless `with_parameters` makes them operands.
///
/// Classes derived from torch::autograd::Function have no forward mode in libtorch 1.13, and
/// compiled scripts lose theirs, so a function with such a part has twice its autograd: always
/// right where torch can differentiate it twice. A class whose backward leaves torch's graph is a
/// CallbackError in derivatives of derivatives and in forward mode.
///
/// dtypes are those that torch has: pred, s8 to s64, u8, f16 to f64, c64, c128. Others, and counts
/// of operands that the function does not take, are a TypeError. What the function throws is a
/// CallbackError with torch's text, without its backtrace; a result of another type or shape than
/// `out` says is one of code bad_result.
template <class Out, class... Operands>
typename postern::detail::tensors_of<Out>::type call(const Options& options, const Out& out,
                                                     const Function& fn,
                                                     const Operands&... operands) {
  auto like = postern::detail::template_of(options.name, out, fn.place());
  const std::vector<Tensor> leaves = detail::call(
      options, like.types, fn, postern::detail::leaves_of(detail::as_tree(operands)...));
  return postern::detail::with_leaves(std::move(like.tree), leaves);
}
template <class Out, class... Operands>
requires(!std::is_same_v<Out, Options>) typename postern::detail::tensors_of<Out>::type
    call(const Out& out, const Function& fn, const Operands&... operands) {
  return call(Options{}, out, fn, operands...);
}

/// A module's parameters as tensors, copies, by the names that torch gives them; one that it has
/// under several names is there once, by the first of them.
template <class M>
std::map<std::string, Tensor> parameters(const M& module) {
  return detail::values_of(detail::parameters_of(module));
}
/// Writes them back. Throws TypeError where names, dtypes or extents are not the module's.
template <class M>
void store_parameters(const M& module, const std::map<std::string, Tensor>& values) {
  detail::store(detail::parameters_of(module), values);
}
/// The module as a function whose first operands are its parameters, in the order of their names,
/// as the map that `parameters` gives has them: `call(out, with_parameters(m), params, x)`. A call
/// puts their memory into the module while it runs, so one module does one call at a time; others,
/// also of modules that share a parameter with it, wait, at most a minute.
template <class M>
Function with_parameters(const M& module, Place place = Place::current()) {
  return detail::bound(Function(module, place), detail::parameters_of(module));
}

/// How many threads torch uses for one operation inside calls, from now on: 0, as it is set in
/// torch. On few cores 1 keeps torch's threads from fighting with XLA's.
POSTERN_API void set_threads(int threads);

// --- programs inside torch ---

namespace detail {
class Program;
}

/// A program as a function of torch, on torch's memory. Copies share it; any number of threads may
/// call one at once. It waits for the run, and results are torch tensors over the program's memory.
/// Derivatives are Postern's, to any order, for torch's reverse and forward modes; a derivative's
/// program computes what it needs of the program again, its calls and taps included. Throws
/// TypeError for tensors that are not dense ones of the CPU, or that a vmap of torch has wrapped,
/// and whatever the program throws.
class Module {
 public:
  explicit Module(std::shared_ptr<const detail::Program> program) : program_(std::move(program)) {}

  /// All results, in order.
  POSTERN_API std::vector<at::Tensor> run(const std::vector<at::Tensor>& arguments) const;
  /// The only result; TypeError where there is not exactly one.
  POSTERN_API at::Tensor operator()(const std::vector<at::Tensor>& arguments) const;
  template <class... T>
  requires(std::is_convertible_v<const T&, at::Tensor>&&...) at::Tensor operator()(
      const T&... arguments) const {
    return (*this)(std::vector<at::Tensor>{arguments...});
  }

  const std::shared_ptr<const detail::Program>& internal() const { return program_; }

 private:
  std::shared_ptr<const detail::Program> program_;
};

namespace detail {
using Leaves = std::vector<Tensor>;
using LeavesFunction = std::function<Leaves(const Leaves&)>;
POSTERN_API Module module_of(LeavesFunction f);
[[noreturn]] POSTERN_API void wrong_arguments(std::size_t count);

/// Calls f with so many tensors, if it can be.
template <class F, std::size_t... i>
bool call_leaves(const F& f, const Leaves& x, Leaves& y, std::index_sequence<i...>) {
  if constexpr (std::is_invocable_v<const F&, decltype(x[i])...>) {
    if (x.size() != sizeof...(i)) return false;
    y = postern::leaves(f(x[i]...));
    return true;
  } else {
    return false;
  }
}
}  // namespace detail

/// A function on tensors, jitted or not, as a function of torch: f takes Tensors, at most eight, or
/// one std::vector of them, and returns a container.
template <class F>
requires(!std::is_same_v<std::decay_t<F>, Loaded>) Module module(F f) {
  if constexpr (std::is_invocable_v<const F&, const detail::Leaves&>) {
    return detail::module_of([f](const detail::Leaves& x) { return postern::leaves(f(x)); });
  } else {
    return detail::module_of([f](const detail::Leaves& x) {
      detail::Leaves y;
      const bool done = [&]<std::size_t... n>(std::index_sequence<n...>) {
        return (detail::call_leaves(f, x, y, std::make_index_sequence<n>()) || ...);
      }
      (std::make_index_sequence<9>());
      if (!done) detail::wrong_arguments(x.size());
      return y;
    });
  }
}
/// A program from a file, of Postern or elsewhere. It has the derivatives that are given, in
/// reverse mode: the first takes the arguments and the cotangents of the float results, and gives
/// the cotangents of the float arguments; the next is its derivative in the same way. Throws
/// TypeError where one takes or gives other types.
POSTERN_API Module module(Loaded program, std::vector<Loaded> derivatives = {});

/// A module as a scripted one, whose forward takes so many tensors and returns the only result;
/// with `list`, all of them as a list. It can be a part of other scripted modules, and be saved and
/// loaded by torch: the file has the program, its derivative and second derivative, for all types
/// with which it has run (none: Error, failed_precondition). Host functions in it must be Named.
/// Who loads it links postern::torch.
POSTERN_API ::torch::jit::Module scripted(const Module& module, std::size_t arguments,
                                          bool list = false);
/// The program in a scripted module that `scripted` made.
POSTERN_API Module from_scripted(const ::torch::jit::Module& module);

}  // namespace postern::torch
