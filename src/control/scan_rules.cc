// Derivatives and batching of scan; scan_split.cc has the split.
#include "control/residual_store.h"
#include "control/scan.h"
#include "core/lists.h"
#include "transform/simplify.h"
#include "transform/transpose.h"

namespace postern::internal {

namespace {

/// Returns the types of a body's inputs: constants, the step's number, carry, slices of xs.
Types input_types(const ScanParams& p, const Tensors& constants, const Tensors& carry,
                  const Types& slices) {
  Types out = types_of(constants);
  if (p.counted) out.push_back({p.index, {}});
  append(out, types_of(carry));
  append(out, slices);
  return out;
}

/// Takes tensors from a list, one after another.
class Reader {
 public:
  explicit Reader(TensorSpan in) : in_(in) {}
  Tensor one() { return in_[next_++]; }
  TensorSpan many(std::size_t n) {
    next_ += n;
    return in_.subspan(next_ - n, n);
  }
  /// Takes those that `mask` marks to their places in it; the others are empty.
  Tensors marked(const std::vector<bool>& mask) {
    return placed(mask, many(size_of(std::ranges::count(mask, true))));
  }

 private:
  TensorSpan in_;
  std::size_t next_ = 0;
};

}  // namespace

ScanParams scan_of_body(const WhileParams& p) {
  ScanParams out;
  out.body = p.body;
  out.index = count_type().dtype;
  out.constants = p.body_constants;
  out.carries = p.carries();
  out.residuals = p.residuals;
  out.offloaded = true;
  out.handle_ranks = p.handle_ranks;
  return out;
}

// New body: constants and their tangents, the step's number, carry and tangents, xs and tangents ->
// carry, tangents, ys, tangents. A part of the carry that starts without a tangent may get one from
// another in some step, and a loop's carry has one type: so the body is traced again, with zeros
// for the tangents that came to be, until no step adds one. That ends after at most as many rounds
// as there is carry.
StepJvp step_jvp(const ScanParams& p, const ScanParts& of, const ScanParts& tangent) {
  StepJvp out;
  out.constants = joined({of.constants, kept(tangent.constants)});
  out.carry_moves = present(tangent.carry);
  const std::vector<bool> constants_move = present(tangent.constants),
                          xs_move = present(tangent.xs);
  Types slices = p.x_types();
  append(slices, where_marked(p.x_types(), xs_move));
  for (bool again = true; again;) {
    const std::vector<bool> before = out.carry_moves;
    out.carry = joined({of.carry, or_zeros_like(tangent.carry, before, types_of(of.carry))});
    const Types types = input_types(p, out.constants, out.carry, slices);
    out.body = trace_inner("body", types, [&](TensorSpan in) {
      Reader read(in);
      Tensors values = joined({read.many(of.constants.size())}),
              tangents = read.marked(constants_move);
      if (p.counted) {
        values.push_back(read.one());
        tangents.emplace_back();
      }
      append(values, read.many(p.carries));
      append(tangents, read.marked(before));
      append(values, read.many(of.xs.size()));
      append(tangents, read.marked(xs_move));

      const auto [results, results_dx] = jvp_of(*p.body, values, tangents);
      const auto new_carry = std::span(results).first(p.carries),
                 ys = std::span(results).subspan(p.carries),
                 new_dcarry = std::span(results_dx).first(p.carries),
                 dys = std::span(results_dx).subspan(p.carries);
      join(out.carry_moves, present(new_dcarry));
      out.ys_move = present(dys);
      return joined({new_carry, or_zeros_like(new_dcarry, out.carry_moves, types_of(new_carry)), ys,
                     kept(dys)});
    });
    again = out.carry_moves != before;
  }
  return out;
}

Jvp scan_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const auto& p = op.as<ScanParams>();
  const ScanParts of(p, x), tangent(p, dx);
  const StepJvp step = step_jvp(p, of, tangent);
  ScanParams with_tangents = p;
  for (std::size_t i = 0; i < p.handle_ranks.size(); ++i)
    if (step.ys_move[i]) with_tangents.handle_ranks.push_back(p.handle_ranks[i]);
  const Tensors xs = joined({of.xs, kept(tangent.xs)});
  const Tensors all =
      bind_scan(with_tangents, step.body, step.constants, step.carry, xs, at_if(p.offloaded, x, 0));
  Reader read(all);
  const auto last_carry = read.many(p.carries);
  const Tensors last_dcarry = read.marked(step.carry_moves);
  const auto ys = read.many(p.ys());
  return {joined({last_carry, ys}), joined({last_dcarry, read.marked(step.ys_move)})};
}

// The loop runs the other way. Carry: sums of the cotangents of linear constants, cotangents of the
// carry. All of the carry is linear: split has taken out what is not; a known start is a zero
// tangent. xs are the cotangents of the ys that have one and what is known of the xs; the new ys
// are the cotangents of the other xs. As in scan_jvp the body is traced until it is known which
// sums and which cotangents there are at all.
Tensors scan_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan types) {
  const auto& p = op.as<ScanParams>();
  const ScanParts of(p, x);
  Types all_types;
  for (std::size_t i = p.first_operand(); i < types.size(); ++i) all_types.push_back(types[i]);
  const Types carry_types = between(all_types, p.constants, p.constants + p.carries);
  const std::vector<bool> known_constants = present(of.constants), known_xs = present(of.xs),
                          arrives = present(ct.subspan(p.carries));
  const Tensors constants = kept(of.constants),
                xs = joined({kept(ct.subspan(p.carries)), kept(of.xs)});
  Types slices = where_marked(p.y_types(), arrives);
  append(slices, where_marked(p.x_types(), known_xs));
  // Which cotangents there are: of constants (as sums), of the carry, of xs.
  std::vector<bool> constants_get(p.constants), carry_gets = present(ct.first(p.carries)), xs_get;
  Tensors carry;
  Closed body;
  for (bool again = true; again;) {
    carry = joined({or_zeros_like(Tensors(p.constants), constants_get, all_types),
                    or_zeros_like(ct, carry_gets, carry_types)});
    const std::vector<bool> constants_before = constants_get, carry_before = carry_gets;
    body = trace_inner("body", input_types(p, constants, carry, slices), [&](TensorSpan in) {
      Reader read(in);
      Tensors values = read.marked(known_constants);
      if (p.counted) values.push_back(read.one());
      const Tensors sums = read.marked(constants_before);
      Tensors cotangents = read.marked(carry_before);
      append(cotangents, read.marked(arrives));
      values.resize(p.first_x());  // the carry is unknown
      append(values, read.marked(known_xs));

      // The cotangents of what is known are empty.
      const Tensors into = transpose_of(*p.body, values, cotangents);
      const auto into_carry = std::span(into).subspan(p.first_carry(), p.carries),
                 into_xs = std::span(into).subspan(p.first_x());
      Tensors new_sums;
      for (std::size_t i = 0; i < p.constants; ++i) new_sums.push_back(add_any(sums[i], into[i]));
      join(constants_get, present(new_sums));
      join(carry_gets, present(into_carry));
      xs_get = present(into_xs);
      return joined({or_zeros_like(new_sums, constants_get, all_types),
                     or_zeros_like(into_carry, carry_gets, carry_types), kept(into_xs)});
    });
    again = constants_get != constants_before || carry_gets != carry_before;
  }
  ScanParams backward = p;
  backward.reverse = !p.reverse;
  backward.handle_ranks.clear();
  for (std::size_t i = 0; p.offloaded && i < xs_get.size(); ++i)
    if (xs_get[i])
      backward.handle_ranks.push_back(
          static_cast<int>(all_types[p.constants + p.carries + i].rank()));
  const Tensors given = bind_scan(backward, body, constants, carry, xs, at_if(p.offloaded, x, 0));
  Reader read(given);
  Tensors out(p.first_operand());
  for (const auto& gets : {constants_get, carry_gets, xs_get}) append(out, read.marked(gets));
  return out;
}

// --- batching ---

// Given the operands with their batch axes (-1: none), and perhaps a mask of the elements that run.
// Binds one scan for all elements; gives its results with the batch axes of each.
//
// Constants keep their batch axis; that of the carry goes to the front, that of xs and ys behind
// the axis that is scanned. Each element has stores of its own, and handles their axis in front.
//
// The number of steps comes first, since it decides what follows. Where elements have different
// ones the loop has as many as the longest, the whole carry and all ys are mapped, and the body
// needs the step's number: elements that are done keep their carry, and those that the mask leaves
// out have no step. Then the body is traced until no step maps more of the carry, as in scan_jvp,
// since a scan's carry has one type.
Batched scan_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                   const Tensor& mask) {
  const ScanParams& one = op.as<ScanParams>();  // the scan of one element
  const ScanParts of(one, x);
  const auto own_axes = axes.subspan(one.first_operand()),
             carry_axes = own_axes.subspan(one.constants, one.carries),
             x_axes = own_axes.subspan(one.constants + one.carries);
  const int stacked_axis = one.offloaded ? 0 : 1;  // of xs and ys

  Tensor steps = at_if(one.offloaded, x, 0), steps_of_each;
  if (one.offloaded && axes[0] >= 0) {
    steps_of_each = move_batch(steps, axes[0], 0, size);
    if (mask.has_value())
      steps_of_each = where(mask, steps_of_each, zeros_of(steps_of_each.type()));
    steps = max(steps_of_each);
  }
  const bool differ = steps_of_each.has_value();
  ScanParams p = one;
  p.counted = one.counted || differ;
  if (differ && !one.counted) p.index = count_type().dtype;

  const Tensors constants(of.constants.begin(), of.constants.end());
  Tensors carry(of.carry.begin(), of.carry.end()), xs(of.xs.begin(), of.xs.end());
  std::vector<bool> carry_mapped(p.carries), xs_mapped,
      ys_mapped(p.ys(), differ || (p.offloaded && mask.has_value()));
  auto map_carry = [&](std::size_t i) {
    carry[i] = move_batch(carry[i], carry_axes[i], 0, size, mask);
    carry_mapped[i] = true;
  };
  for (std::size_t i = 0; i < p.carries; ++i)
    if (carry_axes[i] >= 0 || differ) map_carry(i);
  Types slices = one.x_types();
  for (std::size_t i = 0; i < xs.size(); ++i) {
    xs_mapped.push_back(x_axes[i] >= 0);
    if (!xs_mapped[i]) continue;
    xs[i] = move_batch(xs[i], x_axes[i], stacked_axis, size);
    slices[i].dims.insert(slices[i].dims.begin(), size);
  }

  Closed body;
  for (bool again = true; again;) {
    std::vector<int> from = head(own_axes, one.constants);  // by input of the body
    if (one.counted) from.push_back(-1);
    append(from, axes_where(carry_mapped));
    append(from, axes_where(xs_mapped));
    std::vector<int> to;
    body = trace_inner("body", input_types(p, constants, carry, slices), [&](TensorSpan in) {
      Tensors inputs(in.begin(), in.end()), y;
      Tensor alive = mask;
      if (differ) {
        alive = less(convert(in[p.constants], steps_of_each.dtype()), steps_of_each);
        if (!one.counted) inputs.erase(nth(inputs, p.constants));
      }
      // What is in stores is of one step, so who reads a cotangent there is not alive either.
      Tensors own = inputs;
      for (std::size_t i = 0; differ && i < one.first_x(); ++i)
        if (from[i] >= 0) own[i] = shielded(own[i], from[i], alive);

      std::tie(y, to) = batch_of(*p.body, own, from, size, alive);
      for (std::size_t i = 0; i < p.carries; ++i) {
        if (carry_mapped[i]) y[i] = move_batch(y[i], to[i], 0, size, alive);
        if (differ) y[i] = select_elements(alive, y[i], inputs[one.first_carry() + i]);
      }
      for (std::size_t i = p.carries; i < y.size(); ++i) {
        const bool is_mapped = ys_mapped[i - p.carries] || to[i] >= 0;
        ys_mapped[i - p.carries] = is_mapped;
        if (is_mapped) y[i] = move_batch(y[i], to[i], 0, size, alive);
      }
      return y;
    });
    again = false;
    for (std::size_t i = 0; i < p.carries; ++i) {
      if (carry_mapped[i] || to[i] < 0) continue;
      map_carry(i);
      again = true;
    }
  }
  for (std::size_t i = 0; i < p.handle_ranks.size(); ++i) p.handle_ranks[i] += ys_mapped[i];
  Tensors y = bind_scan(p, body, constants, carry, xs, steps);
  std::vector<int> out = axes_where(carry_mapped);
  append(out, axes_where(ys_mapped, stacked_axis));
  return {std::move(y), std::move(out)};
}

}  // namespace postern::internal
