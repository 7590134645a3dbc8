// Looking into programs: where a nan or an infinity comes from, and what happened when.
//
//   auto f = pn::jit(pn::trace::non_finite([](pn::Tensor x) { return pn::log(x); }));
//   pn::record_timeline(true);
//   f(1.0f);  // of -1.0f it throws a CallbackError that names log and its line
//   pn::write_timeline("timeline.json");
#pragma once
#include <postern/detail/api.h>
#include <postern/jit.h>
#include <postern/transforms.h>

#include <string>

namespace postern::detail {
POSTERN_API Tensors non_finite(const TensorFunction& f, const Tensors& x, const Place& place);
}  // namespace postern::detail

namespace postern::trace {

/// What `non_finite` returns.
template <class F>
class NonFinite : public detail::BraceCall<NonFinite<F>, F> {
 public:
  /// Wraps f; it is called as `f` is, and throws what `f` throws while it is traced.
  NonFinite(F f, Place place) : f_(std::move(f)), place_(place) {}
  template <class... A>
  auto invoke(A&&... arguments) const {
    return detail::with_boxed<F>(
        [this]<class... B>(const B&... x) {
          const detail::Flat<F, B...> flat(f_, x...);
          const detail::Tensors y = detail::non_finite(flat, detail::leaves_of(x...), place_);
          return detail::with_leaves(flat.like(), y);
        },
        std::forward<A>(arguments)...);
  }

 private:
  detail::Shared<F> f_;
  Place place_;
};

/// Returns the function `f` with a tap on every operation in it, those in loops and branches
/// included: the first one that makes a nan or an infinity out of operands that have none ends the
/// run with a CallbackError that names the operation and your line. Under it derivatives are
/// watched too: `jit(trace::non_finite(grad(f)))`. Slow, for finding out.
template <class F>
[[nodiscard]] NonFinite<F> non_finite(F f, Place place = Place::current()) {
  return {std::move(f), place};
}

}  // namespace postern::trace

namespace postern {

/// Records compiles, executions, moves between devices, calls, deliveries of taps and waits, from
/// now on or not; with the environment variable POSTERN_TIMELINE=file.json from the start; the file
/// is written at the end, in Chrome's trace format (Perfetto opens it). Throws nothing.
POSTERN_API void record_timeline(bool on);
/// Writes what has been recorded. Throws Error(unavailable) when the file cannot be written.
POSTERN_API void write_timeline(const std::string& file);

}  // namespace postern
