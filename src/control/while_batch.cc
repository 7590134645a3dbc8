// while_loop under vmap.
#include "control/residual_store.h"
#include "control/scan.h"
#include "core/lists.h"

#include <postern/ops.h>

namespace postern::internal {

namespace {

void refuse_ordered(const Program& condition) {
  for (const Equation& e : condition.equations) {
    if (e.primitive->site) {
      const SiteSpec& s = *e.primitive->site(e.params.get());
      PlaceScope::Replace at(s.place);
      check(s.is_tap() || s.effect != Effect::ordered,
            "vmap: call '{}' with an ordered effect decides when a while_loop ends, and under vmap "
            "each element ends at its own time: no "
            "order would be right. Make "
            "the call unordered, or batch inside of the loop",
            s.name);
    }
    if (e.params)
      for (const ProgramPtr& p : programs_of(*e.params)) refuse_ordered(*p);
  }
}

/// A while_loop under vmap: its parts with their axes, and the trace of one step.
///
/// A part of the carry has a batch axis from the start if any step gives it one, so the body is
/// traced until no more of them does. If the condition then says one thing for the whole batch, the
/// loop stays a loop of the batched body. If it says another for each element, it goes on while any
/// element does, and those that are done keep their carry and call nothing (masked).
class BatchedWhile {
 public:
  BatchedWhile(const WhileParams& p, TensorSpan x, std::span<const int> axes, std::int64_t size,
               const Tensor& mask)
      : p_(p),
        cc_(x.first(p.condition_constants)),
        bc_(x.subspan(p.condition_constants, p.body_constants)),
        cc_axes_(axes.first(cc_.size())),
        bc_axes_(axes.subspan(cc_.size(), bc_.size())),
        size_(size),
        mask_(mask) {
    for (std::size_t i = cc_.size() + bc_.size(); i < x.size(); ++i) {
      carry_.push_back(x[i]);
      mapped_.push_back(axes[i] >= 0);
      if (axes[i] >= 0) carry_.back() = move_batch(x[i], axes[i], 0, size);
    }
  }

  Batched run() {
    Closed body = settle();
    bool masks = false;
    const Closed test = trace_inner("condition", with_carry(cc_), [&](TensorSpan in) {
      const auto [go, from] = batch_condition(in, mask_);
      masks = from >= 0;
      if (!mask_.has_value() || masks) return Tensors{go};
      return Tensors{logical_and(go, any(mask_))};
    });
    if (masks) return masked();
    WhileParams q = p_;
    for (std::size_t i = 0; i < p_.ys(); ++i) q.handle_ranks[i] += y_mapped_[i];
    Tensors y = bind_while(q, test, body, cc_, bc_, carry_);
    std::vector<int> out = axes_where(mapped_);
    if (p_.offloaded) out.push_back(-1);
    append(out, axes_where(y_mapped_));
    return {std::move(y), std::move(out)};
  }

 private:
  std::vector<int> axes_with_carry(std::span<const int> constants) const {
    std::vector<int> out(constants.begin(), constants.end());
    append(out, axes_where(mapped_));
    return out;
  }
  Types with_carry(TensorSpan constants) const { return joined_types(constants, carry_); }

  void map(std::size_t i) {
    if (!mapped_[i]) carry_[i] = move_batch(carry_[i], -1, 0, size_, mask_);
    mapped_[i] = true;
  }

  /// Finds which parts of the carry get a batch axis on the way; the body for them.
  Closed settle() {
    Closed body;
    for (bool again = true; again;) {
      std::vector<bool> gets;
      body = trace_inner("body", with_carry(bc_), [&](TensorSpan in) {
        auto [y, from] = batched_step(in, mask_);
        for (const int a : from) gets.push_back(a >= 0);
        return std::move(y);
      });
      again = false;
      for (std::size_t i = 0; i < carry_.size(); ++i)
        if (gets[i] && !mapped_[i]) {
          map(i);
          again = true;
        }
      y_mapped_ = tail(gets, carry_.size());
    }
    return body;
  }

  std::pair<Tensor, int> batch_condition(TensorSpan in, const Tensor& mask) const {
    auto [y, from] = batch_of(*p_.condition, in, axes_with_carry(cc_axes_), size_,
                              only_if(any_equation(*p_.condition, minds_who_runs), mask));
    return {y[0], from[0]};
  }

  /// One step of the elements of `alive`: (constants, carry) -> carry and where its batch axes came
  /// from.
  std::pair<Tensors, std::vector<int>> batched_step(TensorSpan in, const Tensor& alive) const {
    auto [y, from] = batch_of(*p_.body, in, axes_with_carry(bc_axes_), size_, alive);
    for (std::size_t i = 0; i < y.size(); ++i) {
      // Of a branch that some do not take, each element has its own store: it is freed by itself.
      bool is_mapped = from[i] >= 0 || alive.has_value();
      if (i < carry_.size()) is_mapped = mapped_[i];
      if (is_mapped) y[i] = move_batch(y[i], from[i], 0, size_, alive);
      if (i >= carry_.size()) from[i] = axis_if(is_mapped);
    }
    return {std::move(y), std::move(from)};
  }

  Tensors joined(TensorSpan constants, TensorSpan carry) const {
    Tensors out(constants.begin(), constants.end());
    append(out, carry);
    return out;
  }

  /// Each element has its own end: the carry says first which are alive, and only those move on. Of
  /// an offloaded loop it then counts each element's steps.
  Batched masked() {
    refuse_ordered(*p_.condition);
    for (std::size_t i = 0; i < carry_.size(); ++i) map(i);
    Tensor alive = batch_condition(joined(cc_, carry_), mask_).first;
    if (mask_.has_value()) alive = logical_and(alive, mask_);
    Tensors carry{alive};
    const Type counts{count_type().dtype, {size_}};
    if (p_.offloaded) carry.push_back(zeros_of(counts));
    const std::size_t own = carry.size();
    append(carry, carry_);
    const Closed test = trace_inner("condition", types_of(carry),
                                    [](TensorSpan in) { return Tensors{any(in[0])}; });
    const Tensors constants = joined(cc_, bc_);
    const Closed body = trace_inner("body", joined_types(constants, carry), [&](TensorSpan in) {
      const auto cc = in.first(cc_.size()), bc = in.subspan(cc_.size(), bc_.size()),
                 mine = in.subspan(constants.size()), old = mine.subspan(own);
      const Tensor now = mine[0];
      const std::vector<int> axes = axes_with_carry(bc_axes_);
      auto [next, from] = batched_step(shielded(joined(bc, old), axes, now), now);
      for (std::size_t i = 0; i < old.size(); ++i) next[i] = select_elements(now, next[i], old[i]);
      const auto after = TensorSpan(next).first(old.size());
      Tensors out{logical_and(now, batch_condition(joined(cc, after), now).first)};
      if (p_.offloaded) out.push_back(add(mine[1], convert(now, counts.dtype)));
      append(out, next);
      return out;
    });
    WhileParams q = p_;
    for (int& rank : q.handle_ranks) ++rank;
    Tensors y = bind_while(q, test, body, {}, constants, carry);
    const auto first = nth(y, own);
    if (p_.offloaded) y[own + carry_.size()] = y[1];  // an element's steps for those of the loop
    y.erase(y.begin(), first);
    const std::size_t results = y.size();
    return {std::move(y), std::vector<int>(results, 0)};
  }

  const WhileParams& p_;
  TensorSpan cc_, bc_;
  std::span<const int> cc_axes_, bc_axes_;
  std::int64_t size_;
  Tensor mask_;
  Tensors carry_;
  std::vector<bool> mapped_, y_mapped_;
};

}  // namespace

Batched while_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                    const Tensor& mask) {
  return BatchedWhile(op.as<WhileParams>(), x, axes, size, mask).run();
}

}  // namespace postern::internal
