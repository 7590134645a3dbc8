// check: conditions that a program tests while it runs. keep: values that nobody uses, computed all
// the same.
#pragma once
#include <postern/detail/api.h>
#include <postern/print.h>

#include <stdexcept>

namespace postern {

namespace detail {
using Thrower = void (*)(const std::string& text);
POSTERN_API void check_that(const Tensor& ok, const PrintFormat& format,
                            std::vector<PrintValue> values, std::vector<Tensor> leaves,
                            Thrower thrower);
}  // namespace detail

/// Fails the run when an element of `ok` (pred) is false, with a CallbackError whose text is the
/// formatted line (see print for the format and its values) and whose cause is an `E` with that
/// line; under vmap it also says for which element of the batch. A check that holds calls nothing.
/// It has no derivative, and fires in the forward pass alone. Where nothing is traced it is tested
/// at once. Throws TypeError, with your line, when `ok` is no pred or the format does not fit.
///
///   auto root = pn::jit([](pn::Tensor x) {
///     pn::check<std::domain_error>(x >= 0.0f, "a root of {}", x);
///     return pn::sqrt(x);
///   });
///   const pn::Tensor y = root(pn::tensor<float>({1, 4}));  // [1 2]
template <class E = std::runtime_error, class... Values>
void check(const Tensor& ok, const PrintFormat& format, const Values&... values) {
  std::vector<Tensor> leaves;
  std::vector<detail::PrintValue> shown;
  (shown.push_back(detail::print_value_of(values, leaves)), ...);
  detail::check_that(ok, format, std::move(shown), std::move(leaves),
                     [](const std::string& text) { throw E(text); });
}

/// Has the program compute `value`, a container or a number, although nobody uses it: for
/// measurements, and for values that a debugger looks at. Nothing is copied. Throws TypeError for
/// an empty Tensor.
template <class Value>
void keep(const Value& value, Place place = Place::current()) {
  tap({.name = "keep", .ordered = false}, value, Callee([](std::span<const AnyView>) {}, place));
}

}  // namespace postern
