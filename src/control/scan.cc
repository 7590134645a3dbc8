// scan, map, and fori_loop with a known number of steps: what they are and how they run. Their
// derivatives are in scan_rules.cc.
#include "control/scan.h"
#include "analysis/rewrite.h"
#include "control/residual_store.h"
#include "core/lists.h"
#include "lower/collectives.h"
#include "ops/reduce.h"

#include <postern/control.h>

#include "ops/shape.h"
#include "transform/simplify.h"

namespace postern::internal {

namespace {

Types scan_type(const Params* params, TypeSpan operands) {
  const auto& p = as<ScanParams>(*params);
  const Program& body = *p.body;
  const std::size_t first = p.first_operand();
  check(operands.size() + p.counted == body.inputs.size() + first,
        "scan: {} operands for a body of {} inputs", operands.size(), body.inputs.size());
  if (p.offloaded)
    check(operands[0].dtype == count_type().dtype && operands[0].dims.empty(),
          "scan: the number of steps must be {}, got {}", to_string(count_type()),
          to_string(operands[0]));
  for (std::size_t i = first; i < operands.size(); ++i) {
    std::size_t input = i - first;
    if (input >= p.constants) input += p.counted;  // behind the step's number
    Type type = body.type(body.inputs[input]);
    if (input >= p.first_x() && p.offloaded)
      type = handle_type(type, static_cast<int>(operands[i].rank()));
    else if (input >= p.first_x())
      type = stacked_type(type, p.length);
    check(alike(operands[i], type), "scan: operand {} must be {}, got {}", i, to_string(type),
          to_string(operands[i]));
  }
  Types out = body.output_types();
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (i >= p.carries && p.offloaded) {
      out[i] = handle_type(out[i], p.handle_ranks[i - p.carries]);
    } else if (i >= p.carries) {
      out[i] = stacked_type(out[i], p.length);
    } else {
      const Type& in = operands[first + p.constants + i];
      check(alike(out[i], in), "scan: the carry {} is {} before a step and {} after it", i,
            to_string(in), to_string(out[i]));
      out[i].weak = out[i].weak && in.weak;
    }
  }
  return out;
}

// --- lowering: a while with a counter ---

/// Writes the loop. The counter runs upwards: with the step's number where no xs or ys need it,
/// else from 0.
///
/// The loop carries the counter and the state: the carry, the stacked results, into which each step
/// writes its row, and the token of a body with ordered effects. Constants and xs are seen from
/// inside. A loop of one round is not written as a loop; with `unroll` a round has that many steps,
/// and those that are left over come behind it one by one.
class ScanWriter {
 public:
  ScanWriter(Lowering& out, const Equation& e) : out_(out), e_(e), p_(as<ScanParams>(*e.params)) {
    const std::size_t first_x = p_.constants + p_.carries;
    const std::vector<Ssa> operands = out.operands(e);
    constants_ = head(operands, p_.constants);
    state_ = between(operands, p_.constants, first_x);
    xs_ = tail(operands, first_x);
    for (std::size_t i = first_x; i < operands.size(); ++i)
      x_types_.push_back(&out.operand_type(e, i));
    for (int i = 0; i < e.results; ++i) result_types_.push_back(out.result_type(e, i));
    ordered_ = effect_of(e) == Effect::ordered;
    from_start_ = p_.counted && !p_.reverse && xs_.empty() && p_.ys() == 0;
    std::int64_t last = p_.length;
    if (from_start_) last = std::max(last, p_.start + p_.length);
    counter_type_ = {DType::s32, {}};
    if (last > std::numeric_limits<std::int32_t>::max()) counter_type_.dtype = DType::s64;
    if (p_.counted) counter_type_.dtype = p_.index;
  }

  void write() {
    // The state: carry, stacked results, token.
    for (std::size_t i = p_.carries; i < result_types_.size(); ++i)
      state_.push_back(out_.constant(literal_text({}, result_types_[i].dtype), result_types_[i]));
    for (const Type& t : result_types_) types_.push_back(Lowering::type(t));
    if (ordered_) {
      state_.push_back(out_.token());
      types_.push_back(Lowering::token_type);
    }
    const std::int64_t unroll =
        std::clamp<std::int64_t>(p_.unroll, 1, std::max<std::int64_t>(p_.length, 1));
    const std::int64_t rounds = p_.length / unroll;
    std::int64_t done = 0;
    if (rounds > 1) {
      loop(unroll, rounds);
      done = rounds * unroll;
    }
    for (; done < p_.length; ++done) step(number(first() + done), state_);
    for (int i = 0; i < e_.results; ++i) out_.define(e_, i, state_[at(i)]);
    if (ordered_) out_.set_token(state_.back());
  }

 private:
  /// Returns where the counter begins.
  std::int64_t first() const {
    if (from_start_) return p_.start;
    return 0;
  }
  Ssa number(std::int64_t value) { return out_.constant(std::to_string(value), counter_type_); }
  Ssa plus(Ssa a, Ssa b) {
    return out_.op("add", {a, b}, {&counter_type_, &counter_type_}, counter_type_);
  }
  Ssa minus(Ssa a, Ssa b) {
    return out_.op("subtract", {a, b}, {&counter_type_, &counter_type_}, counter_type_);
  }

  /// Writes the while: each round has `unroll` steps and ends with the counter so much higher.
  void loop(std::int64_t unroll, std::int64_t rounds) {
    std::vector<Ssa> operands{number(first())};
    operands.insert(operands.end(), state_.begin(), state_.end());
    std::vector<std::string> types{Lowering::type(counter_type_)};
    types.insert(types.end(), types_.begin(), types_.end());
    const std::int64_t end = first() + rounds * unroll;
    const Type pred{DType::pred, {}};
    const auto goes_on = [&](std::span<const Ssa> in) {
      return out_.op("compare", {in[0], number(end)}, {&counter_type_, &counter_type_}, pred,
                     comparison_text("LT", counter_type_.dtype));
    };
    const auto one_round = [&](std::span<const Ssa> in) {
      Ssa counter = in[0];
      std::vector<Ssa> state(in.begin() + 1, in.end());
      const Ssa one = number(1);
      const Ssa answer = out_.asking([&] {
        for (std::int64_t u = 0; u < unroll; ++u) {
          step(counter, state);
          counter = plus(counter, one);
        }
      });
      if (out_.partitioned() && calls_back(*p_.body)) counter = unless_failed(counter, answer, end);
      state.insert(state.begin(), counter);
      return state;
    };
    const std::vector<Ssa> results = out_.while_loop(operands, types, goes_on, one_round);
    state_.assign(results.begin() + 1, results.end());
  }

  /// Returns the counter, or where the run has failed its `end`: on several devices a loop leaves
  /// by itself then, see while_lower. `answer`: whether the run goes on, if the round has asked.
  Ssa unless_failed(Ssa counter, Ssa answer, std::int64_t end) {
    const Type pred{DType::pred, {}};
    if (answer.id < 0) answer = ask_run(out_, {counter, Lowering::type(counter_type_)});
    const Ssa all_go_on = everywhere(out_, answer, axes_met(out_, {&p_.body, 1}));
    return out_.op("select", {all_go_on, counter, number(end)},
                   {&pred, &counter_type_, &counter_type_}, counter_type_);
  }

  /// Writes one step, of which `state` is the state before and then after it. `counter`: first()
  /// plus the number of steps before.
  void step(Ssa counter, std::vector<Ssa>& state) {
    if (ordered_) out_.set_token(state.back());
    Ssa slot = counter;  // of xs and ys
    if (p_.reverse) slot = minus(number(p_.length - 1), counter);
    std::vector<Ssa> in = constants_;
    if (p_.counted) {  // the step's number: start + slot, which the counter is if it begins there
      in.push_back(slot);
      if (!from_start_ && p_.start != 0) in.back() = plus(slot, number(p_.start));
    }
    in.insert(in.end(), state.begin(), nth(state, p_.carries));
    for (std::size_t i = 0; i < xs_.size(); ++i) in.push_back(slice(xs_[i], *x_types_[i], slot));
    const std::vector<Ssa> results = out_.inlined(*p_.body, in);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (i < p_.carries)
        state[i] = results[i];
      else
        state[i] = update(state[i], results[i], result_types_[i], slot);
    }
    if (ordered_) state.back() = out_.token();
  }

  /// Writes where the row at `slot` begins, by axis, and the types of these numbers.
  std::vector<Ssa> starts(Ssa slot, std::int64_t rank) {
    std::vector<Ssa> out{slot};
    for (std::int64_t i = 1; i < rank; ++i) out.push_back(number(0));
    return out;
  }
  std::string start_types(std::int64_t rank) const {
    std::string text;
    for (std::int64_t i = 0; i < rank; ++i) text += ", " + Lowering::type(counter_type_);
    return text;
  }

  /// Reads the row at `slot` of `x`, of that type, without the stacked axis.
  Ssa slice(Ssa x, const Type& type, Ssa slot) {
    Type row_type = type;
    row_type.dims[0] = 1;
    const std::vector<Ssa> at = starts(slot, type.rank());
    const Ssa row = out_.fresh();
    out_.write(
        "    %{} = \"stablehlo.dynamic_slice\"(%{}, {}) {{slice_sizes = {}}} : ({}{}) -> {}\n",
        row.id, x.id, Lowering::list(at), array_text(row_type.dims), Lowering::type(type),
        start_types(type.rank()), Lowering::type(row_type));
    return out_.op("reshape", {row}, {&row_type}, slice_type_of(type));
  }
  /// Writes `y` into `stack`, of that type, as the row at `slot`; returns the new stack.
  Ssa update(Ssa stack, Ssa y, const Type& type, Ssa slot) {
    const Type y_type = slice_type_of(type);
    Type row_type = type;  // y's, with the stacked axis in front
    row_type.dims[0] = 1;
    const Ssa row = out_.op("reshape", {y}, {&y_type}, row_type);
    const std::vector<Ssa> at = starts(slot, type.rank());
    const Ssa updated = out_.fresh();
    out_.write("    %{} = \"stablehlo.dynamic_update_slice\"(%{}, %{}, {}) : ({}, {}{}) -> {}\n",
               updated.id, stack.id, row.id, Lowering::list(at), Lowering::type(type),
               Lowering::type(row_type), start_types(type.rank()), Lowering::type(type));
    return updated;
  }

  Lowering& out_;
  const Equation& e_;
  const ScanParams& p_;
  std::vector<Ssa> constants_, state_, xs_;
  std::vector<const Type*> x_types_;
  Types result_types_;
  std::vector<std::string> types_;
  bool ordered_ = false, from_start_ = false;
  Type counter_type_;
};

void scan_lower(Lowering& out, const Equation& e) { ScanWriter(out, e).write(); }

// --- evaluating: interpreted by the host ---

Tensors scan_evaluate(const Op& op, TensorSpan x) {
  const auto& p = op.as<ScanParams>();
  const ScanParts of(p, x);
  Tensors carry(of.carry.begin(), of.carry.end());
  std::vector<std::vector<unsigned char>> x_bytes, stacks;
  for (const Tensor& t : of.xs) t.read(x_bytes.emplace_back(t.type().byte_size()).data());
  const Types y_types = p.y_types();
  for (const Type& type : y_types) stacks.emplace_back(stacked_type(type, p.length).byte_size());
  std::vector<Tensors> handles(p.ys());  // by stack: kept until the stack keeps them itself

  for (std::int64_t step = 0; step < p.length; ++step) {
    const std::int64_t k = p.slot(step, p.length);
    Tensors in(of.constants.begin(), of.constants.end());
    if (p.counted) in.push_back(integer_of(p.start + k, p.index));
    append(in, carry);
    for (std::size_t i = 0; i < of.xs.size(); ++i) {
      const Type type = slice_type_of(of.xs[i].type());
      in.emplace_back(type, x_bytes[i].data() + size_of(k) * type.byte_size());
      if (residual_access.of(of.xs[i])) residual_access.keep(in.back());
    }
    Tensors y = evaluator.program(p.body, in);
    for (std::size_t i = 0; i < stacks.size(); ++i) {
      const Tensor& part = y[p.carries + i];
      if (residual_access.of(part)) handles[i].push_back(part);
      part.read(stacks[i].data() + size_of(k) * part.type().byte_size());
    }
    y.resize(p.carries);
    carry = std::move(y);
  }

  for (std::size_t i = 0; i < stacks.size(); ++i) {
    carry.emplace_back(stacked_type(y_types[i], p.length), stacks[i].data());
    if (!handles[i].empty()) residual_access.keep(carry.back());
  }
  return carry;
}

Tensors offloaded_scan_evaluate(const Op& op, TensorSpan x) {
  const auto& p = op.as<ScanParams>();
  const ScanParts of(p, x);
  const std::int64_t steps = x[0].item<std::int64_t>();
  const Types x_types = p.x_types();
  const Types y_types = p.y_types();
  Tensors carry(of.carry.begin(), of.carry.end());
  Tensors handles = no_handles(y_types, p.handle_ranks);
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::int64_t k = p.slot(step, steps);
    Tensors in(of.constants.begin(), of.constants.end());
    if (p.counted) in.push_back(integer_of(p.start + k, p.index));
    append(in, carry);
    append(in, residual_access.read_now(k, of.xs, x_types));
    carry = evaluator.program(p.body, in);
    residual_access.write_now(k, handles, std::span(carry).subspan(p.carries), p.residuals);
    carry.resize(p.carries);
  }
  append(carry, handles);
  return carry;
}

// --- fori_loop: a scan, or a while where a bound is not known ---

/// An integer that is known while tracing.
std::optional<std::int64_t> known_integer(const Tensor& t) {
  const detail::HostValue* host = host_scalar(t);
  if (!host) return {};
  const Number number = read_number(host->type.dtype, host->data.get());
  check(holds(DType::s64, number), "fori_loop: a bound must fit s64, got {}",
        literal_text(number, host->type.dtype));
  return number.integer;
}

bool fits_s32(std::int64_t i) {
  return i >= std::numeric_limits<std::int32_t>::min() &&
         i <= std::numeric_limits<std::int32_t>::max();
}

/// Chooses the dtype of a counter between bounds of which at least one is not known: s64 if a bound
/// does not fit s32, or might not by its dtype.
DType counter_dtype(const Tensor& lower, const Tensor& upper) {
  for (const Tensor* t : {&lower, &upper}) {
    const std::optional<std::int64_t> known = known_integer(*t);
    bool fits = byte_width(t->dtype()) < 8 && t->dtype() != DType::u32;
    if (known) fits = fits_s32(*known);
    if (!fits) return DType::s64;
  }
  return DType::s32;
}

/// Makes a bound the counter's: what is beyond s64 is its largest number, which no counter passes.
Tensor counter_bound(const Tensor& bound, DType dtype) {
  if (bound.dtype() != DType::u64 || known_integer(bound)) return fit(bound, {dtype, {}});
  return fit(minimum(bound, std::numeric_limits<std::int64_t>::max()), {dtype, {}});
}

/// Runs fori_loop as a while loop, of which the counter is the first leaf of the carry.
Tensors counted_while(const Tensor& lower, const Tensor& upper, const TensorFunction& body,
                      const Tensors& init, const std::vector<std::string>& paths,
                      const Place& place) {
  const DType dtype = counter_dtype(lower, upper);
  Tensors carry{counter_bound(lower, dtype)};
  const Tensor end = counter_bound(upper, dtype);
  append(carry, init);
  std::vector<std::string> all_paths{"counter"};
  all_paths.insert(all_paths.end(), paths.begin(), paths.end());
  auto test = [&](TensorSpan in) {
    PlaceScope at_place(place);
    return Tensors{less(in[0], end)};
  };
  auto step = [&](TensorSpan in) {
    Tensors out = body(in);
    PlaceScope at_place(place);
    out.insert(out.begin(), add(in[0], integer_of(1, dtype)));
    return out;
  };
  return tail(detail::while_loop(test, step, carry, all_paths, {}, place), 1);
}

}  // namespace

constexpr Primitive scan_p{.name = "scan",
                           .type = scan_type,
                           .jvp = scan_jvp,
                           .transpose = scan_transpose,
                           .linear = Linear::jointly,
                           .split = scan_split,
                           .with_programs = body_with_programs<ScanParams>,
                           .control = ControlFlow::scan,
                           .batch = scan_batch,
                           .lower = scan_lower,
                           .evaluate = scan_evaluate};

constexpr Primitive offloaded_scan_p = offloaded(scan_p, offloaded_scan_evaluate);

Tensors bind_scan(ScanParams p, const Closed& closed, TensorSpan constants, TensorSpan carry,
                  TensorSpan xs, const Tensor& steps) {
  // Inputs that the body does not use are left out, with their operands; the carry always stays.
  const std::vector<bool> used = used_inputs(*closed.program);
  Program body = *closed.program;
  body.inputs.clear();
  Tensors operands;
  if (p.offloaded) operands.push_back(steps);
  std::size_t next_input = 0;
  auto keep_if = [&](bool wanted) {
    if (wanted) body.inputs.push_back(closed.program->inputs[next_input]);
    ++next_input;
    return wanted;
  };
  auto keep_used = [&](TensorSpan tensors) {
    for (const Tensor& t : tensors)
      if (keep_if(used[next_input])) operands.push_back(t);
  };
  keep_used(closed.captures);
  keep_used(constants);
  p.constants = operands.size() - p.first_operand();
  if (p.counted) p.counted = keep_if(used[next_input]);
  for (std::size_t i = 0; i < carry.size(); ++i) keep_if(true);
  append(operands, carry);
  p.carries = carry.size();
  keep_used(xs);
  p.body = std::make_shared<const Program>(std::move(body));
  const Primitive& primitive = scan_primitive(p.offloaded);
  return bind_n(primitive, make_params(std::move(p)), operands);
}

}  // namespace postern::internal

namespace postern {
using namespace internal;

detail::Tensors detail::scan(const char* what, const TensorFunction& f, const Tensors& init,
                             const std::vector<std::string>& paths, const Tensors& xs,
                             const ScanOptions& options, const Place& place) {
  PlaceScope at_place(place);
  check(options.unroll >= 1, "{}: unroll must be 1 or more, got {}", what, options.unroll);
  std::optional<std::int64_t> length = options.length;
  for (const Tensor& x : xs) {
    check(x.has_value() && x.rank() > 0, "{}: xs are scanned along their first axis, got {}", what,
          type_text(x));
    if (!length) length = x.dims()[0];
    check(x.dims()[0] == *length, "{}: the first axes of xs must have one length, {}, got {}", what,
          *length, to_string(x.type()));
  }
  check(length.has_value() && *length >= 0, "{}: without xs, length must be given, 0 or more",
        what);
  ScanParams p;
  p.length = *length;
  p.reverse = options.reverse;
  p.unroll = options.unroll;
  Tensors carry = init;
  Closed body;
  Types gives;
  do {
    Types types = types_of(carry);
    for (const Tensor& x : xs) types.push_back(slice_type_of(x.type()));
    body = trace_user_inner("body", types, f);
    gives = body.program->output_types();
    gives.resize(std::min(carry.size(), gives.size()));
  } while (settle_carry(what, carry, gives, paths));
  return bind_scan(p, body, {}, carry, xs);
}

detail::Tensors detail::fori_loop(const Tensor& lower, const Tensor& upper,
                                  const TensorFunction& body, const Tensors& init,
                                  const std::vector<std::string>& paths, int unroll,
                                  const Place& place) {
  PlaceScope at_place(place);
  for (const Tensor* t : {&lower, &upper})
    check(t->has_value() && is_integer(t->dtype()) && t->rank() == 0,
          "fori_loop: a bound must be an integer scalar, got {}", type_text(*t));
  check(unroll >= 1, "fori_loop: unroll must be 1 or more, got {}", unroll);
  const auto begin = known_integer(lower), end = known_integer(upper);
  if (!begin || !end) return counted_while(lower, upper, body, init, paths, place);
  ScanParams p;
  p.counted = true;
  p.start = *begin;
  check(!__builtin_sub_overflow(*end, *begin, &p.length),
        "fori_loop: from {} to {} are more steps than can be counted", *begin, *end);
  p.length = std::max<std::int64_t>(p.length, 0);
  p.index = DType::s64;
  // The length has to fit too, since the loops of derivatives count from 0.
  if (fits_s32(*begin) && fits_s32(*end) && fits_s32(p.length)) p.index = DType::s32;
  p.unroll = unroll;
  Tensors carry = init;
  Closed step;
  do {
    Types types{{p.index, {}}};
    append(types, types_of(carry));
    step = trace_user_inner("body", types, body);
  } while (settle_carry("fori_loop", carry, step.program->output_types(), paths));
  return bind_scan(p, step, {}, carry, {});
}

}  // namespace postern
