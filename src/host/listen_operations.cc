// trace::non_finite: a tap behind every operation.
#include <fmt/format.h>
#include <postern/listen.h>

#include "core/check.h"
#include "host/listen_summary.h"
#include "ops/site.h"
#include "trace/trace.h"

namespace postern::trace {

namespace {

/// Is shown the operands, then the results, of one operation.
struct FiniteCheck {
  std::size_t operands;

  void operator()(const TapInfo& info, std::span<const AnyView> leaves) const {
    bool had_nan = false, had_inf = false;
    for (const AnyView& v : leaves.first(operands)) {
      const host::NonFinite in = host::non_finite_in(v, info.mask);
      had_nan |= in.nan >= 0, had_inf |= in.inf >= 0;
    }
    for (std::size_t i = operands; i < leaves.size(); ++i) {
      const host::NonFinite out = host::non_finite_in(leaves[i], info.mask);
      if (out.nan >= 0 && !had_nan) fail(leaves, i, out.nan, "nan");
      if (out.inf >= 0 && !had_inf && !had_nan) fail(leaves, i, out.inf, "infinite");
    }
  }

  [[noreturn]] void fail(std::span<const AnyView> leaves, std::size_t i, std::int64_t at, const char* what) const {
    const std::string index = host::index_text(at, leaves[i].dims());
    throw std::runtime_error(fmt::format("result{}{} of type {} is {}, no operand is",
                                         leaves.size() - operands > 1 ? fmt::format(" {}", i - operands) : "",
                                         index.empty() ? "" : " at " + index, to_string(leaves[i].type()), what));
  }
};

void watch(const Primitive& primitive, std::span<const Tensor> operands, std::span<const Tensor> results) {
  SiteSpec s;
  Tensors shown;
  auto show = [&](const Tensor& t) {
    if (!is_differentiable(t.dtype()) || t.size() == 0) return;
    shown.push_back(t);
    s.operands.push_back({t.dtype(), t.dims()});
  };
  for (const Tensor& t : operands) show(t);
  const std::size_t count = shown.size();
  for (const Tensor& t : results) show(t);
  if (shown.size() == count || count == 0) return;  // what has no operands is as it was written
  s.kind = SiteSpec::Kind::tap;
  s.word = "operation";
  s.name = primitive.name;
  s.place = PlaceScope::current();
  s.function = detail::erase(FiniteCheck{count});
  s.operand_paths.resize(shown.size());
  s.effect = Effect::ordered;
  at_site(std::move(s), shown);
}

}  // namespace

WatchFinite::WatchFinite() : before_(reinterpret_cast<void*>(set_watcher(watch))) {}
WatchFinite::~WatchFinite() { set_watcher(reinterpret_cast<Watcher>(before_)); }

}  // namespace postern::trace
