// Started calls come early.
#include "lower/order.h"

#include <algorithm>
#include <set>

#include "core/primitive.h"
#include "core/site_spec.h"

namespace postern::internal {

namespace {

bool has_role(const Equation& e, SiteCall::Role role) {
  const SiteSpec* const site = site_of(e);
  return site && site->call.role == role;
}

bool makes_one_of(const Equation& e, const std::set<ValueId>& values) {
  const auto first = values.lower_bound(e.first);
  return first != values.end() && *first < e.first + e.results;
}

/// Writes the order of starts_first(), each equation once.
class Order {
 public:
  explicit Order(std::span<const Equation> equations)
      : equations_(equations), written_(equations.size()) {
    order_.reserve(equations.size());
    for (std::size_t i = 0; i < equations.size(); ++i) {
      write(i);
      if (has_role(equations[i], SiteCall::Role::wait)) write_starts_behind(i);
    }
  }
  std::vector<const Equation*> take() { return std::move(order_); }

 private:
  void write(std::size_t i) {
    if (written_[i]) return;
    written_[i] = true;
    order_.push_back(&equations_[i]);
  }
  void write_starts_behind(std::size_t wait) {
    for (std::size_t i = wait + 1; i < equations_.size(); ++i) {
      if (has_role(equations_[i], SiteCall::Role::start))
        write_with_needs(wait, i);
      else if (effect_of(equations_[i]) != Effect::pure)
        return;
    }
  }
  /// Writes a start and what it needs. Since the wait only starts had effects, which are written.
  void write_with_needs(std::size_t wait, std::size_t start) {
    std::vector<std::size_t> last_first{start};
    std::set<ValueId> needed(equations_[start].operands.begin(), equations_[start].operands.end());
    for (std::size_t i = start; i-- > wait + 1;) {
      const Equation& e = equations_[i];
      if (written_[i] || !makes_one_of(e, needed)) continue;
      last_first.push_back(i);
      needed.insert(e.operands.begin(), e.operands.end());
    }
    for (std::size_t i = last_first.size(); i-- > 0;) write(last_first[i]);
  }

  const std::span<const Equation> equations_;
  std::vector<bool> written_;
  std::vector<const Equation*> order_;
};

}  // namespace

bool waits_in(std::span<const Equation> equations) {
  return std::ranges::any_of(equations,
                             [](const Equation& e) { return has_role(e, SiteCall::Role::wait); });
}

std::vector<const Equation*> starts_first(std::span<const Equation> equations) {
  return Order(equations).take();
}

}  // namespace postern::internal
