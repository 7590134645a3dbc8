// while_loop under vmap.
#include "control/residual_store.h"
#include "control/scan.h"
#include "core/lists.h"

#include <postern/ops.h>

namespace postern::internal {

namespace {

/// Refuses calls with ordered effects in the condition of a loop whose elements end at different
/// times.
void refuse_ordered(const Program& condition) {
  any_equation(condition, [](const Equation& e) {
    const SiteSpec* const s = site_of(e);
    if (!s || s->is_tap()) return false;
    PlaceScope::Replace at(s->place);
    check(s->effect != Effect::ordered,
          "vmap: call '{}' with an ordered effect decides when a while_loop ends, and under vmap "
          "each element ends at its own time: no order would be right. Make the call unordered, "
          "or batch inside of the loop",
          s->name);
    return false;
  });
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
        of_(p, x),
        condition_axes_(axes.first(p.condition_constants)),
        body_axes_(axes.subspan(p.condition_constants, p.body_constants)),
        size_(size),
        mask_(mask) {
    for (std::size_t i = p.condition_constants + p.body_constants; i < x.size(); ++i) {
      carry_.push_back(x[i]);
      mapped_.push_back(axes[i] >= 0);
      if (axes[i] >= 0) carry_.back() = move_batch(x[i], axes[i], 0, size);
    }
  }

  Batched run() {
    const Closed body = settle();
    bool elements_differ = false;
    const Closed test =
        trace_inner("condition", joined_types(of_.condition_constants, carry_), [&](TensorSpan in) {
          const auto [go, from] = batch_condition(in, mask_);
          elements_differ = from >= 0;
          if (!mask_.has_value() || elements_differ) return Tensors{go};
          return Tensors{logical_and(go, any(mask_))};  // without live elements: no step
        });
    if (elements_differ) return masked();
    WhileParams batched = p_;
    for (std::size_t i = 0; i < p_.ys(); ++i) batched.handle_ranks[i] += y_mapped_[i];
    Tensors y =
        bind_while(batched, test, body, of_.condition_constants, of_.body_constants, carry_);
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

  void map(std::size_t i) {
    if (!mapped_[i]) carry_[i] = move_batch(carry_[i], -1, 0, size_, mask_);
    mapped_[i] = true;
  }

  /// Finds which parts of the carry get a batch axis on the way; the body for them.
  Closed settle() {
    Closed body;
    for (bool again = true; again;) {
      std::vector<bool> gets;
      body = trace_inner("body", joined_types(of_.body_constants, carry_), [&](TensorSpan in) {
        auto [y, from] = batched_step(in, mask_);
        for (const int a : from) gets.push_back(a >= 0);
        return std::move(y);
      });
      again = false;
      for (std::size_t i = 0; i < carry_.size(); ++i) {
        if (!gets[i] || mapped_[i]) continue;
        map(i);
        again = true;
      }
      y_mapped_ = tail(gets, carry_.size());
    }
    return body;
  }

  /// Writes the condition of (its constants, the carry); its batch axis, -1: one for all elements.
  std::pair<Tensor, int> batch_condition(TensorSpan in, const Tensor& mask) const {
    const bool minds = any_equation(*p_.condition, minds_who_runs);
    auto [y, from] = batch_of(*p_.condition, in, axes_with_carry(condition_axes_), size_,
                              minds ? mask : Tensor());
    return {y[0], from[0]};
  }

  /// Writes one step of the elements of `alive`: (constants, carry) -> carry, what goes into
  /// stores. With it the batch axes: of the carry as the body gave them, so that settle() learns of
  /// them.
  std::pair<Tensors, std::vector<int>> batched_step(TensorSpan in, const Tensor& alive) const {
    auto [y, from] = batch_of(*p_.body, in, axes_with_carry(body_axes_), size_, alive);
    for (std::size_t i = 0; i < y.size(); ++i) {
      // Of a branch that some do not take, each element has its own store: it is freed by itself.
      bool is_mapped = from[i] >= 0 || alive.has_value();
      if (i < carry_.size()) is_mapped = mapped_[i];
      if (is_mapped) y[i] = move_batch(y[i], from[i], 0, size_, alive);
      if (i >= carry_.size()) from[i] = axis_if(is_mapped);
    }
    return {std::move(y), std::move(from)};
  }

  /// Binds a loop in which each element has its own end. Its carry says first which are alive, and
  /// only those move on; of an offloaded loop it then counts each element's steps; the loop's own
  /// carry, all of it mapped, comes behind.
  Batched masked() {
    refuse_ordered(*p_.condition);
    for (std::size_t i = 0; i < carry_.size(); ++i) map(i);
    Tensor alive = batch_condition(joined({of_.condition_constants, carry_}), mask_).first;
    if (mask_.has_value()) alive = logical_and(alive, mask_);
    Tensors carry{alive};
    const Type counts{count_type().dtype, {size_}};
    if (p_.offloaded) carry.push_back(zeros_of(counts));
    const std::size_t first_own = carry.size();
    append(carry, carry_);
    const Closed test = trace_inner("condition", types_of(carry),
                                    [](TensorSpan in) { return Tensors{any(in[0])}; });

    const Tensors constants = joined({of_.condition_constants, of_.body_constants});
    const Closed body = trace_inner("body", joined_types(constants, carry), [&](TensorSpan in) {
      const auto condition_constants = in.first(p_.condition_constants),
                 body_constants = in.subspan(p_.condition_constants, p_.body_constants),
                 carry_in = in.subspan(constants.size()), before = carry_in.subspan(first_own);
      const Tensor now = carry_in[0];
      const Tensors own =
          shielded(joined({body_constants, before}), axes_with_carry(body_axes_), now);
      auto [next, from] = batched_step(own, now);
      for (std::size_t i = 0; i < before.size(); ++i)
        next[i] = select_elements(now, next[i], before[i]);
      const auto after = TensorSpan(next).first(before.size());
      const Tensor goes_on = batch_condition(joined({condition_constants, after}), now).first;
      Tensors out{logical_and(now, goes_on)};
      if (p_.offloaded) out.push_back(add(carry_in[1], convert(now, counts.dtype)));
      append(out, next);
      return out;
    });

    WhileParams batched = p_;
    for (int& rank : batched.handle_ranks) ++rank;
    Tensors y = bind_while(batched, test, body, {}, constants, carry);
    // The elements' own numbers of steps, for the number that the loop has had.
    if (p_.offloaded) y[first_own + carry_.size()] = y[1];
    return batched_in_front(tail(y, first_own));
  }

  const WhileParams& p_;
  const WhileParts of_;
  std::span<const int> condition_axes_, body_axes_;
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
