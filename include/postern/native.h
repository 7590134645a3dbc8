// Programs as plain functions of the caller's memory, for what calls one a million times: samplers,
// optimizers, force fields.
#pragma once
#include <postern/detail/api.h>
#include <postern/file.h>
#include <postern/jit.h>

#include <memory>
#include <vector>

namespace postern {

namespace detail {
class NativeProgram;
}

/// A compiled program that reads its arguments where the caller has them, and writes its results
/// where the caller says. Copies share it. Any number of threads may call it at once; none waits
/// for another, and nothing is allocated by Postern once as many have called as ever call at once.
///
/// Memory is dense and row-major, of as many bytes as the type says; of elements of less than a
/// byte each takes one. Arguments from 4 KiB on that are aligned to 64 bytes are read in place,
/// others are copied first. Results are copied out of XLA's memory, since it gives no result memory
/// that is not its own. They may be where arguments are, but must not overlap each other.
class Native {
 public:
  explicit Native(std::shared_ptr<const detail::NativeProgram> program)
      : program_(std::move(program)) {}

  /// Returns the types of what `in` and `out` point to, in order. Throws nothing.
  POSTERN_API const std::vector<Type>& inputs() const;
  POSTERN_API const std::vector<Type>& outputs() const;

  /// Runs, and returns when the results are there. Throws what running the program throws, and
  /// TypeError where a pointer of a type that has elements is null; what `out` points to is then
  /// undefined.
  POSTERN_API void operator()(const void* const* in, void* const* out) const;

  /// Itself as C has it: `function(self, in, out)` is 0, or an ErrorCode's number and then
  /// `pn_last_error()` says what was wrong. `self` lives as long as this and its copies. Throws
  /// nothing.
  struct Entry {
    int (*function)(void* self, const void* const* in, void* const* out);
    void* self;
  };
  POSTERN_API Entry entry() const;
  const std::shared_ptr<const detail::NativeProgram>& internal() const { return program_; }

 private:
  std::shared_ptr<const detail::NativeProgram> program_;
};

/// Compiles the program for that. What it captures is bound to it. Throws CompileError, and
/// Error(unimplemented) for a program over several devices or processes.
POSTERN_API Native native(const Lowered& program, Place place = Place::current());

/// Does so with a function of Tensors, whose arguments are of these types. Throws what `jit(f)`
/// throws as well.
///
///   auto energy = [](pn::Tensor x) { return 0.5 * pn::sum(x * x); };
///   const auto f = pn::native(pn::value_and_grad(energy), pn::type<double>({2}));
///   const double x[] = {3, 4};
///   double value = 0, slope[2];
///   const void* in[] = {x};
///   void* out[] = {&value, slope};
///   f(in, out);  // 12.5, [3 4]
template <class F, class... T>
requires(sizeof...(T) > 0 && (std::is_same_v<T, Type> && ...)) Native
    native(const F& f, const T&... types) {
  return native(jit(f).lower(abstract(types)...));
}

/// Does so with a program from a file. `types`: of its arguments; where it takes them of any size
/// they must be given. Throws what `run` throws for arguments that do not fit.
POSTERN_API Native native(const Loaded& program, const std::vector<Type>& types = {},
                          Place place = Place::current());

}  // namespace postern
